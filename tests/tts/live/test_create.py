import errno
import os
import subprocess
from pathlib import Path

import h5py
import numpy as np
import pytest
from faulty_files import FaultyFiles, SimulatedKill

from tokiod.tts.live.create import METADATA_BYTES, SLICE_BYTES, create
from tokiod.tts.live.files import REAL, Files, sweep
from tokiod.tts.live.live_file import LiveFile
from tokiod.tts.schema import ABSENT
from tokiod.tts.spec import FileSpec, GroupSpec, MatrixSpec


class NotesSyncs(Files):
    """Notes how many bytes were written before each sync."""

    def __init__(self) -> None:
        self.unsynced = 0
        self.synced = []

    def pwrite(self, fd, data, offset):
        self.unsynced += data.nbytes
        super().pwrite(fd, data, offset)

    def fdatasync(self, fd):
        self.synced.append(self.unsynced)
        self.unsynced = 0
        super().fdatasync(fd)


OF_OTHER_TOOLS = {
    "missing": ("|S28", b"negative zero (sign bit set)"),
    "DIMENSION_LABELS": ("|O", ["timestamps", "datatarget"]),
}


def fresh(spec):
    """What a new file of this spec holds, matrix by matrix, as bits."""
    found = {}
    for dataset, matrix in spec.matrices.items():
        rows, width = spec.rows(dataset.split("/")[0]), len(matrix.columns)
        found[dataset] = [[ABSENT] * width] * rows
        if matrix.counter:
            found[f"_tokiod/raw/{dataset}"] = [[ABSENT] * width] * (rows + 1)
            found[f"_tokiod/span/{dataset}"] = [[-1] * width] * 2
            found[f"_tokiod/begin/{dataset}"] = [[ABSENT] * width] * 5
    return found


def test_every_cell_of_a_new_file_is_missing_every_sample_absent_every_span_empty(tmp_path, spec, bits):
    create(tmp_path / "fs.hdf5", spec, created=1)
    assert bits(tmp_path / "fs.hdf5") == fresh(spec)


def test_every_matrix_is_contiguous_unfiltered_and_begins_with_a_page(tmp_path, spec):
    create(tmp_path / "fs.hdf5", spec, created=1)
    with h5py.File(tmp_path / "fs.hdf5") as file:
        found = {}
        file.visititems(lambda name, node: found.update({name: node}) if isinstance(node, h5py.Dataset) and node.ndim == 2 else None)
        assert len(found) == 5
        for node in found.values():
            assert (node.chunks, node.compression, node.shuffle, node.id.get_offset() % 4096) == (None, None, False, 0)
            assert node.id.get_storage_size() == node.size * 8


def test_attributes_and_time_stamps_are_those_that_pytokio_writes(tmp_path, spec):
    create(tmp_path / "fs.hdf5", spec, created=1_600_000_000)
    with h5py.File(tmp_path / "fs.hdf5") as file:
        assert dict(file.attrs) == {"version": "1", "start": spec.start, "end": spec.end}
        assert h5py.check_string_dtype(file.attrs.get_id("version").dtype).length is None
        assert file["datatargets"].attrs["source"] == b"lmt"
        assert file["datatargets/timestamps"][...].tolist() == list(range(spec.start, spec.end, 5))
        assert file["fullness/timestamps"][...].tolist() == list(range(spec.start, spec.end, 10))
        attributes = file["datatargets/readbytes"].attrs
        found = {name: (attributes.get_id(name).dtype.str, np.asarray(value).tolist()) for name, value in attributes.items()}
        assert found.pop("DIMENSION_LIST")[0] == "|O"
        assert found == {
            "columns": ("|S10", [b"fs-OST0010", b"fs-OST0009", b"fs-OST000a"]),
            "units": ("|S5", b"bytes"),
            "version": ("|S1", b"1"),
            "updated": ("<i8", 1_600_000_000),
            **OF_OTHER_TOOLS,
        }
        assert file["fullness/bytes"].attrs["units"] == b"KiB"


