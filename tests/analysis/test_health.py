"""The state of targets at a time: the last sample at or before it, pytokio's figures, and a sentence where there is none."""

import json

import h5py
import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

from tokiod.analysis.health import NoFullness, SeveralFileSystems, health, needed
from tokiod.cli.tokioctl import main
from tokiod.reader.part import OpenParts
from tokiod.reader.span import Span
from tokiod.tts.live.create import create
from tokiod.tts.live.live_file import LiveFile
from tokiod.tts.sealed.seal import seal
from tokiod.tts.spec import FileSpec, GroupSpec, MatrixSpec

START, STEP, DAY = 1_517_126_400, 300, 86400
"""2018-01-28T08:00Z, midnight in California."""
OSTS = ("fs-OST0000", "fs-OST0001", "fs-OST000a")
TARGETS = ("fs-MDT0000", *OSTS)
USED, TOTAL = "fullness/bytes", "fullness/bytestotal"
KIB = [50, 1000, 6001, 2000]
SIZES = [100, 10_000, 12_000, 8_000]
NAN = float("nan")
ROWS = {USED: {0: [40, 900, 900, 900], 12: KIB, 24: [NAN, 3000, 1, 1]}, TOTAL: {0: SIZES, 12: SIZES, 24: SIZES}}
AWAY = {"failover/datatargets": {0: [0, 0, 0], 11: [0, 1, 0]}, "failover/mdtargets": {11: [0]}}


def save(path, start, rows, *, step=STEP, columns=None, is_sealed=False):
    """Create a file of a day: rows of each dataset by their number; all others are missing."""
    names = {name: (columns or {}).get(name, TARGETS if "fullness" in name else OSTS if "data" in name else TARGETS[:1]) for name in rows}
    groups = {name.partition("/")[0]: GroupSpec(step, "lustre") for name in rows}
    create(path, FileSpec(start, start + DAY, groups, {name: MatrixSpec(of, counter=False) for name, of in names.items()}), created=start)
    file = LiveFile.open(path)
    for name, values in rows.items():
        for row, kibs in values.items():
            cells = np.array([kibs], float)
            file.cells[name].write_rows(row, np.where(np.isnan(cells), -0.0, cells))
    file.commit()
    file.close()
    if is_sealed:
        seal(path, path, updated=start + DAY)
    return path


def at(paths, time, filesystem=None):
    return msgspec.to_builtins(health("fs", paths, time, OpenParts(), filesystem))


@pytest.mark.parametrize("is_sealed", [False, True])
def test_the_figures_are_those_of_the_last_sample_at_or_before_the_time(tmp_path, is_sealed):
    path = save(tmp_path / "day.hdf5", START, ROWS | AWAY, is_sealed=is_sealed)
    found = at([path], START + 12 * STEP + 100)
    assert at([path], START + 12 * STEP + 100, "fs") == found
    assert found.pop("targets") == [
        {"name": name, "used_kib": used, "total_kib": size, "used_inodes": None, "total_inodes": None, "away": away}
        for name, used, size, away in zip(TARGETS, KIB, SIZES, [False, False, True, False], strict=True)
    ]
    prefix, actual = "fshealth_ost_", START + 12 * STEP
    assert found == {
        "_file_system": "fs",
        f"{prefix}requested_timestamp": actual + 100,
        f"{prefix}actual_timestamp": actual,
        f"{prefix}next_timestamp": START + 24 * STEP,
        f"{prefix}fullness_lead_secs": 100.0,
        f"{prefix}failures_lead_secs": STEP + 100.0,
        f"{prefix}count": 3,
        f"{prefix}avg_full_kib": 3000,
        f"{prefix}avg_full_pct": 100.0 * 3000 / 30_000 * 3,
        f"{prefix}least_full_kib": 1000,
        f"{prefix}least_full_pct": 10.0,
        f"{prefix}least_full_name": "OST0000",
        f"{prefix}least_full_id": 0,
        f"{prefix}most_full_kib": 6001,
        f"{prefix}most_full_pct": 100.0 * 6001 / 12_000,
        f"{prefix}most_full_name": "OST0001",
        f"{prefix}most_full_id": 1,
        **dict.fromkeys(f"{prefix}overloaded_{what}" for what in ("oss_count", "ost_count", "pct")),
        **dict.fromkeys(f"{prefix}avg_overloaded_{what}" for what in ("ost_per_oss", "overload_factor")),
        "targets_away": 1,
        "filesystem": None,
    }


