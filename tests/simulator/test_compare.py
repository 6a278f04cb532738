from collections import Counter
from dataclasses import replace

import h5py
import numpy as np
import pytest

from tokiod.simulator.compare import SHOWN, Comparison, Difference, compare
from tokiod.simulator.elastic.expected import CollectdAnswers
from tokiod.simulator.lmt.expected import Answers
from tokiod.simulator.site import Site
from tokiod.window import Window

MIDNIGHT = 1_517_126_400
SITE = Site(epoch=MIDNIGHT - 900, osts=5, osss=3, mdts=3)
FILE = Window(MIDNIGHT - 900, MIDNIGHT)
ANSWERS = Answers(SITE, [FILE])
RIGHT = ANSWERS.of(FILE)


@pytest.fixture
def path(tmp_path):
    """Write a TTS file in which every cell is right, its columns in another order, with a group that is not TTS's."""
    with h5py.File(tmp_path / "day.hdf5", "w") as file:
        file.attrs.update({"version": "1", "start": np.int64(FILE.start), "end": np.int64(FILE.end)})
        for dataset, answer in RIGHT.items():
            group = file.require_group(dataset.partition("/")[0])
            if "timestamps" not in group:
                group["timestamps"] = answer.timestamps
            node = file.create_dataset(dataset, data=np.where(np.isnan(answer.values), -0.0, answer.values)[:, ::-1])
            node.attrs["columns"] = np.array([name.encode() for name in answer.columns[::-1]])
        file.create_dataset("_tokiod/raw/datatargets/readbytes", data=np.zeros((2, 2), np.int64)).attrs["columns"] = np.array([b"a", b"b"])
    return tmp_path / "day.hdf5"


def a_cell(dataset, *, filled):
    answer = RIGHT[dataset]
    row, column = np.argwhere(np.isnan(answer.values) != filled)[3]
    return int(row), int(column), float(answer.values[row, column])


def plant(path, dataset, row, column, value):
    with h5py.File(path, "r+") as file:
        file[dataset][row, len(RIGHT[dataset].columns) - 1 - column] = value


def difference(kind, dataset, row, column, want, got):
    return Difference(kind, dataset, RIGHT[dataset].columns[column], int(RIGHT[dataset].timestamps[row]), want, got)


def test_a_right_file_has_no_difference_and_all_its_cells_are_compared(path):
    result = compare(path, ANSWERS)
    filled = sum(int((~np.isnan(answer.values)).sum()) for answer in RIGHT.values())
    assert result == Comparison(sum(answer.values.size for answer in RIGHT.values()), filled)
    assert result.equal


@pytest.mark.parametrize("dataset", ["datatargets/readbytes", "dataservers/cpuload", "mdtargets/opens", "fullness/inodestotal"])
@pytest.mark.parametrize("kind", ["lost", "extra", "different", "zero for missing", "missing for zero", "one bit"])
def test_one_wrong_cell_is_found_and_named(path, dataset, kind):
    row, column, want = a_cell(dataset, filled=kind not in ("extra", "zero for missing"))
    got = {
        "lost": -0.0,
        "extra": 7.5,
        "different": -want - 1,
        "zero for missing": 0.0,
        "missing for zero": -0.0,
        "one bit": np.nextafter(want, np.inf),
    }[kind]
    plant(path, dataset, row, column, got)
    result = compare(path, ANSWERS)
    known = {"zero for missing": "extra", "missing for zero": "lost", "one bit": "different"}.get(kind, kind)
    assert (result.counts, result.equal) == (Counter([known]), False)
    assert repr(result.differences) == repr([difference(known, dataset, row, column, want, np.nan if known == "lost" else float(got))])
    assert str(result.differences[0]).startswith(f"{known}: {dataset} {RIGHT[dataset].columns[column]} 2018-01-28T0")


def test_a_whole_dataset_or_column_that_is_not_there_is_lost(path):
    filled = {dataset: int((~np.isnan(RIGHT[dataset].values)).sum(axis=0)[-1]) for dataset in RIGHT}
    with h5py.File(path, "r+") as file:
        del file["mdservers/cpuload"]
        values, names = file["dataservers/memused"][:, 1:], file["dataservers/memused"].attrs["columns"][1:]
        del file["dataservers/memused"]
        file.create_dataset("dataservers/memused", data=values).attrs["columns"] = names
    servers = int((~np.isnan(RIGHT["mdservers/cpuload"].values)).sum())
    result = compare(path, ANSWERS)
    assert +result.counts == Counter(lost=servers + filled["dataservers/memused"])
    assert len(result.differences) == 2 * SHOWN