def test_both_axes_have_dimension_scales_with_the_times_and_the_names_of_components(tmp_path, spec):
    columns = {"readbytes": ("a", "b"), "writebytes": ("a", "b"), "readops": ("a", "c"), "writeops": ("c",)}
    matrices = {f"datatargets/{name}": MatrixSpec(names, counter=False) for name, names in columns.items()}
    create(tmp_path / "fs.hdf5", FileSpec(spec.start, spec.end, spec.groups, matrices), created=1)
    with h5py.File(tmp_path / "fs.hdf5") as file:
        group = file["datatargets"]
        assert dict(group["timestamps"].attrs)["units"] == b"seconds since 1970-01-01 00:00:00 UTC"
        assert group["timestamps"].attrs["step"] == 5
        for name, names in columns.items():
            times, components = (dimension[0] for dimension in group[name].dims)
            assert times == group["timestamps"]
            assert components[...].tolist() == [one.encode() for one in names]
        assert [group[name].dims[1].label for name in columns] == ["datatarget", "datatarget", "datatarget_2", "datatarget_3"]


def test_no_attribute_hides_a_measured_zero(tmp_path, spec):
    """xarray, netCDF and MATLAB compare missing_value and _FillValue with ==, so -0.0 would hide +0.0 too."""
    create(tmp_path / "fs.hdf5", spec, created=1)
    with h5py.File(tmp_path / "fs.hdf5") as file:
        names = set[str]()
        file.visititems(lambda _, node: names.update(node.attrs))
    assert not names & {"missing_value", "_FillValue", "valid_min", "valid_max", "valid_range", "scale_factor", "add_offset"}


def test_twelve_thousand_names_fit_their_attribute(tmp_path):
    columns = tuple(f"fs-OST{i:04x}-and-a-long-name" for i in range(12_000))
    spec = FileSpec(0, 10, {"datatargets": GroupSpec(5, "lmt")}, {"datatargets/readbytes": MatrixSpec(columns, counter=False)})
    create(tmp_path / "fs.hdf5", spec, created=1)
    with h5py.File(tmp_path / "fs.hdf5") as file:
        assert file["datatargets/readbytes"].attrs["columns"].tolist() == [name.encode() for name in columns]
    live = LiveFile.open(tmp_path / "fs.hdf5")
    live.close()
    assert live.spec == spec


def test_the_same_spec_makes_the_same_bytes_at_any_time_and_in_any_order(tmp_path, spec):
    turned = FileSpec(spec.start, spec.end, dict(reversed(spec.groups.items())), dict(reversed(spec.matrices.items())))
    create(tmp_path / "a.hdf5", spec, created=1)
    create(tmp_path / "b.hdf5", turned, created=1)
    assert (tmp_path / "a.hdf5").read_bytes() == (tmp_path / "b.hdf5").read_bytes()


def test_h5dump_reads_a_live_file(tmp_path, spec):
    create(tmp_path / "fs.hdf5", spec, created=1)
    try:
        dumped = subprocess.run(["h5dump", "-d", "/fullness/bytes", str(tmp_path / "fs.hdf5")], capture_output=True, text=True, check=True)
    except FileNotFoundError:
        pytest.skip("h5dump (hdf5-tools) is not installed")
    assert "(3,0): -0, -0" in dumped.stdout


def test_a_new_file_has_all_its_blocks_on_the_disk(tmp_path):
    spec = FileSpec(0, 86_400, {"fullness": GroupSpec(60, "lustre")}, {"fullness/bytes": MatrixSpec(tuple("abcdef"), counter=False)})
    create(tmp_path / "fs.hdf5", spec, created=1)
    status = (tmp_path / "fs.hdf5").stat()
    assert status.st_blocks * 512 >= status.st_size >= 1440 * 6 * 8


def test_the_fill_is_synced_in_slices_with_a_pause_after_each(tmp_path):
    columns = tuple(map(str, range(2000)))
    spec = FileSpec(0, 86_400, {"fullness": GroupSpec(60, "lustre")}, {"fullness/bytes": MatrixSpec(columns, counter=False)})
    files, pauses = NotesSyncs(), []
    create(tmp_path / "fs.hdf5", spec, files, lambda: pauses.append(files.unsynced), created=1)
    assert (len(files.synced), max(files.synced) <= SLICE_BYTES + METADATA_BYTES) == (2, True)
    assert pauses == [0] * len(files.synced)


def test_an_existing_file_is_not_replaced(tmp_path, spec):
    (tmp_path / "fs.hdf5").write_text("precious")
    with pytest.raises(FileExistsError):
        create(tmp_path / "fs.hdf5", spec, created=1)
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("fs.hdf5", "precious")]


def test_a_missing_directory_is_made(tmp_path, spec, bits):
    create(tmp_path / "2018" / "01-28" / "fs.hdf5", spec, created=1)
    assert bits(tmp_path / "2018" / "01-28" / "fs.hdf5") == fresh(spec)


