"""docs/pytokio.md: each line on the right runs as printed and returns what was stored; every tool and module of pytokio has a line."""

import json
import re
import shlex
import sys
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner

import tokiod
from tokiod.cli.tokioctl import main
from tokiod.tts.live.create import create
from tokiod.tts.live.live_file import LiveFile
from tokiod.tts.spec import FileSpec, GroupSpec, MatrixSpec

DATA = Path(__file__).parents[1] / "data"
PAGE = (Path(__file__).parents[2] / "docs" / "pytokio.md").read_text("utf-8")
EXAMPLES, EVERY = PAGE.split("## Every tool and module")
LINES = re.findall(r"^\| .* \| `([^`]+)` \|$", EXAMPLES, re.MULTILINE)
COMMANDS = [line for line in LINES if line.startswith("tokioctl ")]
CALLS = [line for line in LINES if not line.startswith("tokioctl ")]
START, STEP, ROWS, HOUR = 1_517_097_600, 60, 1440, 3600
"""2018-01-28T00:00Z."""
OSTS = ("OST0000", "OST0001", "OST0002")
READ = "datatargets/readbytes"
SACCT = """
FIELDS = {"JobID": "4478544", "JobIDRaw": "4478544", "JobName": "vasp", "User": "ann", "State": "COMPLETED", "Start": "%d", "End": "%d",
          "NNodes": "128", "NodeList": "nid[001-128]", "WorkDir": "/global/cscratch1/ann", "ElapsedRaw": "3600"}
print(*("\\x1f".join(one) for one in (FIELDS, FIELDS.values())), sep="\\n")
"""


@pytest.fixture
def cells(tmp_path, monkeypatch):
    """The cells of a day of cscratch; the directory has all that the page names."""
    monkeypatch.chdir(tmp_path)
    cells = np.random.default_rng(3).integers(1, 1000, (ROWS, len(OSTS))).astype(float)
    cells[5, 1] = np.nan
    matrix = MatrixSpec(OSTS, counter=False)
    path = tmp_path / "cscratch-2018-01-28.hdf5"
    names = (READ, "datatargets/writebytes", "fullness/bytes")
    groups = dict.fromkeys(("datatargets", "fullness"), GroupSpec(STEP, "lmt"))
    create(path, FileSpec(START, START + 86400, groups, dict.fromkeys(names, matrix)), created=START)
    file = LiveFile.open(path)
    for name in names:
        file.cells[name].write_rows(0, np.where(np.isnan(cells), -0.0, cells))
    file.commit()
    file.close()
    (tmp_path / "day.hdf5").symlink_to(path)
    (tmp_path / "jobs.csv").write_text(f"jobid,start,end,system\n4478544,{START + HOUR},{START + 2 * HOUR},cscratch\n")
    runs = "".join(f"{n},{START + n * HOUR},{START + (n + 1) * HOUR},cscratch\n" for n in (3, 1))
    (tmp_path / "runs.csv").write_text(f"jobid,start,end,system\n{runs}")
    for name in ("ior", "vpicio"):
        (tmp_path / f"{name}.darshan").symlink_to(DATA / f"{name}.darshan")
    rates = {str(START + 30 * i): i + 1 for i in range(60)}
    (tmp_path / "rates.json").write_text(json.dumps({"sunn": {"xe-0": {"in": rates, "out": rates}}}))
    (tmp_path / "sacct.py").write_text(SACCT % (START + HOUR, START + 2 * HOUR))
    (tmp_path / "tokiod.toml").write_text(f"""\
timezone = "UTC"
[archive]
path = "{tmp_path}/{{system}}-%Y-%m-%d.hdf5"
[site]
sacct = ["{sys.executable}", "{tmp_path}/sacct.py"]
mounts = {{ "/global/cscratch1" = "cscratch" }}
""")
    monkeypatch.setenv("TOKIOD_CONFIG", str(tmp_path / "tokiod.toml"))
    return cells


TABLED = re.findall(r"^\| ((?:`[\w.]+`(?:, )?)+) \| (.+) \|$", EVERY, re.MULTILINE)
INSTEAD = {name: instead for names, instead in TABLED for name in re.findall("`([^`]+)`", names)}
TOOLS = """archive_collectdes archive_esnet_snmp archive_lmtdb archive_mmperfmon cache_collectdes cache_darshan cache_esnet_snmp cache_isdct
cache_lfsstatus cache_lmtdb cache_mmperfmon cache_nersc_globuslogs cache_nersc_jobsdb cache_slurm cache_topology compare_isdct
darshan_bad_ost darshan_scoreboard find_darshanlogs index_darshanlogs summarize_h5lmt summarize_job summarize_tts"""
MODULES = {
    "analysis": "umami",
    "connectors": "_hdf5 cachingdb collectd_es common craysdb darshan es esnet_snmp globuslogs hdf5 hpss lfshealth lmtdb mmperfmon"
    " nersc_globuslogs nersc_isdct nersc_jobsdb nersc_lfsstate slurm",
    "tools": "common darshan hdf5 jobinfo lfsstatus topology",
}
"""What pytokio 0.13.0 has."""
INSTALLED = Path(__file__).parents[2] / ".venv-pytokio" / "lib" / "python3.11" / "site-packages" / "tokio"


