"""What the cells of real files prove, held against a slow reference that looks at every cell."""

import re
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import archive_model as model
import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rebuilt_site import DAY, HOUR, Now, Past, Site
from structlog.testing import capture_logs

from tokiod.tts.live.create import create
from tokiod.tts.live.live_file import LiveFile
from tokiod.tts.sealed.seal import seal
from tokiod.tts.spec import FileSpec, GroupSpec, MatrixSpec
from tokiod.units import Duration
from tokiod.writer import proven_windows as rebuild
from tokiod.writer.proven_windows import proof

NOW = model.EPOCH + model.DAYS * DAY


def sampled(dataset, rows):
    """A number of a counter stands in the row before the sample that made it; that of a gauge in its own."""
    return rows if dataset == model.GAUGE else {row for row in rows if row - 1 in rows or row == 0}


def torn_by_hand(held):
    """Return (day, row) where a column of the gauge lacks the numbers of three steps at most, and has those around them or is at the end.

    Steps are of an hour; those without any number don't count.
    """
    filled = {}
    for (day, dataset, _), rows in held.items():
        filled.setdefault(day, set()).update(sampled(dataset, rows))
    steps = [(day, row) for day in sorted(filled) for row in sorted(filled[day])]
    found = set()
    for name in {name for _, dataset, name in held if dataset == model.GAUGE}:
        has = "".join(".#"[row in held.get((day, model.GAUGE, name), ())] for day, row in steps)
        for gap in re.finditer(r"(?<=#)\.{1,3}(?!\.)", has):
            found |= set(steps[gap.start() : gap.end()])
    return found


def by_hand(directory, source, now):
    """Every window of the days that has begun, looked at cell by cell."""
    held = model.held(directory, source.filled)
    torn = set() if source.replayable else torn_by_hand(held)
    proved, whole = [], all if source.replayable else any
    for day in range(model.DAYS):
        names = {dataset for d, dataset, _ in held if d == day}
        has = {
            dataset: sampled(dataset, {row for (d, name, _), rows in held.items() if (d, name) == (day, dataset) for row in rows})
            for dataset in names
        }
        length = source.window // HOUR
        for first in range(0, model.ROWS, length):
            steps = range(first, min(first + length, model.ROWS))
            begins = model.EPOCH + day * DAY + steps[0] * HOUR
            is_whole = whole(whole(row in has[dataset] for dataset in names) for row in steps) and not any(
                (day, row) in torn for row in steps
            )
            if begins < now and names and is_whole:
                proved.append((begins, model.EPOCH + day * DAY + (steps[-1] + 1) * HOUR))
    return list(rebuild.Ranges(proved))


@settings(max_examples=20, deadline=None)
@given(model.archives, st.sampled_from([Past, Now]), st.sampled_from([1, 2, 5]), st.booleans(), st.integers(0, model.DAYS * 24 * 2))
def test_a_window_is_proved_as_a_look_at_each_of_its_cells_says(samples, kind, length, is_sealed, halves):
    now = model.EPOCH + halves * HOUR / 2
    source = kind(window=Duration(length * HOUR))
    with TemporaryDirectory() as directory:
        site = Site(Path(directory), source)
        with closing(model.sink_in(site.directory)) as sink:
            for day in range(model.DAYS):
                sink.apply(model.window(samples, day * model.ROWS, (day + 1) * model.ROWS))
            assert sink.commit() == []
        expected = by_hand(site.directory, source, now)
        for path in site.directory.rglob("fs.hdf5") if is_sealed else ():
            seal(path, path, 0)
        assert list(proof(site.config, now).stored["past"]) == expected


@pytest.mark.parametrize("kind", [Past, Now])
def test_a_difference_over_a_gap_does_not_prove_the_gaps_last_step(tmp_path, kind):
    site = Site(tmp_path, kind(filled=(model.COUNTER,)))
    with closing(site.start()) as ledger:
        site.store(ledger, 0, 10)
        site.store(ledger, 14, 20)
    assert len(model.held(tmp_path, (model.COUNTER,))[0, model.COUNTER, model.NAMES[0]].keys() & {12, 13}) == 1
    expected = [(model.EPOCH + first * HOUR, model.EPOCH + last * HOUR) for first, last in ((0, 9), (14, 19))]
    assert list(proof(site.config, NOW).stored["past"]) == expected


def filled(directory, columns, cells):
    """Make the file of the first day, of one gauge with so many columns; cells: {row: column}."""
    path = directory / "2018-01-29" / "fs.hdf5"
    path.parent.mkdir(parents=True)
    names = tuple(f"h{i:04}" for i in range(columns))
    spec = FileSpec(model.EPOCH, model.EPOCH + DAY, {"dataservers": GroupSpec(HOUR, "x")}, {model.GAUGE: MatrixSpec(names, counter=False)})
    create(path, spec, created=0)
    with closing(LiveFile.open(path)) as live:
        for row, column in cells.items():
            values = np.full((1, columns), -0.0)
            values[0, column] = 0.0
            live.cells[model.GAUGE].write_rows(row, values)
        live.commit()
    return path


