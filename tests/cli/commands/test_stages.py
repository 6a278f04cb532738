"""`tokioctl stages`: its chart, its table and its files, from rings as the processes leave them."""

import json
import time
from importlib.util import find_spec

import pytest
from click.testing import CliRunner
from commanded import configured, source
from msgspec.structs import replace
from recorded_stages import save, work

from tokiod.cli.tokioctl import main
from tokiod.config import load as configuration


def run(path, *arguments):
    return CliRunner(env={"COLUMNS": "100"}).invoke(main, ["stages", *arguments, "--config", str(path)])


@pytest.fixture
def empty(tmp_path):
    path = configured(tmp_path, source("one"), source("other", system="gs"))
    path.write_text(f'{path.read_text()}[feed]\nendpoint = "ipc://{tmp_path}/feed"\n')
    return path


@pytest.fixture
def path(empty):
    """Two windows and a file, recorded now."""
    wall = (int(time.time()) - 100) * 10**9
    rings = configuration.load(empty).stages
    collectors = [
        work(1, "collection", 1, 2, 3, 6, 7, name="one"), work(2, "submission", 7, 8, 20, name="one"),
        work(3, "collection", 1, 2, 3, 4, 5, name="other", outcome="failed"),
    ]  # fmt: skip
    save(rings, "collectors", [replace(one, wall=wall) for one in collectors])
    written = [work(1, "commit", 10, 11, 15, 18, 18.5, name="one"), work(2, "seal", 1, 90, name="fs")]
    save(rings, "writer", [replace(one, wall=wall) for one in written])
    return empty


def test_the_chart_and_the_table_are_shown(path):
    done = run(path)
    assert done.exit_code == 0, done.output
    chart, table = done.stdout.split("\n\n")
    assert [line.split()[0] for line in chart.splitlines()] == ["other", "one", "fs", "d"]
    assert chart.splitlines()[-1] == "d due  a ask  f fetch  p parse  u submit  b bus  w apply  s sync  l ledger  k ack  z seal"
    rows = [line.split() for line in table.splitlines()]
    assert rows[0] == ["stage", "n", "median", "p95", "max", "share"]
    assert ["sync", "1", "4.00", "s", "4.00", "s", "4.00", "s", "17.4%"] in rows
    assert ["feed", "1", "500", "ms", "500", "ms", "500", "ms", "-"] in rows
    assert ["seal", "1", "89.0", "s", "89.0", "s", "89.0", "s", "100.0%"] in rows


def test_json_has_the_slowest_and_the_table(path):
    found = json.loads(run(path, "--json", "--slowest", "1").stdout)
    assert [(one["kind"], one["name"], one["seconds"]) for one in found["slowest"]] == [("file", "fs", 89.0)]
    assert len(found["stages"]) == 12


def test_one_source_is_shown_with_the_files_of_its_system(path):
    found = json.loads(run(path, "one", "--json").stdout)
    assert sorted((one["kind"], one["name"]) for one in found["slowest"]) == [("file", "fs"), ("window", "one")]
    assert [one["name"] for one in json.loads(run(path, "other", "--json").stdout)["slowest"]] == ["other"]
    assert "unknown source 'oen'" in run(path, "oen").stderr


def test_what_ended_before_is_left_out(path):
    assert [one["name"] for one in json.loads(run(path, "--json", "--since", "50s").stdout)["slowest"]] == ["fs"]
    assert run(path, "--since", "1s").stdout == "no window or file since 1s\n"


def test_a_trace_is_written_of_all_and_a_chart_of_the_slowest(path, tmp_path):
    done = run(path, "--trace", str(tmp_path / "trace.json"), "--slowest", "1")
    assert done.exit_code == 0, done.output
    begun = [event["name"] for event in json.loads((tmp_path / "trace.json").read_text())["traceEvents"] if event["ph"] == "b"]
    assert sum(name.startswith(("one ", "other ", "fs ")) for name in begun) == 3


@pytest.mark.skipif(find_spec("matplotlib") is None, reason="matplotlib is an extra")
def test_a_picture_names_each_window_and_each_stage(path, tmp_path):
    done = run(path, "--figure", str(tmp_path / "stages.svg"))
    assert done.exit_code == 0, done.output
    drawn = (tmp_path / "stages.svg").read_text()
    assert all(f"<!-- {word}" in drawn for word in ("fetch -", "sync -", "seal -", "one 2018-01-29T00:00:00Z -", "seconds; hatched: open"))


def test_what_can_not_be_is_an_error_with_a_sentence(path, empty, tmp_path):
    assert "must end in .png, .svg or .pdf" in run(path, "--figure", "x.gif").stderr
    assert f"--trace: {tmp_path}/none/x.json: No such file or directory" in run(path, "--trace", f"{tmp_path}/none/x.json").stderr
    for ring in configuration.load(empty).stages.iterdir():
        ring.unlink()
    assert f"no stages are recorded in {configuration.load(empty).stages}:" in run(empty).stderr