def test_each_tool_and_module_of_pytokio_has_a_line():
    modules = [f"tokio.{package}.{name}" for package, names in MODULES.items() for name in names.split()]
    assert sorted(INSTEAD) == sorted([*TOOLS.split(), *modules])


@pytest.mark.skipif(not INSTALLED.exists(), reason="make .venv-pytokio installs pytokio")
@pytest.mark.parametrize(("package", "names"), [("cli", TOOLS), *MODULES.items()])
def test_pytokio_has_no_other_tools_and_modules(package, names):
    found = {path.stem for path in (INSTALLED / package).glob("*.py")} - {"__init__"}
    assert found == set(names.split())


@pytest.mark.parametrize("name", INSTEAD)
def test_what_to_use_instead_exists(name):
    instead = INSTEAD[name]
    for line in re.findall("`tokioctl ([^`]+)`", instead):
        words, command = line.split(), main
        while words and isinstance(command, click.Group):
            command = command.get_command(click.Context(command), words.pop(0))
            assert command is not None, line
        options = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= options
    for page in re.findall(r"\]\(([^)]+)\)", instead):
        assert (Path(__file__).parents[2] / "docs" / page).exists()
    assert "tokio" in instead or "nothing" in instead or "[source]" in instead


def printed(command):
    _, *arguments = shlex.split(command)
    done = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_page_has_lines():
    assert (len(COMMANDS), len(CALLS)) == (12, 9)


@pytest.mark.parametrize("command", [line for line in COMMANDS if " summarize " in line])
def test_a_summary_holds_the_bytes_of_the_day(cells, command):
    found = json.loads(printed(command))
    assert (found["total"]["read_bytes"], found["total"]["missing_pts"]) == (np.nansum(cells), 1)
    options = {name for name in ("bins", "columns", "timesteps") if f"--{name}" in command}
    assert options <= found.keys()


@pytest.mark.parametrize("command", [line for line in COMMANDS if " badost " in line or "--darshan" in line])
def test_a_darshan_log_is_read(cells, command, tmp_path):
    pytest.importorskip("darshan")
    if "badost" in command:
        assert [one["ost_name"] for one in json.loads(printed(command))][:1] == ["OST#22"]
        return
    (tmp_path / "cscratch-2017-03-20.hdf5").symlink_to(tmp_path / "day.hdf5")
    done = CliRunner().invoke(main, shlex.split(command)[1:])
    found = json.loads(done.stdout)
    assert (done.exit_code, found["_datetime_start"], found["darshan_tot_opens_posix"]) == (1, 1490000867, 2049)
    assert found["reason"].startswith("no data in [2017-03-20T")  # the day of this page is another one
    assert cells.size


@pytest.mark.parametrize("command", [line for line in COMMANDS if " job " in line and "--darshan" not in line])
def test_a_job_holds_the_bytes_of_its_hour(cells, command):
    assert json.loads(printed(command))["fs_tot_bytes_read"] == cells[60:120].sum()


@pytest.mark.parametrize("command", [line for line in COMMANDS if " umami " in line])
def test_an_umami_has_the_metrics_of_each_job(cells, command):
    found = json.loads(printed(command))
    assert {time: one["fs_tot_gibs_read"] * 2**30 for time, one in found.items()} == {
        str(START + n * HOUR): cells[60 * n : 60 * n + 60].sum() for n in (1, 3)
    }


@pytest.mark.parametrize("command", [line for line in COMMANDS if " health " in line])
def test_a_state_is_that_of_the_last_sample(cells, command):
    assert [one["used_kib"] for one in json.loads(printed(command))["targets"]] == cells[-1].tolist()


@pytest.mark.parametrize("command", [line for line in COMMANDS if " archive " in line])
@pytest.mark.usefixtures("cells")
def test_saved_responses_become_a_file(command, tmp_path):
    printed(command)
    with tokiod.open("net", START, START + 1800, path=tmp_path / "net.hdf5") as archive:
        assert all(np.isfinite(archive.array(name)[...]).any() for name in archive.datasets() if not name.endswith("/missing"))
        assert archive.datasets()


@pytest.mark.parametrize("line", CALLS)
def test_a_call_returns_the_cells(cells, line, tmp_path):
    if ".frame(" in line or ".frame()" in line:
        pytest.importorskip("pandas")
    (block,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    names = {"tokiod": tokiod}
    exec(block, names)
    found = eval(line, names)
    expected = {
        "archive.columns": OSTS,
        ".step": STEP,
        ".missing(": np.isnan(cells),
        "readrates": cells / STEP,
        "T01:00Z": cells[60:120],
        '"1h", "sum"': np.nansum(cells.reshape(24, 60, -1), axis=1),
        "archive.frame": cells,
        "[...]": cells,
    }
    if "archive.paths" in line:
        assert [path.resolve() for path in found] == [tmp_path / "cscratch-2018-01-28.hdf5"]
        return
    answer = next(value for mark, value in expected.items() if mark in line)
    np.testing.assert_array_equal(np.asarray(found), np.asarray(answer))