def test_failovers_are_as_old_as_the_older_of_their_samples(tmp_path):
    path = save(tmp_path / "day.hdf5", START, ROWS | AWAY | {"failover/mdtargets": {9: [0]}})
    assert at([path], START + 12 * STEP + 100)["fshealth_ost_failures_lead_secs"] == 3 * STEP + 100


def test_the_row_of_the_time_itself_counts_and_a_later_one_does_not(tmp_path):
    path = save(tmp_path / "day.hdf5", START, ROWS)
    times = [START, START + 12 * STEP - 1, START + 12 * STEP, START + 24 * STEP]
    assert [at([path], time)["fshealth_ost_actual_timestamp"] for time in times] == [START, START, START + 12 * STEP, START + 24 * STEP]
    assert at([path], START + 24 * STEP)["targets"][0]["used_kib"] is None  # the MDT did not answer then
    assert at([path], START + 24 * STEP)["fshealth_ost_next_timestamp"] is None


def test_the_next_sample_is_that_within_an_hour(tmp_path):
    path = save(tmp_path / "day.hdf5", START, {name: {0: SIZES, 13: KIB} for name in (USED, TOTAL)})
    found = [at([path], START + 13 * STEP - ahead)["fshealth_ost_next_timestamp"] for ahead in (3601, 3600, 3599)]
    assert found == [None, None, START + 13 * STEP]


def test_the_day_before_counts_with_rows_that_are_differently_far_apart(tmp_path):
    before = save(tmp_path / "1.hdf5", START - DAY, {USED: {1439: KIB}, TOTAL: {1439: SIZES}}, step=60)
    paths = [before, tmp_path / "absent.hdf5", save(tmp_path / "2.hdf5", START, {USED: {3: SIZES}, TOTAL: {3: SIZES}})]
    found = at(paths, START + 600)
    assert (found["fshealth_ost_actual_timestamp"], found["fshealth_ost_next_timestamp"]) == (START - 60, START + 900)
    assert found["fshealth_ost_avg_full_kib"] == 3000


def test_units_are_those_of_the_file(tmp_path):
    """pytokio's own files hold bytes."""
    path = save(tmp_path / "day.hdf5", START, {name: {0: [1024 * kib + 5 for kib in kibs]} for name, kibs in ((USED, KIB), (TOTAL, SIZES))})
    with h5py.File(path, "r+") as file:
        for name in (USED, TOTAL):
            file[name].attrs["units"] = b"bytes"
    assert [one["used_kib"] for one in at([path], START)["targets"]] == KIB


@pytest.fixture
def several(tmp_path):
    """Three file systems in one file, of which c has not answered for more than a day; a last answered before b."""
    names = ("a-OST0006", "b-OST0006", "b-x-OST0006", "c-OST0006", "b-MDT0000")
    rows = {USED: {0: [1, 2, 3, NAN, 5], 12: [10, 20, 30, NAN, 50], 13: [NAN, 21, NAN, NAN, NAN]}, TOTAL: {12: [100, 200, 300, NAN, 500]}}
    rows |= {"failover/datatargets": {12: [0, 1, 0, 0]}, "failover/dataservers": {12: [2, 4, 2]}}
    columns = dict.fromkeys((USED, TOTAL), names) | {"failover/datatargets": names[:4], "failover/dataservers": SERVERS[:3]}
    return save(tmp_path / "several.hdf5", START, rows, columns=columns)


def test_several_file_systems_are_not_added_up(several):
    time = START + 14 * STEP
    with pytest.raises(
        SeveralFileSystems, match=r"^fs: has targets of several file systems: a, b, b-x; choose one with --filesystem$"
    ) as error:
        at([several], time)
    assert error.value.names == ["a", "b", "b-x"]
    found = [at([several], time, name) for name in error.value.names]
    assert [[one["name"] for one in each["targets"]] for each in found] == [["a-OST0006"], ["b-MDT0000", "b-OST0006"], ["b-x-OST0006"]]
    assert [(each["filesystem"], each["fshealth_ost_avg_full_kib"]) for each in found] == [("a", 10), ("b", 21), ("b-x", 30)]
    assert [each["fshealth_ost_actual_timestamp"] - START for each in found] == [12 * STEP, 13 * STEP, 12 * STEP]
    assert [each["targets_away"] for each in found] == [0, 1, 0]
    assert {each["fshealth_ost_overloaded_oss_count"] for each in found} == {None}
    assert at([several], START + STEP, "b")["fshealth_ost_next_timestamp"] == START + 12 * STEP


