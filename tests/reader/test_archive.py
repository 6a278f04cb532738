"""tokiod.open: a span of days as arrays and frames, equal to a plain h5py reading of every cell, whatever the days are."""

import datetime as dt
import gc
import threading
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stitched_days import READ, SITE, save, slot

import tokiod
from tokiod.reader.completeness import CoverageSpan
from tokiod.reader.errors import NoData, NoSuchColumn, NoSuchDataset, NoSuchSystem, NotTts, StepChanged, UnclearTime
from tokiod.reader.stitched import Stitched
from tokiod.tts.live.live_file import LiveFile
from tokiod.tts.sealed.seal import seal, unseal

STEP, ROWS = 900, 96
ZONE = "America/Los_Angeles"


def write_foreign(path, start, rows, step, columns, cells, dataset=READ, units=b"bytes"):
    """Write a day as pytokio does: no attributes of ours, gzip, columns that have no name yet."""
    with h5py.File(path, "w") as file:
        group = file.create_group(dataset.partition("/")[0])
        group.create_dataset("timestamps", data=start + step * np.arange(rows))
        padded = np.concatenate([cells, np.full((rows, 2), -0.0)], axis=1)
        made = group.create_dataset(dataset.partition("/")[2], data=padded, compression="gzip")
        made.attrs["columns"] = np.array([*(name.encode() for name in columns), b"", b""])
        made.attrs["units"] = units


@pytest.fixture(scope="module")
def days(tmp_path_factory):
    """Seven days: sealed, live, missing, foreign, sealed with other columns, without the dataset, live."""
    directory, generator = tmp_path_factory.mktemp("days"), np.random.default_rng(3)
    names = ["OST000a", "OST0009", "OST0010"]
    for day, columns, kind in (
        (1, names, "sealed"), (2, names, "live"), (4, names[:2], "foreign"), (5, ["OST0002", *names], "sealed"), (7, names[1:], "live"),
    ):  # fmt: skip
        values = np.round(generator.random((ROWS, len(columns))) * 9)
        values[generator.random(values.shape) < 0.3] = np.nan
        place = slot(directory, day)
        if kind == "foreign":
            write_foreign(place.path, place.start, ROWS, STEP, columns, np.where(np.isnan(values), -0.0, values))
        else:
            save(directory, day, columns, values, STEP, is_sealed=kind == "sealed")
    save(directory, 6, ["oss"], np.zeros((ROWS, 1)), STEP, "dataservers/cpuload")
    return directory


TEMPLATE = "%-d.hdf5"


def opened(directory, start, end, **options):
    return tokiod.open("fs", start, end, path=directory / TEMPLATE, **options)


def oracle(directory, start, end):
    """Every row of [start, end) by h5py: times, columns, cells."""
    rows = {}
    for day in range(1, 8):
        path = slot(directory, day).path
        if not path.exists():
            continue
        with h5py.File(path, "r") as file:
            if READ not in file:
                continue
            columns = [name.decode() for name in file[READ].attrs["columns"] if name]
            for time, cells in zip(file["datatargets/timestamps"][...], file[READ][:, : len(columns)], strict=True):
                if start <= time < end:
                    cells[(cells == 0) & np.signbit(cells)] = np.nan
                    rows[time] = dict(zip(columns, cells, strict=True))
    names = sorted({name for row in rows.values() for name in row}, key=lambda name: int(name[3:], 16))
    return rows, names