def kill_everywhere(root, act):
    """Do a thing in a fresh directory and kill it at its first operation, then its second, and so on; yield after each kill."""
    step = 0
    while True:
        step += 1
        directory = root / str(step)
        directory.mkdir()
        files = FaultyFiles(directory)
        files.kill_at(step)
        try:
            act(directory, files)
        except SimulatedKill:
            yield step, directory, files
        else:
            assert step > 5
            return


def test_a_kill_at_any_step_leaves_no_file_or_a_whole_one_and_sweep_tidies(tmp_path, spec, bits):
    names = []
    for _, directory, _ in kill_everywhere(tmp_path, lambda d, files: create(d / "fs.hdf5", spec, files, created=1)):
        swept = sweep(directory)
        assert swept in ([], [".fs.hdf5.tmp"])
        names.append(sorted(p.name for p in directory.iterdir()))
        if names[-1]:
            assert bits(directory / "fs.hdf5") == fresh(spec)
    assert names == [[]] * names.count([]) + [["fs.hdf5"]] * names.count(["fs.hdf5"])
    assert names[-1] == ["fs.hdf5"]


def test_power_that_fails_at_any_step_leaves_no_file_or_a_whole_one(tmp_path, spec, bits):
    for step, directory, files in kill_everywhere(tmp_path, lambda d, files: create(d / "fs.hdf5", spec, files, created=1)):
        files.power_loss(step)
        sweep(directory)
        found = {p.name: bits(p) for p in directory.iterdir()}
        assert found in ({}, {"fs.hdf5": fresh(spec)})


def test_a_new_file_is_certain_once_create_has_returned(tmp_path, spec, bits):
    for seed in range(10):
        directory = tmp_path / str(seed)
        directory.mkdir()
        files = FaultyFiles(directory)
        create(directory / "fs.hdf5", spec, files, created=1)
        files.power_loss(seed)
        assert bits(directory / "fs.hdf5") == fresh(spec)


@pytest.mark.parametrize(
    ("operation", "code"),
    [("allocate", errno.ENOSPC), ("pwrite", errno.EIO), ("fsync", errno.EIO), ("rename", errno.EACCES), ("open", errno.EMFILE)],
)
def test_a_failure_leaves_no_file(tmp_path, spec, operation, code):
    files = FaultyFiles(tmp_path)
    files.fail(operation, 1, code)
    with pytest.raises(OSError, match=os.strerror(code)):
        create(tmp_path / "fs.hdf5", spec, files, created=1)
    assert list(tmp_path.iterdir()) == []


def test_too_little_space_is_said_before_anything_is_written(tmp_path):
    class NearlyFull(Files):
        def free_space(self, _path):
            return 3 * 2**20

    columns = tuple(map(str, range(1000)))
    spec = FileSpec(0, 86_400, {"fullness": GroupSpec(60, "lustre")}, {"fullness/bytes": MatrixSpec(columns, counter=False)})
    with pytest.raises(OSError, match="a new file needs 12 MiB, 3 MiB are free") as caught:
        create(tmp_path / "fs.hdf5", spec, NearlyFull(), created=1)
    assert (caught.value.errno, caught.value.filename, list(tmp_path.iterdir())) == (errno.ENOSPC, str(tmp_path), [])


class Boundless(Files):
    """Believes that there is always space."""

    def free_space(self, _path: Path) -> int:
        return 2**50


@pytest.mark.parametrize("files", [REAL, Boundless()], ids=["looked at before", "found by allocation"])
def test_a_real_full_disk_makes_no_file(small_disk, files):
    columns = tuple(map(str, range(1000)))
    spec = FileSpec(0, 86_400, {"fullness": GroupSpec(60, "lustre")}, {"fullness/bytes": MatrixSpec(columns, counter=False)})
    with pytest.raises(OSError, match=r"are free|No space left on device") as caught:
        create(small_disk / "fs.hdf5", spec, files, created=1)
    assert (caught.value.errno, list(small_disk.iterdir())) == (errno.ENOSPC, [])


def test_sweep_takes_away_temporaries_and_nothing_else(tmp_path):
    for name in (".fs.hdf5.tmp", "fs.hdf5", ".hidden", "fs.tmp", ".x.tmp"):
        (tmp_path / name).touch()
    assert sweep(tmp_path) == [".fs.hdf5.tmp", ".x.tmp"]
    assert sorted(p.name for p in tmp_path.iterdir()) == [".hidden", "fs.hdf5", "fs.tmp"]
