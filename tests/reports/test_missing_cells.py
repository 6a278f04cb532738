"""Why each cell is missing, from real files, live and sealed, and a real ledger."""

import sys
from datetime import date

import msgspec
import numpy as np
import pytest
from commanded import configured, ledger_of, ran, source

from tokiod.config import load as configuration
from tokiod.ledger.ledger import StoredEntry
from tokiod.reader.span import Span
from tokiod.reports.missing_cells import missing_cells
from tokiod.tts.counters.day_counter import DayCounter
from tokiod.tts.counters.difference_rule import Rule
from tokiod.tts.live.create import create
from tokiod.tts.live.live_file import LiveFile
from tokiod.tts.sealed.seal import seal
from tokiod.tts.spec import FileSpec, GroupSpec, MatrixSpec
from tokiod.window import Window
from tokiod.window_data import WindowMeta

DAY = 1_517_184_000
STEP = 5
COUNTER, GAUGE = "datatargets/readbytes", "dataservers/cpuload"
NOW = DAY + 86400.0
COLUMNS = ("OST0000", "OST0001", "OST0002")
NONE = -1
REACH = 23 * 3600 // STEP
#        row: 0   1   2   3     4   5   6  7     8
SAMPLES = [
    [100, 110, 120, 130, NONE, 150, 160, 170, 180],
    [100, 110, 120, 5, 10, 20, 30, 40, 50],
    [100, 110, 120, 10**12, 10**12, 10**12, 10**12, 10**12, 10**12],
]


@pytest.fixture
def path(tmp_path):
    return configured(tmp_path, source())


def filled(path, *, is_sealed=False):
    """Store the samples and one gauge in the day's file, as a writer does."""
    config = configuration.load(path)
    place = config.archive.file_of(date(2018, 1, 29), "fs")
    place.parent.mkdir(parents=True, exist_ok=True)
    groups = {"datatargets": GroupSpec(STEP, "lmt"), "dataservers": GroupSpec(STEP, "lmt")}
    counter = MatrixSpec(COLUMNS, counter=True, max_step=Rule.of(STEP, 1000).max_step)
    specs = {COUNTER: counter, GAUGE: MatrixSpec(("oss1",), counter=False)}
    create(place, FileSpec(DAY, DAY + 86400, groups, specs), created=DAY)
    file = LiveFile.open(place)
    samples = np.array(SAMPLES).T
    row, column = np.nonzero(samples != NONE)
    DayCounter.of(file, COUNTER).store(row, column, samples[row, column])
    file.cells[GAUGE].write_rows(0, np.array([[1.0], [-0.0], [3.0]]))
    file.commit()
    file.close()
    if is_sealed:
        seal(place, place, updated=DAY)


def stored(ledger, first, last, system="fs"):
    window = Window(DAY + first * STEP, DAY + last * STEP)
    ledger.store([StoredEntry(WindowMeta("one", "lmt", system, window), 1)], DAY)


