"""What holds for all commands: flags mean the same, exits are told, and what goes into a pipe holds no escape sequence."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import lmt_database
import msgspec
import numpy as np
import pytest
from click.testing import CliRunner
from job_days import JobDays, polled

from docs.generate.cli import commands
from docs.generate.json_schemas import PRINTED
from tokiod.archive.layout import FileSlot
from tokiod.cli.common.examples import HEADING
from tokiod.cli.tokioctl import main as tokioctl
from tokiod.cli.tokiod import main as tokiod
from tokiod.ledger.jobs import JobRequest
from tokiod.ledger.ledger import Ledger, StoredEntry
from tokiod.metrics import stages
from tokiod.tts.live.create import create
from tokiod.tts.live.live_file import LiveFile
from tokiod.tts.spec import FileSpec, GroupSpec, MatrixSpec
from tokiod.window import Window
from tokiod.window_data import WindowMeta, job_key

START = lmt_database.START
CONFIG = """\
timezone = "America/Los_Angeles"
[archive]
path = "{directory}/tts/%Y-%m-%d/{{system}}.hdf5"
[bus]
endpoint = "ipc://{directory}/bus"
[feed]
endpoint = "ipc://{directory}/feed"
[[source]]
name = "one"
kind = "lmt"
system = "fs"
url = "sqlite://{directory}/lmt.sqlite3"
retention = "1d"
[[sink]]
name = "files"
kind = "parquet"
path = "{directory}/parquet"
"""
LEAVES = {name: command for name, command, _ in commands() if not hasattr(command, "commands") and name != "tokioctl archive"}
DAY = "2018-01-28"
LOG = Path(__file__).parents[1] / "data" / "ior.darshan"
CALLS = {
    "tokiod agent": ["--once"],
    "tokiod check": [],
    "tokiod keygen": ["{directory}", "mine"],
    "tokioctl archive lmt": ["{directory}/lmt.sqlite3", "--output", "{directory}/x.hdf5", "--start", DAY, "--end", f"{DAY}T00:05:00"],
    "tokioctl backfill": ["--list"],
    "tokioctl badost": [str(LOG)],
    "tokioctl completion": ["bash"],
    "tokioctl export": [f"fs:{DAY}", "datatargets/readbytes"],
    "tokioctl fetch": ["one", f"{DAY}T00:00:00", f"{DAY}T00:02:00", "--output", "{directory}/raw"],
    "tokioctl gaps": [],
    "tokioctl health": ["{directory}/full.hdf5"],
    "tokioctl job": ["--system", "fs", "--start", f"{DAY}T00:00:00", "--end", f"{DAY}T00:01:00"],
    "tokioctl ls": ["fs"],
    "tokioctl nodes": [],
    "tokioctl once": ["one"],
    "tokioctl ping": [],
    "tokioctl plot": [f"fs:{DAY}", "datatargets/readbytes"],
    "tokioctl reload": [],
    "tokioctl report": ["--output", "{directory}/report.tar.gz"],
    "tokioctl seal": [DAY],
    "tokioctl sinks": [],
    "tokioctl stages": [],
    "tokioctl status": [],
    "tokioctl summarize": [f"fs:{DAY}"],
    "tokioctl top": ["fs"],
    "tokioctl umami": ["--csv", "{directory}/jobs.csv"],
    "tokioctl verify": ["one", f"{DAY}T00:00:00", f"{DAY}T00:02:00"],
}  # fmt: skip
ENDLESS = {
    "tokiod run",
    "tokiod writer",
    "tokiod collectors",
    "tokiod feed",
    "tokiod hub",
    "tokiod relay",
    "tokiod web",
    "tokiod sink",
    "tokiod demo",
    "tokioctl tail",
}
"""These have tests of their own under tests/system."""


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "tokiod.toml").write_text(CONFIG.format(directory=tmp_path))
    lmt_database.save(tmp_path / "lmt.sqlite3", lmt_database.tables(121))
    place = tmp_path / "tts" / ".tokiod" / "ledger.sqlite3"
    place.parent.mkdir(parents=True)
    with Ledger.open(place) as ledger:
        ledger.store([StoredEntry(WindowMeta("one", "lmt", "fs", Window(START, START + 60)), 600)], START + 600)
        ledger.jobs.add(JobRequest("one", Window(START + 60, START + 180), ("dataservers/cpuload",)), START + 600)
    (tmp_path / "tts" / DAY).mkdir()
    spec = FileSpec(
        START, START + 86400, {"datatargets": GroupSpec(5, "lmt")}, {"datatargets/readbytes": MatrixSpec(("OST0000",), counter=True)}
    )
    create(tmp_path / "tts" / DAY / "fs.hdf5", spec, created=START)
    with stages.recording(tmp_path / "feed.stages", tmp_path, "writer"):
        stages.Rewriting("made", FileSlot("fs", tmp_path / "fs.hdf5", START, START + 86400)).end()
    row = polled(START + 5, b"fs-OST0000", job_key("7", "1000"), START, {"write_bytes.sum": 600})
    JobDays(tmp_path / "tts" / "jobs", zone="America/Los_Angeles").store(row)
    (tmp_path / "jobs.csv").write_text(f"jobid,start,end,system\n7,{START},{START + 60},fs\n")
    fullness = {name: MatrixSpec(("fs-OST0000",), counter=False) for name in ("fullness/bytes", "fullness/bytestotal")}
    create(tmp_path / "full.hdf5", FileSpec(START, START + 86400, {"fullness": GroupSpec(300, "lustre")}, fullness), created=START)
    file = LiveFile.open(tmp_path / "full.hdf5")
    for name in fullness:
        file.cells[name].write_rows(0, np.ones((1, 1)))
    file.commit()
    file.close()
    return tmp_path


def run(directory, name, *options):
    program, *words = name.split()
    command = LEAVES[name]
    given = [word.format(directory=directory) for word in CALLS[name]] + list(options)
    known = {option for param in command.params for option in param.opts}
    given += (
        ["--config", str(directory / "tokiod.toml")]
        if "--config" in known and name != "tokiod agent"  # whose configuration is a node's
        else ["--timezone", "America/Los_Angeles"] * ("--timezone" in known)
    )
    given += ["--clock", f"{START + 2 * 86400}@0x0"] if "--clock" in known and name != "tokioctl once" else []
    given += ["--clock", f"{START + 400}@0x0"] if name == "tokioctl once" else []
    return CliRunner().invoke(tokioctl if program == "tokioctl" else tokiod, [*words, *given], color=True)


def test_no_command_is_forgotten_here():
    kinds = {name for name in LEAVES if name.startswith("tokioctl archive ")}
    assert set(LEAVES) == set(CALLS) | ENDLESS | kinds


@pytest.mark.parametrize("name", CALLS)
def test_what_goes_into_a_pipe_holds_no_escape_sequence_and_no_bar(directory, name):
    done = run(directory, name)
    assert done.exit_code in {0, 1, 2}, done.output
    assert done.exception is None or isinstance(done.exception, SystemExit), done.output
    assert re.findall(r"[\x00-\x08\x0b-\x1f\x7f]", done.stdout + done.stderr) == []
    assert done.stdout or name in {"tokioctl nodes", "tokioctl ping", "tokioctl reload"}, done.stderr


@pytest.mark.parametrize("name", [name for name in CALLS if any("--json" in param.opts for param in LEAVES[name].params)])
def test_json_is_one_line_of_json(directory, name):
    done = run(directory, name, "--json")
    if name in {"tokioctl nodes", "tokioctl ping", "tokioctl reload"}:  # nobody answers here
        return
    assert done.stdout.count("\n") == 1, done.output
    told = json.loads(done.stdout)
    assert msgspec.to_builtins(msgspec.convert(told, PRINTED[name.split()[1]])) == told


PLOT = ["plot", f"fs:{DAY}", "datatargets/readbytes"]


@pytest.mark.parametrize("arguments", [["gaps"], ["gaps", "--json"], ["status"], ["status", "--json"], ["completion", "bash"], PLOT])
def test_a_full_disk_behind_stdout_is_a_sentence_and_a_reader_who_went_away_is_none(directory, arguments):
    line = [sys.executable, "-m", "tokiod.cli.tokioctl", *arguments]
    env = {**os.environ, "TOKIOD_CONFIG": str(directory / "tokiod.toml")}
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=300, env=env)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert done.stderr.endswith(": cannot write to stdout: No space left on device\n")
    ours, theirs = os.pipe()
    os.close(ours)
    with open(theirs, "wb") as gone:  # noqa: PTH123 - a descriptor
        done = subprocess.run(line, stdout=gone, stderr=subprocess.PIPE, text=True, check=False, timeout=300, env=env)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_command_that_prints_json_has_a_schema():
    printing = {name.split()[1] for name, command in LEAVES.items() if any("--json" in param.opts for param in command.params)}
    assert printing == set(PRINTED)


@pytest.mark.parametrize("name", LEAVES)
def test_the_list_of_commands_shows_a_whole_sentence_in_80_columns(name):
    short = LEAVES[name].get_short_help_str(80 - 2 - 6 - len("completion"))
    assert short.endswith("."), short
    assert not short.endswith("..."), short


@pytest.mark.parametrize(("name", "command", "context"), list(commands()), ids=lambda one: one if isinstance(one, str) else "")
def test_the_help_of_each_command_has_examples_that_it_accepts(name, command, context):
    shown = command.get_help(context).partition(f"{HEADING}\n")[2]
    lines = [line.strip() for line in shown.splitlines() if line.strip()]
    assert lines, "add epilog=examples(...) to the command"
    programs = {"tokiod": tokiod, "tokioctl": tokioctl}
    for line in lines:
        program, *words = shlex.split(line.partition(" > ")[0])
        group = programs[program]
        if not hasattr(command, "commands"):
            assert line.startswith(name)
        while isinstance(group, click.Group) and words:
            _, found, words = group.resolve_command(click.Context(group), words)
            group = found
        if words != ["--help"]:
            group.make_parser(click.Context(group)).parse_args(list(words))


@pytest.mark.parametrize("name", LEAVES)
def test_options_come_in_the_same_order_what_a_command_has_alone_then_json_then_the_configuration(name):
    shown = [param.opts[0] for param in LEAVES[name].params if isinstance(param, click.Option) and not param.hidden]
    shared = [option for option in shown if option in {"--json", "--config"}]
    if not name.startswith("tokioctl archive ") and not name.startswith("tokiod "):
        assert shown[len(shown) - len(shared) :] == shared == sorted(shared, reverse=True)


@pytest.mark.parametrize("name", LEAVES)
def test_flags_that_several_commands_have_mean_the_same_and_its_help_tells_its_exits(name):
    command = LEAVES[name]
    flags = {option: param for param in command.params for option in param.opts}
    assert re.search(r"Exit \d", command.help), name
    if name.startswith("tokioctl archive ") or name in {
        "tokiod agent",
        "tokioctl badost",
        "tokioctl completion",
        "tokiod demo",
        "tokiod keygen",
    }:
        return
    assert flags["--config"].envvar == "TOKIOD_CONFIG"
    assert flags["--config"].name == "config_path"
    if "--json" in flags:
        assert flags["--json"].is_flag or flags["--json"].flag_value == "-"  # export: a file, if one is named
        assert "JSON" in flags["--json"].help
    if "--clock" in flags:
        assert flags["--clock"].hidden


@pytest.mark.parametrize(
    ("group", "given", "meant"), [(tokioctl, "statsu", "status"), (tokioctl, "backfil", "backfill"), (tokiod, "chek", "check")]
)
def test_an_unknown_command_suggests_the_most_similar_one(group, given, meant):
    done = CliRunner().invoke(group, [given])
    assert (done.exit_code, f"No such command '{given}', did you mean {meant}?" in done.output) == (2, True), done.output
