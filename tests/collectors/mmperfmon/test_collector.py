"""A command that is a real process and prints a small site; the contract, and what becomes of its failures."""

import stat

import mmperfmon_site as small
import pytest

from collectors.mmperfmon import Config, Saved, live, saved
from tokiod.clock import SystemClock
from tokiod.collector import Site
from tokiod.errors import Fatal, Transient
from tokiod.testing.collector_contract import CollectorContract, collected, samples, within
from tokiod.window import Calendar, Window

SITE = Site(Calendar("UTC"), SystemClock())
WINDOW = Window(small.START, small.START + 600)
MAPS = {"lun_map": small.LUN_MAP, "server_map": small.SERVER_MAP}
QUERIES = ("usage", "disks")


def command(directory, name, body):
    path = directory / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return (str(path),)


def section(run, **fields):
    return Config(name="gpfs", kind="mmperfmon", system="project", command=run, **({"queries": ("usage",)} | fields))


def opened(run, **fields):
    return live(section(run, **fields), SITE)


def repeated(text, row):
    """The same output with a row of each table twice, if there is such a row, and the following ones renumbered."""
    lines = []
    for line in text.decode().splitlines(keepends=True):
        number = line[:3].strip()
        is_row = number.isdigit() and line[3:4] == " "
        lines.append(f"{int(number) + (int(number) > row):3}{line[3:]}" if is_row else line)
        if is_row and int(number) == row:
            lines.append(f"{row + 1:3}{line[3:]}")
    return "".join(lines).encode()


@pytest.fixture
def printing(tmp_path):
    """A command that prints the small site from ten minutes before the window to ten after it, whatever times it is asked for."""
    for query, text in zip(QUERIES, small.texts(WINDOW.start - 600, 30), strict=True):
        (tmp_path / query).write_bytes(text)
    return command(tmp_path, "printing", f'cat "{tmp_path}/$1"')


class TestMmperfmon(CollectorContract):
    turns = 24

    @pytest.fixture
    def window(self):
        return WINDOW

    @pytest.fixture
    def datasets(self):
        return small.DATASETS

    @pytest.fixture
    def nothing(self):
        return Window(WINDOW.start - 1200, WINDOW.start - 600)

    @pytest.fixture
    def collector(self, tmp_path):
        # The window before the one of the contract must be without samples, the command without the collector's help.
        for query, text in zip(QUERIES, small.texts(WINDOW.start, 10), strict=True):
            (tmp_path / query).write_bytes(text)
        run = command(tmp_path, "printing", f'cat "{tmp_path}/$1"')
        return lambda: opened(run, queries=QUERIES, **MAPS)

    @pytest.fixture
    def saved(self, tmp_path):
        directory = tmp_path / "outputs"
        directory.mkdir()
        for number, text in enumerate(small.texts(WINDOW.start, 10)):
            (directory / str(number)).write_bytes(text)
        return lambda: saved([directory], Saved(**MAPS), SITE)


class TestMmperfmonThatRepeatsItself(TestMmperfmon):
    """Now and then a row stands there twice, a different one in each run."""

    @pytest.fixture
    def collector(self, tmp_path):
        for query, text in zip(QUERIES, small.texts(WINDOW.start, 10), strict=True):
            for turn, row in enumerate((4, 1, 11, 10, 7)):
                (tmp_path / f"{query}{turn}").write_bytes(repeated(text, row))
        (tmp_path / "turn").write_text("0\n")
        run = command(tmp_path, "printing", f'cd "{tmp_path}"; read n < turn; n=${{n:-0}}; echo $(((n + 1) % 5)) > turn; exec cat "$1$n"')
        return lambda: opened(run, queries=QUERIES, **MAPS)


def test_what_lies_outside_the_window_is_left_out(printing):
    found = within(opened(printing, queries=QUERIES, **MAPS), lambda c: samples(c, WINDOW))
    times = {time for cells in found.values() for time, _, _ in cells}
    assert (min(times), max(times)) == (WINDOW.start, WINDOW.end - 60)


def test_the_command_is_given_the_window_in_utc_and_an_environment_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("TZ", "America/Los_Angeles")
    run = command(tmp_path, "recording", f'echo "$@" "$TZ" "$LC_ALL" "$COLUMNS" > "{tmp_path}/called"')
    within(opened(run, arguments=("-N", "all nodes")), lambda c: collected(c, WINDOW))
    assert (tmp_path / "called").read_text() == "usage 2019-05-15-07:00:00 2019-05-15-07:11:00 -b 60 -N all nodes UTC C 30000\n"