BEGIN, END = SITE.day_of_date(dt.date(2018, 1, 1)).start, SITE.day_of_date(dt.date(2018, 1, 7)).end


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(start=st.integers(BEGIN - 5000, END - 1), seconds=st.integers(1, 4 * 86400))
def test_any_span_has_every_cell_that_h5py_reads_and_rows_for_what_is_missing(days, start, seconds):
    rows, names = oracle(days, start, start + seconds)
    with opened(days, start, start + seconds) as archive:
        if not rows:
            with pytest.raises((NoData, NoSuchDataset)):
                archive.array(READ)
            return
        matrix = archive.array(READ)
        values = np.asarray(matrix)
        assert matrix.times.tolist() == list(range(-(-(start - BEGIN) // STEP) * STEP + BEGIN, start + seconds, STEP))
        assert set(names) == set(matrix.columns)
        assert list(matrix.columns) == sorted(matrix.columns, key=lambda name: int(name[3:], 16))
        expected = [[rows.get(time, {}).get(name, np.nan) for name in matrix.columns] for time in matrix.times.tolist()]
        np.testing.assert_array_equal(values, np.array(expected, float).reshape(values.shape))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_an_index_selects_what_it_selects_of_the_whole_array(days, data):
    matrix = opened(days, BEGIN, END).array(READ)
    whole = np.asarray(matrix)

    def index(size):
        numbers = st.integers(-size, size - 1)
        return st.one_of(st.slices(size), numbers, st.lists(numbers, max_size=5), st.just(slice(None)))

    rows, columns = data.draw(index(matrix.shape[0])), data.draw(index(matrix.shape[1]))
    expected = whole[rows] if isinstance(rows, (int, slice)) else whole[np.array(rows, int)]
    chosen = columns if isinstance(columns, (int, slice)) else np.array(columns, int)
    np.testing.assert_array_equal(matrix[rows, columns], expected[..., chosen])
    np.testing.assert_array_equal(matrix[rows], expected)


def test_columns_are_selected_by_name(days):
    matrix = opened(days, BEGIN, END).array(READ)
    np.testing.assert_array_equal(matrix[:, "OST000a"], np.asarray(matrix)[:, matrix.columns.index("OST000a")])
    np.testing.assert_array_equal(matrix[5, ["OST0010", "OST0009"]], np.asarray(matrix)[5, [3, 1]])
    with pytest.raises(NoSuchColumn, match="has no column 'OST0011', did you mean OST0010"):
        matrix[:, "OST0011"]
    with pytest.raises(IndexError):
        matrix[matrix.rows]


def test_a_frame_has_an_aware_index_and_the_columns_in_natural_order(days):
    import pandas as pd  # noqa: PLC0415 - collected without it

    archive = opened(days, "2018-01-01", "2018-01-03", timezone=ZONE)
    frame = archive.frame(READ)
    assert (str(frame.index.tz), frame.index[0], len(frame)) == (ZONE, pd.Timestamp("2018-01-01", tz=ZONE), 2 * ROWS)
    assert list(frame.columns) == ["OST0009", "OST000a", "OST0010"]
    np.testing.assert_array_equal(frame.to_numpy(), np.asarray(archive.array(READ)))
    utc = archive.frame(READ, timezone="UTC", columns=["OST0010"])
    assert (utc.index[0], list(utc.columns)) == (pd.Timestamp("2018-01-01T08:00Z"), ["OST0010"])
    np.testing.assert_array_equal(utc["OST0010"].to_numpy(), frame["OST0010"].to_numpy())


def test_xarray_selects_lazily_by_name_and_time(days):
    rates = opened(days, BEGIN, END)["datatargets/readrates"]
    assert (rates.dims, rates.attrs["units"], rates.attrs["step"]) == (("time", "datatarget"), "bytes/sec", STEP)
    one = rates.sel(datatarget="OST0010", time=slice("2018-01-01T10:00", "2018-01-01T11:59"))
    whole = opened(days, BEGIN, END).array(READ)
    first = (2 * 3600) // STEP
    np.testing.assert_array_equal(one.values, whole[first : first + 8, "OST0010"] / STEP)
    np.testing.assert_array_equal(rates.values, np.asarray(whole) / STEP)


@pytest.mark.parametrize(
    ("dataset", "dimension"),
    [("mdservers/cpuload", "mdserver"), ("fullness/bytes", "datatarget"), ("failover/mdtargets", "mdtarget"), ("nodes/cpu_user", "node")],
)
def test_the_columns_of_an_array_are_named_after_what_they_are(tmp_path, dataset, dimension):
    save(tmp_path, 1, ["a"], [[1]], dataset=dataset)
    with opened(tmp_path, BEGIN, BEGIN + 3600) as archive:
        assert archive[dataset].dims == ("time", dimension)


def test_xarray_opens_a_file(days):
    import xarray as xr  # noqa: PLC0415 - collected without it

    with xr.open_dataset(slot(days, 1).path, engine="tts", group="datatargets") as found:
        assert list(found.data_vars) == ["readbytes"]
        np.testing.assert_array_equal(found.readbytes.values, opened(days, BEGIN, BEGIN + 86400).array(READ)[...])
    with pytest.raises(NoSuchDataset, match="has no group 'mdtargets', did you mean datatargets"):
        xr.open_dataset(slot(days, 1).path, engine="tts", group="mdtargets")


def test_rates_and_counts_follow_from_each_other_by_one_rule(tmp_path):
    save(tmp_path, 1, ["a", "b"], [[3600, np.nan], [0, 7200]])
    save(tmp_path, 2, ["a", "b"], [[1, np.nan], [0, 2]], dataset="datatargets/readrates", is_sealed=True)
    archive = opened(tmp_path, "2018-01-01", "2018-01-03", timezone=ZONE)
    rates, counts = archive.array("datatargets/readrates"), archive.array(READ)
    assert (rates.units, counts.units) == ("bytes/sec", "bytes")
    for first in (0, 24):
        np.testing.assert_array_equal(rates[first : first + 2], [[1, np.nan], [0, 2]])
        np.testing.assert_array_equal(counts[first : first + 2], [[3600, np.nan], [0, 7200]])
    assert archive.datasets() == (READ, "datatargets/readrates")


@pytest.mark.parametrize(("stored", "load"), [({"cpuidle": 30.0}, 70.0), ({"cpuuser": 20.0, "cpusys": 5.0}, 25.0)])
def test_the_load_of_a_cpu_follows_from_its_parts(tmp_path, stored, load):
    place = slot(tmp_path, 1)
    with h5py.File(place.path, "w") as file:
        group = file.create_group("dataservers")
        group.create_dataset("timestamps", data=place.start + 3600 * np.arange(24))
        for i, (name, value) in enumerate(stored.items()):
            cells = np.full((24, 2), value)
            cells[3, 0] = -0.0
            names = [b"s", b"t"][:: (-1) ** i]
            group.create_dataset(name, data=cells[:, :: (-1) ** i]).attrs["columns"] = np.array(names)
    archive = opened(tmp_path, place.start, place.end)
    expected = np.full((24, 2), load)
    expected[3, 0] = np.nan
    np.testing.assert_array_equal(archive.array("dataservers/cpuload")[...], expected)
    np.testing.assert_array_equal(archive.reduce("dataservers/cpuload", "24h", "max").values, [[load, load]])
    assert "dataservers/cpuload" in archive.datasets()


def test_idle_follows_from_the_load(tmp_path):
    save(tmp_path, 1, ["oss"], [[25.0]], 3600, "dataservers/cpuload")
    place = slot(tmp_path, 1)
    archive = opened(tmp_path, place.start, place.end)
    assert archive.array("dataservers/cpuidle")[0, 0] == 75
    assert np.isnan(archive.array("dataservers/cpuidle")[1:]).all()
    assert "dataservers/cpuidle" in archive.datasets()


def test_missing_cells_are_a_table_and_a_dataset(days):
    archive = opened(days, BEGIN, END)
    expected = np.isnan(np.asarray(archive.array(READ)))
    np.testing.assert_array_equal(archive.missing(READ).values, expected)
    np.testing.assert_array_equal(archive.array(f"{READ}/missing")[...], expected.astype(float))
    np.testing.assert_array_equal(archive.frame(f"{READ}/missing").to_numpy(), expected.astype(float))


def test_a_cell_that_is_corrected_while_it_is_read_is_not_missing(tmp_path, monkeypatch):
    place = save(tmp_path, 1, ["a", "b"], [[1, np.nan]])
    read = Stitched.read

    def read_and_corrected(*given):
        cells = read(*given)
        file = LiveFile.open(place.path)
        file.cells[READ].write_rows(0, np.array([[cells[0, 0] + 1, -0.0]]))
        file.close()
        return cells

    monkeypatch.setattr(Stitched, "read", read_and_corrected)
    archive = tokiod.open("fs", place.start, place.start + 3600, path=place.path)
    np.testing.assert_array_equal(archive.missing(READ), [[False, True]])


def test_the_cells_alone_show_what_is_complete(tmp_path):
    save(tmp_path, 1, ["a"], [[1], [2], [np.nan], [4]])
    start = slot(tmp_path, 1).start
    archive = opened(tmp_path, start, start + 86400 + 3600)
    spans = [
        (0, 2, "stored", ""),
        (2, 3, "missing", ""),
        (3, 4, "stored", ""),
        (4, 24, "missing", ""),
        (24, 25, "missing", "no file has it"),
    ]
    assert archive.completeness() == tuple(CoverageSpan(READ, start + a * 3600, start + b * 3600, state, why) for a, b, state, why in spans)


def test_of_several_templates_the_first_that_has_a_days_file_counts(tmp_path):
    new, old = tmp_path / "new" / "fs", tmp_path / "old" / "fs"
    new.mkdir(parents=True), old.mkdir(parents=True)
    save(old, 1, ["a"], [[1]]), save(old, 2, ["a"], [[9]]), save(new, 2, ["a"], [[2]])
    templates = [f"{tmp_path}/new/{{system}}/{TEMPLATE}", f"{tmp_path}/old/{{system}}/{TEMPLATE}"]
    matrix = tokiod.open("fs", "2018-01-01", "2018-01-03", timezone=ZONE, path=templates).array(READ)
    assert matrix[[0, 24], 0].tolist() == [1, 2]
    with pytest.raises(NoSuchSystem, match="no files of system 'fx'; known: fs") as raised:
        tokiod.open("fx", "2018-01-01", "2018-01-03", timezone=ZONE, path=templates)
    assert raised.value.known == ("fs",)
    with pytest.raises(
        NoData, match=r"no data in \[2017-.*first missing file: .*/new/fs/31\.hdf5; the files hold \[2018-.*\)$"
    ):  # no year in the template
        tokiod.open("fs", "2017-01-01", "2017-01-03", timezone=ZONE, path=templates).array(READ)


def test_wrong_datasets_spans_steps_and_files_are_a_sentence_with_what_is_there(days, tmp_path):
    archive = opened(days, BEGIN, END)
    with pytest.raises(NoSuchDataset, match="'datatargets/readbyte', did you mean datatargets/readbytes"):
        archive.array("datatargets/readbyte")
    with pytest.raises(NoSuchDataset, match="fs has no group 'datatarget', did you mean datatargets"):
        archive.columns("datatarget")
    assert archive.columns("dataservers") == ("oss",)
    with pytest.raises(UnclearTime, match="must end after it starts"):
        opened(days, END, BEGIN)
    save(tmp_path, 1, ["a"], [[1]]), save(tmp_path, 2, ["a"], [[1]], step=60)
    with pytest.raises(StepChanged, match="rows are 3600 s apart before 2018-01-02T08:00:00Z and 60 s from then on"):
        opened(tmp_path, "2018-01-01", "2018-01-03", timezone=ZONE).array(READ)
    slot(tmp_path, 3).path.write_text("no")
    with pytest.raises(NotTts, match=r"3\.hdf5: HDF5 can't open it"):
        opened(tmp_path, "2018-01-03", "2018-01-04", timezone=ZONE).array(READ)
    slot(tmp_path, 3).path.unlink()
    with h5py.File(slot(tmp_path, 4).path, "w") as file:
        file["datatargets/timestamps"] = [0, 5, 11]
        file[READ] = np.zeros((3, 1))
        file[READ].attrs["columns"] = np.array([b"a"])
    with pytest.raises(NotTts, match=r"4\.hdf5: the time stamps of datatargets/readbytes are not evenly spaced"):
        opened(tmp_path, "2018-01-04", "2018-01-05", timezone=ZONE).array(READ)


def test_a_file_that_claims_more_rows_than_any_day_has_is_refused_before_memory_is_taken(tmp_path):
    with h5py.File(slot(tmp_path, 1).path, "w") as file:
        file.create_dataset("datatargets/timestamps", (2**33,), np.int64, chunks=(1000,), fillvalue=0)
        file.create_dataset(READ, (2**33, 1), np.float64, chunks=(1000, 1)).attrs["columns"] = np.array([b"a"])
    with pytest.raises(NotTts, match=r"1\.hdf5: datatargets/readbytes has 8589934592 time stamps"):
        opened(tmp_path, "2018-01-01", "2018-01-02", timezone=ZONE).array(READ)


def test_a_span_without_data_is_refused_with_the_days_that_have_files(tmp_path):
    for day in (1, 2, 5):
        save(tmp_path, day, ["a"], [[1]]).path.rename(tmp_path / f"fs-2018-01-{day:02}.hdf5")
    (tmp_path / "fs-2018-01-05.hdf5").rename(tmp_path / "other-2018-01-05.hdf5")
    archive = tokiod.open("fs", "2017-01-01", "2017-01-03", timezone=ZONE, path=f"{tmp_path}/{{system}}-%Y-%m-%d.hdf5")
    for ask in (lambda: archive.array(READ), archive.datasets, lambda: archive.frame(READ), archive.completeness):
        with pytest.raises(NoData, match=r"first missing file: .*; fs has files of 2018-01-01 to 2018-01-02$"):
            ask()


def test_scales_and_other_attributes_of_datasets_change_nothing(days, tmp_path):
    """Netcdf programs find the dimensions of a dataset by HDF5's dimension scales; files are with and without them."""
    whole = opened(days, BEGIN, BEGIN + 86400).array(READ)
    scaled = slot(tmp_path, 1).path
    scaled.write_bytes(slot(days, 1).path.read_bytes())
    with h5py.File(scaled, "r+") as file:
        file["datatargets/timestamps"].make_scale("time")
        file["datatargets/component"] = np.array([b"OST0009", b"OST000a", b"OST0010"])
        file["datatargets/component"].make_scale("component")
        file[READ].dims[0].attach_scale(file["datatargets/timestamps"])
        file[READ].dims[1].attach_scale(file["datatargets/component"])
    found = opened(tmp_path, BEGIN, BEGIN + 86400)
    assert (found.datasets(), found.array(READ).columns) == ((READ, "datatargets/readrates"), whole.columns)
    np.testing.assert_array_equal(found.array(READ)[...], whole[...])


def test_a_configuration_names_the_archive_and_the_zone_of_dates(tmp_path):
    config = tmp_path / "tokiod.toml"
    config.write_text(f'timezone = "{ZONE}"\n[archive]\npath = "{tmp_path}/{{system}}/%Y-%m-%d.hdf5"\n')
    (tmp_path / "fs").mkdir()
    save(tmp_path / "fs", 1, ["a"], [[1]]).path.rename(tmp_path / "fs" / "2018-01-01.hdf5")
    archive = tokiod.open("fs", "2018-01-01", "2018-01-02", config=config)
    assert (archive.frame(READ).iloc[0, 0], str(archive.frame(READ).index.tz)) == (1, ZONE)
    with pytest.raises(UnclearTime, match="has no time zone"):
        tokiod.open("fs", "2018-01-01 10:00", "2018-01-02", config=config)


def test_a_reader_follows_growth_sealing_and_reopening_and_never_sees_a_cell_that_was_not_written(tmp_path):
    """A writer commits rows of one number; readers see whole rows of committed numbers, while the file is replaced again and again."""
    place = save(tmp_path, 1, ["a", "b", "c"], np.full((24, 3), 1.0))
    archive, stop, faults, reads = opened(tmp_path, place.start, place.end), threading.Event(), [], []
    matrix = archive.array(READ)

    def read():
        while not stop.is_set():
            try:
                values = matrix[...]
            except Exception as error:  # noqa: BLE001 - any is a fault
                faults.append(error)
                return
            reads.append(values.max())
            if not (values[12:] == 1).all() or not np.isin(values[:12], np.arange(1, 200)).all():
                faults.append(values)
                return

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    number = 1.0
    for _ in range(6):
        file = LiveFile.open(place.path)
        for _ in range(4):
            number += 1
            file.cells[READ].write_rows(0, np.full((12, 3), number))
            file.commit()
        seal(file, place.path, updated=place.end)
        file.close()
        unseal(place.path, created=place.end).close()
    stop.set()
    for reader in readers:
        reader.join()
    assert faults == []
    assert reads
    assert (matrix[:12] == number).all()


def test_the_files_are_closed_with_the_archive_and_never_more_open_than_the_limit(days):
    def descriptors():
        return [fd for fd in Path("/proc/self/fd").iterdir() if fd.exists() and days in fd.readlink().parents]

    gc.collect()
    before = len(descriptors())
    with opened(days, BEGIN, END) as archive:
        archive.array(READ)[...]
        assert len(descriptors()) > before
    assert len(descriptors()) == before