def found(path, dataset, rows=9):
    gaps = missing_cells(configuration.load(path), "fs", dataset, Span(DAY, DAY + rows * STEP), NOW)
    return [((gap.start - DAY) // STEP, (gap.end - DAY) // STEP, gap.state, gap.columns, gap.cells) for gap in gaps]


@pytest.mark.parametrize("is_sealed", [False, True])
def test_a_counter_shows_which_sample_is_absent_fell_or_is_implausible(path, is_sealed):
    filled(path, is_sealed=is_sealed)
    with ledger_of(path) as ledger:
        ledger.register(configuration.load(path).source[0], DAY)
        stored(ledger, 0, 12)
        assert found(path, COUNTER, 8) == [
            (2, 3, "fell", ["OST0001"], 1),
            (2, 3, "implausible", ["OST0002"], 1),
            (3, 4, "no sample", ["OST0000"], 1),
        ]


@pytest.mark.parametrize("is_sealed", [False, True])
@pytest.mark.parametrize(
    ("rows", "later", "state"), [(REACH, 60, "fell"), (REACH + 1, 60, "first sample"), (REACH + 1, 10**6, "first sample")]
)
def test_a_counter_fell_only_below_a_sample_that_is_not_too_old_to_be_compared_with(path, monkeypatch, is_sealed, rows, later, state):
    """The first sample after an outage is in row `rows` + 1; row 1 has the last one before it."""
    outage = [NONE] * (rows - 1)
    monkeypatch.setattr(sys.modules[__name__], "SAMPLES", [[70, 80, *outage, after, after + 10] for after in (later, 0, later)])
    filled(path, is_sealed=is_sealed)
    with ledger_of(path) as ledger:
        ledger.register(configuration.load(path).source[0], DAY)
        stored(ledger, 0, 17_280)
    assert found(path, COUNTER, rows + 2) == [(1, rows, "no sample", [*COLUMNS], 3 * (rows - 1)), (rows, rows + 1, state, [*COLUMNS], 3)]


def test_what_is_not_stored_is_reported_with_the_reason_of_the_ledger(path):
    filled(path)
    with ledger_of(path) as ledger:
        ledger.register(configuration.load(path).source[0], DAY)
        stored(ledger, 0, 3)
        ledger.failed("one", Window(DAY + 15, DAY + 60), "Transient", "no route to host", 3, DAY + 90, DAY)
        assert found(path, GAUGE) == [(1, 2, "no sample", ["oss1"], 1), (3, 9, "failed", ["oss1"], 6)]
        # Cells before the 9th row have samples, whatever the ledger knows.
        assert found(path, COUNTER)[-1] == (8, 9, "failed", [*COLUMNS], 3)


def test_without_a_file_or_a_ledger_that_is_the_reason(path):
    with ledger_of(path) as ledger:
        ledger.register(configuration.load(path).source[0], DAY)
        stored(ledger, 0, 12)
        assert found(path, GAUGE) == [(0, 9, "no file", [], 0)]


def test_without_a_file_what_is_not_stored_has_the_reason_of_the_ledger(path):
    with ledger_of(path) as ledger:
        ledger.register(configuration.load(path).source[0], DAY)
        stored(ledger, 0, 3)
        ledger.lost("one", Window(DAY + 5 * STEP, DAY + 7 * STEP), "Retention", "older than the 86400 s that the source keeps", DAY)
        expected = [(0, 3, "no file", [], 0), (3, 5, "due", [], 0), (5, 7, "lost", [], 0), (7, 9, "due", [], 0)]
        assert found(path, GAUGE) == expected
        # Neither has a file without the dataset another reason.
        filled(path)
        assert found(path, "mdtargets/opens") == expected


def test_what_a_source_stored_for_another_system_is_not_stored_for_its_present_one(tmp_path):
    path = configured(tmp_path, source(system="old"))
    with ledger_of(path) as ledger:
        ledger.register(configuration.load(path).source[0], DAY)
        stored(ledger, 0, 12, "old")
        path = configured(tmp_path, source())
        filled(path)
        assert found(path, GAUGE, 3) == [(1, 2, "not configured", ["oss1"], 1)]


def test_the_command_prints_a_row_for_each_reason_and_its_json_has_the_same(path):
    filled(path)
    with ledger_of(path) as ledger:
        ledger.register(configuration.load(path).source[0], DAY)
        stored(ledger, 0, 12)
    options = (f"fs/{COUNTER}", "--cells", "--start", "2018-01-29", "--end", "2018-01-29T00:00:40")
    done = ran(path, "gaps", *options, at=int(NOW))
    assert done.exit_code == 1, done.output
    assert done.stdout.splitlines()[1].strip().split(None, 6) == [
        "2018-01-29T00:00:10Z", "2018-01-29T00:00:15Z", "5s", "1", "fell", "OST0001", "the counter fell",
    ]  # fmt: skip
    printed = msgspec.json.decode(ran(path, "gaps", *options, "--json", at=int(NOW)).stdout)
    assert [gap["state"] for gap in printed] == ["fell", "implausible", "no sample"]
