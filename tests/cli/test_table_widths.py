"""Every table of every command in terminals of 60, 80 and 120 columns, with long names."""

import io
import re
from pathlib import Path
from zoneinfo import ZoneInfo

import msgspec
import pytest
from rich.console import Console, Group

from tokiod.analysis.bad_ost import Correlation
from tokiod.analysis.health import Target
from tokiod.analysis.top import Top, TopLine, TopTarget
from tokiod.analysis.umami import Umami, UmamiMetric
from tokiod.cli.commands import (
    backfill_view,
    badost,
    gaps,
    health,
    job,
    ls,
    once,
    sinks_view,
    stages,
    status_view,
    summarize,
    top_view,
    umami,
)
from tokiod.cli.common.tables import fitted
from tokiod.ledger.jobs import Job
from tokiod.published.sinks import SinkState
from tokiod.reader.part import DatasetEntry
from tokiod.reports.gaps import Gap
from tokiod.reports.one_window import Filled, Once
from tokiod.reports.stages import StageRow
from tokiod.reports.status import FileLine, Gaps, SourceLine, Status, Today

NOON = 1_517_227_200
SOURCE = "cscratch-lmt-of-the-second-hall-7"
DATASET = "datatargets/readbytes_of_all_targets"
REASON = "no answer within 30 s from es-07.monitoring.example.org, port 9200 " * 3
FIGURES = (NOON, 90061, NOON, NOON + 60, NOON, 12345, 10**9, 98765.4, Gaps(7, 86461, 3600, 7200), REASON, 9, {"malformed line": 12345}, 3)
SOURCES = [
    SourceLine(SOURCE, "lmt", "cscratch", *state, REASON, *FIGURES, Today(3600, 43200, 86400))
    for state in (("running", ""), ("waiting", "waiting"))
]
STATUS = Status(NOON, "/var/lib/tokiod/tts", None, "down", SOURCES, [FileLine(f"/var/lib/tokiod/tts/2018-01-29/{SOURCE}.hdf5", "fs", 0.5)])
GAP = Gap(SOURCE, NOON, NOON + 86400, "failed", REASON, "Transient", 12, NOON, NOON + 90, ["OST0000", "OST0001"] * 9, 123456)
ENTRY = DatasetEntry(DATASET, "bytes/s", 5, 17280, 12345, 0.123)
ROWS = {"first": {f"{how}_{what}": 1e15 for how in ("sum", "num", "missing") for what in ("ost_read", "ost_write")}}
ROWS["first"] |= {f"{how}_{server}_cpu": 12.3 for how in ("ave", "max") for server in ("oss", "mds")} | {"tstart": NOON, "tend": NOON}


TARGETS = [TopTarget(f"cscratch-OST{number:04x}", 0.33) for number in range(5)]


class _NoJobs:
    """Backfills of which everything is left."""

    @staticmethod
    def remaining(one):
        return [one.span]


def tables():
    """One table of each function that makes one, by its module."""
    yield "status_view", status_view._sources(STATUS)
    yield "status_view", status_view._files(STATUS)
    yield "status_view", list(status_view.details(msgspec.structs.replace(STATUS, sources=SOURCES[:1])))[1]
    sink = SinkState(
        name=SOURCE, kind="elasticsearch", state="waiting", cursor=10**16, lag_windows=12345, lag=10**6, backlog=10**8, records=10**9
    )
    yield "sinks_view", next(sinks_view.shown([sink]))
    yield "gaps", gaps._table([GAP], NOON)
    yield "gaps", gaps._table_of_cells([GAP])
    yield "ls", ls._systems([ls.SystemEntry(SOURCE, "2018-01-28", "2018-01-29", 12345, 10**13, [SOURCE, SOURCE])])
    yield "ls", ls._days([ls.DayEntry("2018-01-29", f"/tts/2018-01-29/{SOURCE}.hdf5", "unreadable", 10**13, 12)])
    yield "ls", ls._datasets([ENTRY])
    filled = Filled(DATASET, "whole rows", "bytes", 10**6, 1234, NOON, NOON, 1e30)
    yield "once", once._table(Once(SOURCE, "fs", NOON, NOON + 60, [filled], 10**6, {}, 1.0))
    backfill = Job(12345, SOURCE, NOON, NOON + 60, (), False, 1, NOON, "running", REASON, 123456, 10**10, NOON)
    yield "backfill_view", backfill_view._table([backfill], _NoJobs)
    yield "job", job._table({"fs_tot_bytes_read": 1e15, "job_tot_bytes_read": 1e15, "job_frac_bytes_read": 0.123456}, {})
    yield "job", job._table({"fshealth_ost_most_full_name_of_all": "OST0000" * 5, "darshan_total_bytes": 1e15}, {})
    yield "health", health._targets([Target(f"{SOURCE}-OST00a1", 10**12, 10**13, 10**9, 10**10, away=True)] * 2)
    yield "badost", badost._table([Correlation("OST#12345", -0.701, 1.2345e-200)], 0.5)
    yield "umami", umami._table(Umami({"x": UmamiMetric([1, 2, 3], [123456.789, 23456.78, 1234567.8], "largest OSS CPU load (%)", True)}))
    yield "stages", stages._table([StageRow("convert", 123456, 1234.5, 12345.6, 123456.7, 0.123)])
    line = TopLine(
        "4478544_with_a_long_name", "123456", "", "", 12, 1024, 248, 1e9, 0.999, 1e15, 1e15, 123456.7, {"open": 1e9}, TARGETS, NOON, NOON
    )
    lines = [msgspec.structs.replace(line, name="a_name_of_a_job", account="a_name_of_a_user")]
    for by in ("bytes", "samedir_rename"):
        yield "top_view", top_view._table(Top("fs", NOON, NOON + 60, NOON, by, "operations/s", 1e9, 1e9, 1e9, 1e9, lines, 3, []))
    users = [msgspec.structs.replace(line, job="")]
    yield "top_view", top_view._table(Top("fs", NOON, NOON + 60, NOON, "bytes", "bytes/s", 1e9, 1e9, 1e9, 1e9, users, 3, []))
    yield "summarize", summarize._bins(ROWS, ZoneInfo("UTC"))
    yield "summarize", summarize._rows("component", {SOURCE: summarize.Bytes(1e15, 1e15)})
    yield "summarize", summarize._total(summarize.Total(1e15, 1e15, 123, 10**9, 12.3, 17279, 17279))


TABLES = list(tables())


def lines(table, width):
    console = Console(width=width, file=io.StringIO())
    shown = fitted(table, width)
    console.print(shown, soft_wrap=isinstance(shown, Group))
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("number", range(len(TABLES)))
def test_a_table_fits_and_cuts_nothing(number, width):
    _, table = TABLES[number]
    shown = lines(table, width)
    assert max(map(len, shown)) <= width, shown
    assert "…" not in "\n".join(shown)
    kept = [column for column in table.columns if str(column.header) not in table.spare]
    words = {word for column in kept for cell in column.cells if cell != "-" for word in str(cell).split()}
    assert [word for word in words if word not in "\n".join(shown)] == []


def test_every_module_with_a_table_is_here():
    directory = Path(once.__file__).parent
    using = {path.stem for path in directory.glob("*.py") if re.search(r"[ \[(]table\(", path.read_text("utf-8"))}
    assert using == {module for module, _ in TABLES}