def test_a_file_system_without_values_is_unknown(several):
    with pytest.raises(NoFullness, match=r"^fs: no value of fullness/bytes of a target of c; known file systems: a, b, b-x$"):
        at([several], START + 14 * STEP, "c")


def test_a_file_system_that_alone_has_values_needs_no_name(tmp_path):
    names = ("a-OST0006", "c-OST0006")
    path = save(tmp_path / "two.hdf5", START, {USED: {12: [10, NAN]}, TOTAL: {12: [100, NAN]}}, columns=dict.fromkeys((USED, TOTAL), names))
    found = at([path], START + 12 * STEP)
    assert [one["name"] for one in found["targets"]] == ["a-OST0006"]
    assert at([path], START + 12 * STEP, "a") == found
    with pytest.raises(NoFullness, match=r"of a target of c; known file systems: a$"):
        at([path], START + 12 * STEP, "c")
    both = save(tmp_path / "both.hdf5", START, {USED: {12: [10, 20]}}, columns=dict.fromkeys((USED, TOTAL), names))
    assert [one["name"] for one in at([both], START + 12 * STEP, "c")["targets"]] == ["c-OST0006"]


def test_a_file_of_several_file_systems_is_shown_by_file_system(several):
    def run(*arguments):
        return CliRunner().invoke(main, ["health", str(several), *arguments])

    lines = [json.loads(line) for line in run("--json").stdout.splitlines()]
    assert [line["filesystem"] for line in lines] == ["a", "b", "b-x"]
    assert json.loads(run("--json", "--filesystem", "b").stdout) == lines[1]
    shown = run().stdout
    assert [line for line in shown.splitlines() if "file system" in line] == [
        f"several.hdf5, file system {name} at 2018-01-28 {at} UTC, {age} before the requested time"
        for name, at, age in (("a", "09:00:00", "22h59m"), ("b", "09:05:00", "22h54m"), ("b-x", "09:00:00", "22h59m"))
    ]


def test_a_state_needs_the_day_before_and_the_hour_after():
    assert [needed(time) for time in (START, 10)] == [Span(START - DAY, START + 3600), Span(0, 3610)]


def test_figures_of_failovers_are_as_old_as_the_older_of_their_samples(tmp_path):
    rows = {USED: {12: KIB}, "failover/datatargets": {3: [0, 1, 0]}, "failover/mdtargets": {11: [0]}}
    assert at([save(tmp_path / "day.hdf5", START, rows)], START + 12 * STEP)["fshealth_ost_failures_lead_secs"] == 9 * STEP


SERVERS = tuple(f"10.0.0.{i}@tcp" for i in range(1, 6))


@pytest.mark.parametrize(
    ("served", "expected"),
    [
        ([2, 2, 2, 2, 2], (0, 0, 0.0, 1.0, 0.0)),
        ([2, 4, 0, 2, 2], (1, 4, 4.0, 2.0, 400 / 3)),
        ([1, 3, 4, 1, 1], (2, 7, 3.5, 3.5, 700 / 3)),
    ],
)
def test_a_server_with_more_osts_than_most_have_is_overloaded(tmp_path, served, expected):
    rows = {USED: {0: KIB}, TOTAL: {0: SIZES}, "failover/dataservers": {0: served}}
    path = save(tmp_path / "day.hdf5", START, rows, columns={"failover/dataservers": SERVERS})
    found = at([path], START)
    keys = (
        "overloaded_oss_count",
        "overloaded_ost_count",
        "avg_overloaded_ost_per_oss",
        "avg_overloaded_overload_factor",
        "overloaded_pct",
    )
    assert tuple(found[f"fshealth_ost_{key}"] for key in keys) == expected