def test_a_number_in_a_column_that_the_site_does_not_have_is_extra(path):
    with h5py.File(path, "r+") as file:
        names = [*file["mdtargets/opens"].attrs["columns"].tolist(), b"lc10-MDT0000"]
        values = np.pad(file["mdtargets/opens"][...], ((0, 0), (0, 1)), constant_values=-0.0)
        values[5, -1] = 3.0
        del file["mdtargets/opens"]
        file.create_dataset("mdtargets/opens", data=values).attrs["columns"] = np.array(names)
    result = compare(path, ANSWERS)
    assert [(d.kind, d.column, d.time, d.got) for d in result.differences] == [("extra", "lc10-MDT0000", FILE.start + 25, 3.0)]
    assert +result.counts == Counter(extra=1)


def test_in_a_running_archive_only_determined_cells_count(path):
    newest = Window(FILE.start, FILE.end - 60)
    row, column, _ = a_cell("datatargets/readbytes", filled=True)
    full = compare(path, Answers(SITE, [newest]))
    assert full.counts["extra"] > 0
    assert compare(path, Answers(SITE, [newest]), determined=True).equal
    plant(path, "datatargets/readbytes", row, column, -0.0)
    assert +compare(path, Answers(SITE, [newest]), determined=True).counts == Counter(lost=1)


def test_what_a_dead_source_did_not_tell_may_be_missing_and_nothing_else_may(path):
    answer = RIGHT["fullness/bytes"]
    rows = [row for row in range(20, 60) if not np.isnan(answer.values[row, 1])]
    first, second = rows[0], rows[-1]
    died = Window(int(answer.timestamps[first]) + 4, int(answer.timestamps[first]) + 5)
    plant(path, "fullness/bytes", first, 1, -0.0)
    alive = compare(path, ANSWERS)
    dead = compare(path, ANSWERS, dead=[died])
    assert (+alive.counts, alive.untold) == (Counter(lost=1), 0)
    assert (dead.equal, dead.untold, dead.filled) == (True, 1, alive.filled)
    assert not compare(path, ANSWERS, dead=[Window(died.start + 1, died.end + 100), Window(died.start - 100, died.start - 4)]).equal
    plant(path, "fullness/bytes", second, 1, -0.0)
    assert +compare(path, ANSWERS, dead=[died]).counts == Counter(lost=1)
    plant(path, "fullness/bytes", first, 1, answer.values[first, 1] + 1)
    assert +compare(path, ANSWERS, dead=[died]).counts == Counter(lost=1, different=1)


def test_another_seeds_answers_differ(path):
    assert compare(path, Answers(replace(SITE, seed=2), [FILE])).counts["different"] > 1000


def test_comparisons_add_up(path):
    one = compare(path, ANSWERS)
    plant(path, "fullness/bytes", *a_cell("fullness/bytes", filled=True)[:2], -0.0)
    both = one + compare(path, ANSWERS)
    assert (both.cells, both.filled, +both.counts, len(both.differences)) == (2 * one.cells, 2 * one.filled, Counter(lost=1), 1)


def test_other_steps_and_unknown_datasets_are_refused(path):
    with h5py.File(path, "r+") as file:
        file["fullness/timestamps"][0] += 1
    with pytest.raises(ValueError, match=r"timestamps of /fullness/bytes are not steps of 5 s"):
        compare(path, ANSWERS)
    with h5py.File(path, "r+") as file:
        file["fullness/timestamps"][0] -= 1
        file.create_dataset("datatargets/readrates", data=np.zeros((180, 1))).attrs["columns"] = np.array([b"a"])
    with pytest.raises(ValueError, match="datatargets/readrates"):
        compare(path, ANSWERS)


def test_what_is_no_file_is_an_os_error(tmp_path):
    (tmp_path / "text.hdf5").write_text("no")
    for name in ("text.hdf5", "absent.hdf5"):
        with pytest.raises(OSError, match="Unable to"):
            compare(tmp_path / name, ANSWERS)


def test_means_may_differ_in_the_last_digits_and_no_further(tmp_path):
    answers = CollectdAnswers(SITE, [FILE])
    right = answers.of(FILE)
    with h5py.File(tmp_path / "bb.hdf5", "w") as file:
        file.attrs.update({"version": "1", "start": np.int64(FILE.start), "end": np.int64(FILE.end)})
        for dataset, answer in right.items():
            group = file.require_group(dataset.partition("/")[0])
            if "timestamps" not in group:
                group["timestamps"] = answer.timestamps
            node = file.create_dataset(dataset, data=np.where(np.isnan(answer.values), -0.0, answer.values * (1 + 3e-16)))
            node.attrs["columns"] = np.array([name.encode() for name in answer.columns])
    result = compare(tmp_path / "bb.hdf5", answers)
    assert {difference.dataset for difference in result.differences} == {name for name, answer in right.items() if answer.exact}
    with h5py.File(tmp_path / "bb.hdf5", "r+") as file:
        file["dataservers/cpuuser"][...] *= 1 + 1e-11
    assert "dataservers/cpuuser" in {difference.dataset for difference in compare(tmp_path / "bb.hdf5", answers).differences}
