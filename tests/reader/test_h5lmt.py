"""H5LMT files are read as pytokio 0.13.0 reads them: the same numbers, names and times."""

from pathlib import Path

import h5py
import numpy as np
import pytest

import tokiod
from tokiod.reader.errors import NotTts
from tokiod.reader.part import Part

STRANGER = Path(__file__).parents[3] / "shared" / "data" / "strangers" / "nodes" / "h01_h5lmt" / "2018-01-28.h5lmt"
START, STEP, ROWS = 1_517_126_400, 5, 6
ZONE = "America/Los_Angeles"


def write(path, start=START, more=0, *, silent=True):
    """Make a file of two OSTs and OSSs; more: rows that were never filled. Return its rates of reads, [rows, OSTs]."""
    reads = np.arange(2.0 * ROWS).reshape(2, ROWS) * 10
    operations = np.stack([np.arange(ROWS), np.full(ROWS, 3.0), np.zeros(ROWS)])

    def filled(values):
        return np.concatenate([values, np.zeros((*values.shape[:-1], more))], axis=-1)

    with h5py.File(path, "w") as file:
        file["FSStepsGroup/FSStepsDataSet"] = np.arange(start, start + ROWS * STEP, STEP, dtype=np.int32)
        for name, values, attribute, names in [
            ("OSTReadGroup/OSTBulkReadDataSet", reads, "OSTNames", ["OST0000", "OST0001"]),
            ("OSSCPUGroup/OSSCPUDataSet", reads / 2, "OSSNames", ["oss0", "oss1"]),
            ("MDSOpsGroup/MDSOpsDataSet", operations, "OpNames", ["open", "setxattr", "statfs"]),
        ]:
            file.create_dataset(name, data=filled(values), compression="gzip").attrs[attribute] = np.array(names, "S")
        file["MDSCPUGroup/MDSCPUDataSet"] = filled(np.arange(ROWS) / 4)
        if silent:
            flags = np.zeros((2, ROWS + more), np.int32)
            flags[0, [0, 2]] = 1  # only the first of these has no number
            file["FSMissingGroup/FSMissingDataSet"] = flags
    return reads.T


@pytest.fixture
def archive(tmp_path):
    reads = write(tmp_path / "2018-01-28.h5lmt", more=9000)
    with tokiod.open("fs", START, START + ROWS * STEP, path=tmp_path / "%Y-%m-%d.h5lmt") as one:
        yield one, reads


def test_the_numbers_names_and_times_are_those_of_the_file(archive):
    one, reads = archive
    silent = np.isnan(one.array("datatargets/readrates")[...])
    assert np.argwhere(silent).tolist() == [[0, 0]]
    np.testing.assert_array_equal(one.array("datatargets/readbytes")[...], np.where(silent, np.nan, reads * STEP))
    np.testing.assert_array_equal(one.array("dataservers/cpuload")[1:], reads[1:] / 2)
    assert one.columns("dataservers/cpuload") == ("oss0", "oss1")
    assert one.columns("mdservers/cpuload") == ("_unknown",)
    np.testing.assert_array_equal(one.array("mdservers/cpuload")[:, 0], np.arange(ROWS) / 4)
    np.testing.assert_array_equal(one.array("mdtargets/opens")[2:5, "open"], STEP * np.arange(2, 5))
    assert one.reduce("mdtargets/statfss", how="count").values.tolist() == [[ROWS]]
    assert one.array("datatargets/readbytes").times.tolist() == list(range(START, START + ROWS * STEP, STEP))
    assert "mdtargets/setxattrs" not in one.datasets()
    assert one.reduce("datatargets/readbytes", how="sum").values.tolist() == [[sum(reads[1:, 0]) * STEP, sum(reads[:, 1]) * STEP]]


def test_without_flags_all_numbers_were_measured_and_days_follow_each_other(tmp_path):
    reads = write(tmp_path / "2018-01-28.h5lmt", silent=False)
    write(tmp_path / "2018-01-29.h5lmt", START + 86400, silent=False)
    with tokiod.open("fs", "2018-01-28", "2018-01-30", timezone=ZONE, path=tmp_path / "%Y-%m-%d.h5lmt") as one:
        assert one.reduce("datatargets/readrates", "1d", "sum").values.tolist() == [reads.sum(axis=0).tolist()] * 2
        assert one.completeness("datatargets/readrates")[0].end == START + ROWS * STEP


@pytest.mark.parametrize(
    ("break_it", "sentence"),
    [
        (
            lambda file: file["OSTReadGroup/OSTBulkReadDataSet"].__setitem__((1, ROWS), 5.0),
            "datatargets/readrates after the last",
        ),
        (lambda file: file["FSStepsGroup/FSStepsDataSet"].__setitem__(3, START), "not evenly spaced"),
        (lambda file: file["OSSCPUGroup/OSSCPUDataSet"].attrs.__delitem__("OSSNames"), "OSSNames"),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(tmp_path, break_it, sentence):
    path = tmp_path / "one.h5lmt"
    write(path, more=1)
    with h5py.File(path, "a") as file:
        break_it(file)
    with pytest.raises(NotTts, match=sentence):
        Part(path).span()


@pytest.mark.skipif(not STRANGER.exists(), reason="the inputs of strangers are not part of the project")
def test_a_file_of_pytokios_tests_has_the_sums_that_pytokio_gives():
    with tokiod.open("x", "2018-01-28", "2018-01-29", timezone=ZONE, path=STRANGER.with_name("%Y-%m-%d.h5lmt")) as one:
        found = {name: one.array(name)[...] for name in one.datasets()}
    sums = {
        "datatargets/readbytes": 6347173888.0, "datatargets/writebytes": 119037925429.0, "datatargets/readrates": 1269434777.6,
        "datatargets/writerates": 23807585085.800003, "dataservers/cpuload": 2914.035124, "mdservers/cpuload": 579.07083,
        "mdtargets/opens": 1529078.0, "mdtargets/closes": 1512366.0, "mdtargets/mknods": 1.0, "mdtargets/links": 0.0,
        "mdtargets/unlinks": 8.0, "mdtargets/mkdirs": 0.0, "mdtargets/rmdirs": 0.0, "mdtargets/renames": 18.0,
        "mdtargets/getxattrs": 1271.0, "mdtargets/statfss": 29.0, "mdtargets/setattrs": 4516.0, "mdtargets/getattrs": 2968372.0,
    }  # fmt: skip
    assert {name: float(np.nansum(found[name])) for name in sums} == {name: pytest.approx(value, rel=1e-12) for name, value in sums.items()}