def test_without_a_sample_the_sentence_names_what_there_is(tmp_path):
    empty = save(tmp_path / "empty.hdf5", START, {USED: {}})
    other = save(tmp_path / "other.hdf5", START, {"dataservers/cpuload": {0: [1, 2, 3]}})
    for paths, sentence in (
        ([tmp_path / "none.hdf5"], "fs: no file has rows of the day before 2018-01-28T08:00:00Z; first missing file: "),
        ([other], "fs: no fullness/bytes is stored in the day before 2018-01-28T08:00:00Z, only dataservers/cpuload; sources of kind"),
        ([empty], "fs: no value of fullness/bytes in the day before 2018-01-28T08:00:00Z; "),
    ):
        with pytest.raises(NoFullness, match="^" + sentence):
            at(paths, START)
    day = save(tmp_path / "day.hdf5", START, {USED: {0: KIB}})
    assert at([day], START + DAY)["fshealth_ost_fullness_lead_secs"] == DAY
    with pytest.raises(NoFullness):  # more than a day old
        at([day], START + DAY + 1)


CONFIG = """\
timezone = "America/Los_Angeles"
[archive]
path = "{directory}/%Y-%m-%d/{{system}}.hdf5"
[site]
names = {{ fs = "Cori scratch" }}
"""


@pytest.fixture
def tokioctl(tmp_path):
    (tmp_path / "2018-01-28").mkdir()
    (tmp_path / "tokiod.toml").write_text(CONFIG.format(directory=tmp_path))
    save(tmp_path / "2018-01-28" / "fs.hdf5", START, ROWS | AWAY)

    def run(*arguments, now=START + 2 * 3600 + 30):
        options = ["--config", str(tmp_path / "tokiod.toml"), "--clock", f"{now}@0x0"]
        return CliRunner().invoke(main, ["health", *arguments, *options])

    return run


@pytest.mark.parametrize(
    ("arguments", "row", "requested"),
    [
        (["fs"], 24, START + 7230),
        (["fs", "--time", "2018-01-28T01:00:00"], 12, START + 3600),
        (["fs", "--time", "2018-01-28T09:00:00", "--timezone", "UTC"], 12, START + 3600),
        (["fs", "--time", "1h30m"], None, None),
        (["fs", "--time", "2h"], 0, START + 30),
        (["fs:2018-01-28"], 24, START + 7230),
    ],
)
def test_the_time_of_a_system_is_now_unless_another_one_is_given(tokioctl, arguments, row, requested):
    done = tokioctl(*arguments, "--json")
    if row is None:
        assert (done.exit_code, "'1h30m' is not a time" in done.stderr) == (2, True), done.output
        return
    found = json.loads(done.stdout)
    assert (found["fshealth_ost_actual_timestamp"], found["fshealth_ost_requested_timestamp"]) == (START + row * STEP, requested)


def test_a_file_needs_no_configuration_and_its_last_sample_counts(tokioctl, tmp_path):
    (tmp_path / "tokiod.toml").unlink()
    done = tokioctl(str(tmp_path / "2018-01-28" / "fs.hdf5"), "--json", now=START + 30 * DAY)
    found = json.loads(done.stdout)
    assert (found["_file_system"], found["fshealth_ost_actual_timestamp"]) == ("fs", START + 24 * STEP)


def test_a_table_lists_the_targets_as_lfs_df_does(tokioctl):
    done = tokioctl("fs", "--time", "2018-01-28T01:00:30")
    assert (
        [line.rstrip() for line in done.stdout.splitlines()]
        == """\
Cori scratch at 2018-01-28 01:00:00 PST, 30s before the requested time
target          size      used     use  inodes  inode use  server
fs-MDT0000   100 KiB    50 KiB  50.0 %       -          -  home
fs-OST0000  9.77 MiB  1000 KiB  10.0 %       -          -  home
fs-OST0001  11.7 MiB  5.86 MiB  50.0 %       -          -  away
fs-OST000a  7.81 MiB  1.95 MiB  25.0 %       -          -  home
all OSTs    29.3 MiB  8.79 MiB  30.0 %       -          -  -
OSTs: 3, most full OST0001 (50.0 %), least full OST0000 (10.0 %)
targets away from their home server: 1
""".splitlines()
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["gs"], "gs is not a file, and 'gs' is an unknown system; known: fs"),
        (["fs:2018-01-28", "--time", "1h"], "fs:2018-01-28 and --time both name a time; write fs --time 2018-01-28T12:00:00"),
        (["fs", "--time", "2017-01-01"], "fs: no file has rows of the day before 2017-01-01T08:00:00Z; first missing file: "),
        (["absent.hdf5"], "absent.hdf5 does not exist"),
    ],
)
def test_errors_are_sentences(tokioctl, arguments, sentence):
    done = tokioctl(*arguments)
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1), done.output
    assert sentence in done.stderr