def test_a_prefix_runs_it_elsewhere_with_the_same_environment(tmp_path):
    prefix = command(tmp_path, "ssh", f'shift; echo "$@" > "{tmp_path}/called"')
    within(opened(("mmperfmon", "query"), prefix=(*prefix, "nsd1")), lambda c: collected(c, WINDOW))
    wanted = "env LC_ALL=C TZ=UTC COLUMNS=30000 mmperfmon query usage 2019-05-15-07:00:00 2019-05-15-07:11:00 -b 60\n"
    assert (tmp_path / "called").read_text() == wanted


@pytest.mark.parametrize(
    ("body", "error", "sentence"),
    [
        ("echo connection refused >&2; exit 1", Transient, "query usage: exit code 1: connection refused"),
        ("echo Unknown metric cpu_usr >&2; exit 1", Fatal, "Unknown metric cpu_usr"),
        ("echo Permission denied >&2; exit 255", Transient, "exit code 255"),
        ("echo env: mmperfmon: not found >&2; exit 127", Fatal, "exit code 127"),
        ("kill -9 $$", Transient, "exit code -9"),
        ("echo welcome", Transient, "no table, it begins with 'welcome'"),
        ("printf '\\nLegend:\\n 1:\\tnsd1|CPU|cpu_user\\n'", Transient, "the output is incomplete: no table for a column"),
        (
            "printf '\\nLegend:\\n 1:\\tnsd1|CPU|cpu_user\\n\\nRow Timestamp cpu_user cpu_sys\\n1 2019-05-15-07:01:00      1.5     2.5\\n'",
            Transient,
            "the output is incomplete: no such column in the legend",
        ),
        ("sleep 60", Transient, "has not ended"),
    ],
)
def test_a_failed_run_has_its_class_and_reason(tmp_path, body, error, sentence):
    run = command(tmp_path, "failing", body)
    with pytest.raises(error, match=sentence):
        within(opened(run, run_timeout=1), lambda c: collected(c, WINDOW))


def test_a_program_that_is_not_there_waits_for_a_person():
    with pytest.raises(Fatal, match="No such file"):
        within(opened(("/nowhere/mmperfmon",)), lambda c: collected(c, WINDOW))


@pytest.mark.parametrize("body", ["true", "echo Error: No data available for query: 3169. >&2; exit 1"])
def test_no_data_is_an_answer(tmp_path, body):
    assert within(opened(command(tmp_path, "empty", body)), lambda c: collected(c, WINDOW)) == []


def test_a_count_is_how_many_records_a_window_has(printing):
    async def both(c):
        data = await c.collect(WINDOW)
        assert data.batches
        return data.records, await c.count(WINDOW)

    records, count = within(opened(printing, queries=QUERIES, **MAPS), both)
    assert records == count > 0


def test_a_section_lists_its_datasets_and_can_be_limited():
    config = section(("mmperfmon",), queries=("cpu_user,cpu_sys", "gpfs_nsdds_bytes_read"), lun_map=("a=mdtarget",))
    assert config.datasets() == {"dataservers/cpuuser", "dataservers/cpusys", "dataservers/cpuload", "mdtargets/readbytes"}
    waits = section(("mmperfmon",), queries=("gpfsNSDWaits", "cpu_idle"))
    assert waits.datasets() == {"dataservers/cpuidle"} | {
        f"datatargets/{way}{of}waits" for way in ("read", "write") for of in ("", "queue")
    }
    assert config.only(frozenset({"mdtargets/readbytes"})).queries == ("gpfs_nsdds_bytes_read",)
    assert section(("mmperfmon",), queries=QUERIES, **MAPS).datasets() == small.DATASETS


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"command": ()}, "command"),
        ({"queries": ()}, "queries"),
        ({"queries": ("-h",)}, "queries"),
        ({"bucket": 0}, "bucket"),
        ({"settle": 60}, "settle"),
        ({"run_timeout": 61}, "timeout"),
        ({"lun_map": ("x",)}, "lun_map"),
        ({"server_map": ("(=mdserver",)}, "server_map"),
    ],
)
def test_a_fault_names_its_field(fields, field):
    config = section(**({"run": ("mmperfmon",)} | {"run" if name == "command" else name: value for name, value in fields.items()}))
    assert [fault.partition(":")[0] for fault in config.faults()] == [field]