@given(st.dictionaries(st.integers(0, 23), st.integers(0, 699), max_size=24))
@settings(max_examples=10, deadline=None)
def test_one_number_in_whatever_column_proves_a_step_and_a_measured_zero_is_one(cells):
    with TemporaryDirectory() as directory:
        filled(Path(directory), 700, cells)
        found = proof(Site(Path(directory)).config, NOW)
        assert found.stored["past"] == rebuild.Ranges((model.EPOCH + row * HOUR, model.EPOCH + (row + 1) * HOUR) for row in cells)
        assert (len(found.files), found.windows) == (1, len(cells))


def test_no_more_columns_are_read_than_it_takes(tmp_path, monkeypatch):
    filled(tmp_path, 700, dict.fromkeys(range(23), 3))
    read = []
    monkeypatch.setattr(rebuild, "missing", lambda values: read.append(values.shape) or (values.view(np.int64) == np.iinfo(np.int64).min))
    assert proof(Site(tmp_path).config, NOW).windows == 23
    assert sum(columns for _, columns in read) == 6 * rebuild.FIRST_COLUMNS + 700 - rebuild.FIRST_COLUMNS


def two_datasets(directory, rows, other_rows):
    """Make the file of the first day, of two gauges of one group, one of one column and one of forty, filled in these rows."""
    path = directory / "2018-01-29" / "fs.hdf5"
    path.parent.mkdir(parents=True)
    wide = tuple(f"h{i}" for i in range(40))
    matrices = {model.GAUGE: MatrixSpec(("h0",), counter=False), "dataservers/cpuuser": MatrixSpec(wide, counter=False)}
    create(path, FileSpec(model.EPOCH, model.EPOCH + DAY, {"dataservers": GroupSpec(HOUR, "x")}, matrices), created=0)
    with closing(LiveFile.open(path)) as live:
        for name, width, filled_rows in ((model.GAUGE, 1, rows), ("dataservers/cpuuser", 40, other_rows)):
            for row in filled_rows:
                live.cells[name].write_rows(row, np.arange(1.0, width + 1)[np.newaxis])
        live.commit()
    return path


@pytest.mark.parametrize(
    ("other_rows", "is_sealed", "proved"),
    [(range(5, 24), False, [(5, 20)]), ((), False, []), (range(5, 24), True, [(0, 20)]), ((), True, [])],
    ids=["live, some", "live, nothing", "sealed, some of its chunk", "sealed, nothing"],
)
def test_what_only_one_of_two_datasets_has_is_not_proved_in_a_sealed_file_chunk_by_chunk(tmp_path, other_rows, is_sealed, proved):
    path = two_datasets(tmp_path, range(20), other_rows)
    if is_sealed:
        seal(path, path, 0)
    source = Past(filled=(model.GAUGE, "dataservers/cpuuser"))
    found = proof(Site(tmp_path, source).config, NOW).stored["past"]
    assert [((start - model.EPOCH) // HOUR, (end - model.EPOCH) // HOUR) for start, end in found] == proved


def test_a_dataset_that_the_file_does_not_have_is_not_asked_of_it_and_one_of_another_source_neither(tmp_path):
    filled(tmp_path, 2, dict.fromkeys(range(24), 0))
    found = proof(Site(tmp_path, Past(), Past(name="other", filled=("mdtargets/opens",))).config, NOW)
    assert {name: ranges.total for name, ranges in found.stored.items()} == {"past": DAY, "other": 0}


def test_steps_other_than_the_sources_prove_nothing(tmp_path):
    filled(tmp_path, 2, dict.fromkeys(range(24), 0))

    class Quick(Past, frozen=True):
        @property
        def step(self):
            return 60

    assert proof(Site(tmp_path, Quick()).config, NOW).windows == 0


@pytest.mark.parametrize("breakage", ["no HDF5", "cut", "foreign", "another day"])
def test_a_file_that_can_not_be_trusted_proves_nothing_and_holds_nobody_up(tmp_path, breakage):
    path = filled(tmp_path, 2, dict.fromkeys(range(24), 0))
    if breakage == "no HDF5":
        path.write_bytes(b"nothing")
    elif breakage == "cut":
        path.write_bytes(path.read_bytes()[:-9000])
    else:
        with h5py.File(path, "r+") as file:
            if breakage == "foreign":
                del file["_tokiod"]
            else:
                file.attrs["start"] = model.EPOCH - DAY
    with capture_logs() as logs:
        found = proof(Site(tmp_path).config, NOW)
    assert (found.files, found.windows) == ([], 0)
    assert [log["event"] for log in logs] == ["ledger.file_skipped"] * (breakage in {"no HDF5", "cut"})


def test_an_archive_without_sources_or_files_proves_nothing(tmp_path):
    config = Site(tmp_path).config
    assert proof(config, NOW).files == []
