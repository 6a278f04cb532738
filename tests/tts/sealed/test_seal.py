import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from faulty_files import FaultyFiles, SimulatedKill
from hypothesis import given, settings
from hypothesis import strategies as st

from tokiod.tts.layout import dataset_names
from tokiod.tts.live.create import create
from tokiod.tts.live.files import Files, sweep
from tokiod.tts.live.live_file import FileLost, LiveFile, NotLive, SyncFailed
from tokiod.tts.schema import ABSENT, natural_key
from tokiod.tts.sealed import chunks
from tokiod.tts.sealed.seal import SealingFailed, seal, sealed_spec, unseal
from tokiod.tts.spec import FileSpec, GroupSpec, MatrixSpec

START, LATER = 1_517_126_400, 1_517_300_000
SHARED = Path(os.environ.get("TOKIOD_SHARED", Path(__file__).parents[4] / "shared"))


def by_name(path):
    """Bits of every cell of a file by dataset, time stamp and column name."""
    found = {}
    with h5py.File(path) as file:
        for group in (name for name in file if not name.startswith("_")):
            stamps = file[group]["timestamps"][...].tolist()
            for name in dataset_names(file[group]):
                values = file[group][name][...].view(np.int64).tolist()
                columns = file[group][name].attrs["columns"].tolist()
                found |= {(group, name, t, c): v for t, row in zip(stamps, values, strict=True) for c, v in zip(columns, row, strict=False)}
    return found


@st.composite
def shapes(draw):
    """Files of any width around the chunks' edges, with any bits in them."""
    step = draw(st.sampled_from([300, 1200, 3600, 7200]))
    rows = draw(st.integers(1, 30))
    width = draw(st.sampled_from([1, 2, 31, 32, 33, 65]))
    return FileSpec(
        0,
        step * rows,
        {"fullness": GroupSpec(step, "lustre")},
        {"fullness/bytes": MatrixSpec(tuple(f"fs-OST{(7 * i) % width:04x}" for i in range(width)), counter=False)}
        if width % 7
        else {"fullness/bytes": MatrixSpec(tuple(f"n{i}" for i in range(width)), counter=False)},
    )


@settings(max_examples=30, deadline=None)
@given(shapes(), st.integers(0, 2**32), st.sampled_from([1, 3, 10, 720]))
def test_sealing_keeps_every_bit_of_every_cell_under_its_name(tmp_path_factory, spec, bits_seed, height):
    directory = tmp_path_factory.mktemp("seal")
    create(directory / "live.hdf5", spec, created=1)
    live = LiveFile.open(directory / "live.hdf5")
    matrix = live.cells["fullness/bytes"]
    patterns = np.random.default_rng(bits_seed).integers(0, 2**64, (matrix.rows, matrix.width), np.uint64)
    matrix.write_rows(0, patterns.view(np.float64))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "CHUNK_ROWS", height)
        seal(live, directory / "sealed.hdf5", LATER)
    live.close()
    assert by_name(directory / "sealed.hdf5") == by_name(directory / "live.hdf5")


def test_a_sealed_file_is_chunked_by_720_rows_and_32_columns_shuffled_compressed_and_in_natural_order(make):
    columns = tuple(f"fs-OST{i:04x}" for i in reversed(range(40)))
    spec = FileSpec(
        START,
        START + 86_400,
        {"datatargets": GroupSpec(60, "lmt"), "fullness": GroupSpec(7200, "lustre")},
        {"datatargets/readbytes": MatrixSpec(columns, counter=True), "fullness/bytes": MatrixSpec(("b", "a"), counter=False)},
    )
    live = make(spec)
    seal(live, live.path, LATER)
    with h5py.File(live.path) as file:
        wide, small = file["datatargets/readbytes"], file["fullness/bytes"]
        assert (wide.shape, wide.chunks, wide.compression, wide.shuffle) == ((1440, 40), (720, 32), "gzip", True)
        assert (small.shape, small.chunks, small.compression, small.shuffle) == ((12, 2), (12, 2), "gzip", True)
        assert wide.attrs["columns"].tolist() == [name.encode() for name in sorted(columns, key=natural_key)]
        assert small.attrs["columns"].tolist() == [b"a", b"b"]
        assert (wide.attrs["updated"], wide.attrs["units"], wide.attrs["version"]) == (LATER, b"bytes", b"1")
        assert dict(file.attrs) == {"version": "1", "start": START, "end": START + 86_400}
        assert file["fullness"].attrs["source"] == b"lustre"
        assert file["fullness/timestamps"][...].tolist() == list(range(START, START + 86_400, 7200))
    assert live.path.stat().st_size < 100_000


def test_a_sealed_file_has_dimension_scales_in_its_own_order(make):
    live = make()
    seal(live, live.path, LATER)
    with h5py.File(live.path) as file:
        node = file["datatargets/readbytes"]
        assert [dimension.label for dimension in node.dims] == ["timestamps", "datatarget"]
        assert node.dims[0][0] == file["datatargets/timestamps"]
        assert node.dims[1][0][...].tolist() == node.attrs["columns"].tolist() == [b"fs-OST0009", b"fs-OST000a", b"fs-OST0010"]


def test_h5dump_reads_a_sealed_file(make, fill):
    live = make()
    fill(live)
    live.cells["fullness/bytes"].write_rows(0, np.array([[1.5, -0.0]]))
    seal(live, live.path, LATER)
    try:
        dumped = subprocess.run(["h5dump", "-d", "/fullness/bytes", str(live.path)], capture_output=True, text=True, check=True)
    except FileNotFoundError:
        pytest.skip("h5dump (hdf5-tools) is not installed")
    assert "(0,0): -0, 1.5" in dumped.stdout


def test_sealing_opening_up_and_sealing_again_gives_the_same_bytes(make, fill, tmp_path):
    live = make()
    fill(live)
    seal(live, tmp_path / "first.hdf5", LATER)
    opened = unseal(tmp_path / "first.hdf5", tmp_path / "again.hdf5", created=1)
    seal(opened, tmp_path / "second.hdf5", LATER)
    opened.close()
    assert (tmp_path / "second.hdf5").read_bytes() == (tmp_path / "first.hdf5").read_bytes()


def sample(live, samples):
    """Put raw samples into a live file's counter, and the span that counters keep of them."""
    raw, span = live.raw["datatargets/readbytes"], live.span["datatargets/readbytes"]
    row, column, value = (np.array(part) for part in zip(*((r, raw.index[c], v) for (r, c), v in samples.items()), strict=True))
    raw.assign(row, column, value)
    spans = np.full((2, raw.width), -1)
    for (r, c), v in sorted(samples.items()):
        i = raw.index[c]
        if r < raw.rows - 1:
            spans[0, i] = r if v != 0 and spans[0, i] < 0 else spans[0, i]
            spans[1, i] = r
    span.write_rows(0, spans)


def samples_of(live):
    raw = live.raw["datatargets/readbytes"]
    values = raw.read(0, raw.rows)
    return {(r, raw.columns[c]): int(values[r, c]) for r, c in zip(*np.nonzero(values != ABSENT), strict=True)}


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.tuples(st.integers(0, 12), st.sampled_from(["c10", "c9", "c1"])), st.sampled_from([0, 0, 5, 2**60]), min_size=1))
def test_what_of_raw_cells_do_not_tell_stays(tmp_path_factory, samples):
    directory = tmp_path_factory.mktemp("edges")
    spec = FileSpec(0, 60, {"datatargets": GroupSpec(5, "lmt")}, {"datatargets/readbytes": MatrixSpec(("c10", "c9", "c1"), counter=True)})
    create(directory / "live.hdf5", spec, created=1)
    live = LiveFile.open(directory / "live.hdf5")
    sample(live, samples)
    seal(live, directory / "sealed.hdf5", LATER)
    opened = unseal(directory / "sealed.hdf5", created=1)
    assert samples_of(opened) == samples
    spans = {c: live.span["datatargets/readbytes"].read(0, 2)[:, i].tolist() for c, i in live.raw["datatargets/readbytes"].index.items()}
    assert spans == {
        c: opened.span["datatargets/readbytes"].read(0, 2)[:, i].tolist() for c, i in opened.raw["datatargets/readbytes"].index.items()
    }
    live.close()
    opened.close()


def test_first_samples_are_found_far_into_a_long_day(make):
    spec = FileSpec(0, 86_400, {"datatargets": GroupSpec(20, "lmt")}, {"datatargets/readbytes": MatrixSpec(("a", "b"), counter=True)})
    live = make(spec)
    sample(live, {(3000, "a"): 0, (3001, "a"): 7, (3002, "a"): 8, (3003, "a"): 9})
    seal(live, live.path, LATER)
    opened = unseal(live.path, created=1)
    assert samples_of(opened) == {(3000, "a"): 0, (3001, "a"): 7, (3002, "a"): 8, (3003, "a"): 9}
    opened.close()


def test_unsealing_gives_a_live_file_with_every_cell_in_place_or_at_another_path(make, fill, tmp_path):
    live = make()
    fill(live)
    cells = by_name(live.path)
    seal(live, live.path, LATER)
    for target in (tmp_path / "other.hdf5", None):
        opened = unseal(live.path, target, created=5)
        assert opened.path == (target or live.path)
        assert by_name(opened.path) == cells
        opened.close()


def test_only_files_that_can_be_unsealed_are_sealed(make, tmp_path):
    live = make()
    assert not sealed_spec(live.path)
    with pytest.raises(NotLive, match="it is live, not sealed"):
        unseal(live.path, created=1)
    seal(live, live.path, LATER)
    assert sealed_spec(live.path)
    with pytest.raises(NotLive, match="it is a sealed file"):
        LiveFile.open(live.path)
    for content in (b"junk", b"", live.path.read_bytes()[:3000]):
        (tmp_path / "junk.hdf5").write_bytes(content)
        assert not sealed_spec(tmp_path / "junk.hdf5")
        with pytest.raises(NotLive, match="HDF5 can't open it"):
            unseal(tmp_path / "junk.hdf5", created=1)
    h5py.File(tmp_path / "other.hdf5", "w").close()
    assert not sealed_spec(tmp_path / "other.hdf5")
    with pytest.raises(NotLive, match="not a TTS file that can be unsealed"):
        unseal(tmp_path / "other.hdf5", created=1)
    with pytest.raises(FileNotFoundError):
        sealed_spec(tmp_path / "missing.hdf5")


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power loss"])
@pytest.mark.parametrize("way", ["sealing", "opening up"])
def test_wherever_sealing_or_opening_up_is_cut_off_the_old_or_the_new_file_is_whole(make, tmp_path, fill, way, power):
    def act(path, files):
        if way == "sealing":
            seal(path, path, LATER, files)
        else:
            unseal(path, files=files, created=1).close()

    live = make()
    fill(live)
    live.commit()
    if way == "opening up":
        seal(live, live.path, LATER)
    old = live.path.read_bytes()
    act(live.path, Files())
    new = live.path.read_bytes()
    assert old != new

    found = []
    while True:
        directory = tmp_path / str(len(found))
        directory.mkdir()
        (directory / "fs.hdf5").write_bytes(old)
        files = FaultyFiles(directory)
        files.kill_at(len(found) + 1)
        try:
            act(directory / "fs.hdf5", files)
        except SimulatedKill:
            pass
        else:
            break
        if power:
            files.power_loss(len(found))
        sweep(directory)
        assert [p.name for p in directory.iterdir()] == ["fs.hdf5"]
        found.append((directory / "fs.hdf5").read_bytes())
    assert set(found) == {old, new}
    if not power:
        assert found == [old] * found.count(old) + [new] * found.count(new)


class Spoils(Files):
    """Changes one byte of what was just synced, as a bad disk or memory would."""

    def __init__(self, place) -> None:
        self.place = place

    def fsync(self, fd):
        super().fsync(fd)
        path = Path(f"/proc/self/fd/{fd}").readlink()
        if path.name.endswith(".tmp"):
            content = bytearray(path.read_bytes())
            content[self.place(path)] ^= 1
            path.write_bytes(content)


def test_a_chunk_that_reads_back_otherwise_is_never_put_in_place_of_the_live_file(make, fill):
    def last_byte_of_first_chunk(path):
        with h5py.File(path) as file:
            chunk = file["fullness/bytes"].id.get_chunk_info(0)
        return chunk.byte_offset + chunk.size - 10

    live = make()
    fill(live)
    live.commit()
    before = live.path.read_bytes()
    with pytest.raises(SealingFailed, match="fullness/bytes does not read back"):
        seal(live, live.path, LATER, Spoils(last_byte_of_first_chunk))
    assert [(p.name, p.read_bytes() == before) for p in live.path.parent.iterdir()] == [("fs.hdf5", True)]


def test_a_file_that_cannot_be_trusted_is_not_sealed(make, tmp_path):
    files = FaultyFiles(tmp_path)
    live = make(files=files)
    live.cells["fullness/bytes"].write_rows(0, np.ones((1, 2)))
    files.fail("fdatasync", 1, errno.EIO)
    with pytest.raises(SyncFailed):
        seal(live, live.path, LATER)
    other = make(name="other.hdf5")
    other.path.unlink()
    with pytest.raises(FileLost):
        seal(other, other.path, LATER)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["fs.hdf5"]


def wide_day(make):
    """A live file whose sealed form fills 8 MiB."""
    names = ("bytes", "inodes", "bytestotal", "inodestotal")
    datasets = [*(f"fullness/{name}" for name in names), "failover/datatargets", "failover/mdtargets"]
    groups = {group: GroupSpec(5, "lustre") for group in ("fullness", "failover")}
    matrix = MatrixSpec(tuple(map(str, range(248))), counter=False)
    live = make(FileSpec(0, 4320, groups, dict.fromkeys(datasets, matrix)))
    for seed, matrix in enumerate(live.cells.values()):
        matrix.write_rows(0, np.random.default_rng(seed).random((864, 248)))
    return live


def test_a_disk_that_is_full_while_sealing_leaves_nothing_and_the_same_file_is_sealed_once_there_is_room(make, small_disk):
    live = wide_day(make)
    with pytest.raises(SealingFailed, match="the sealed file can't be written: No space left on device") as caught:
        seal(live, small_disk / "fs.hdf5", LATER)
    assert (caught.value.errno, list(small_disk.iterdir())) == (errno.ENOSPC, [])
    live.cells["failover/mdtargets"].write_rows(0, np.full((864, 248), -0.0))
    live.cells["failover/datatargets"].write_rows(0, np.full((864, 248), -0.0))
    seal(live, small_disk / "fs.hdf5", LATER)
    assert sealed_spec(small_disk / "fs.hdf5")


def test_a_disk_with_a_few_pages_left_ends_no_process_that_seals(make, small_disk, opened):
    live, status = wide_day(make), os.statvfs(small_disk)
    for free in (0, 1, 2, 3, 4, 5, 10, 100, 1000):
        (small_disk / "other").write_bytes(bytes((status.f_bavail - free) * status.f_frsize))
        with pytest.raises(SealingFailed, match="the sealed file can't be written: No space left on device"):
            seal(live, small_disk / "fs.hdf5", LATER)
        assert opened() == 0
        assert [path.name for path in small_disk.iterdir()] == ["other"]


def test_pause_is_called_after_so_many_chunks_and_each_dataset_written_and_read_back(make, monkeypatch):
    monkeypatch.setattr("tokiod.tts.sealed.seal.CHUNKS_A_PAUSE", 1)
    live, pauses = make(), []
    seal(live, live.path, LATER, pause=lambda: pauses.append(1))
    with h5py.File(live.path) as file:
        chunks = [file[name].id.get_num_chunks() for name in live.cells]
    assert len(pauses) == sum(chunks) + 2 * len(chunks) > 4


def test_of_another_programs_file_named_columns_are_taken_and_the_rest_dropped(tmp_path):
    with h5py.File(tmp_path / "pytokio.hdf5", "w") as file:
        file.attrs.update({"start": 0, "end": 10, "version": "1"})
        group = file.create_group("datatargets")
        group.attrs["source"] = np.bytes_("collectd_disk")
        group.create_dataset("timestamps", data=np.array([0, 5]))
        named = group.create_dataset("readrates", data=np.array([[1.0, 0.0, -0.0], [np.nan, 2.0, -0.0]]), compression="gzip")
        named.attrs["columns"] = np.array([b"bb10", b"bb2"])
        group.create_dataset("writerates", data=np.full((2, 3), -0.0), compression="gzip").attrs["columns"] = np.array([])
    live = unseal(tmp_path / "pytokio.hdf5", created=1)
    assert live.spec == FileSpec(
        0, 10, {"datatargets": GroupSpec(5, "collectd_disk")}, {"datatargets/readrates": MatrixSpec(("bb10", "bb2"), counter=False)}
    )
    cells = live.cells["datatargets/readrates"].read(0, 2)
    assert cells.tobytes() == np.array([[1.0, 0.0], [-0.0, 2.0]]).tobytes()
    live.close()


GOLDEN = sorted((SHARED / "data" / "golden").glob("*.hdf5")) if (SHARED / "data" / "golden").is_dir() else []


@pytest.mark.skipif(not GOLDEN, reason="pytokio's reference files are not there (TOKIOD_SHARED)")
@pytest.mark.parametrize("golden", GOLDEN, ids=lambda path: path.stem)
def test_files_that_pytokio_made_are_unsealed_and_sealed_without_a_difference(golden, tmp_path):
    path = tmp_path / golden.name
    shutil.copy(golden, path)
    live = unseal(path, created=1)
    seal(live, path, LATER)
    live.close()
    compare = [sys.executable, SHARED / "tools" / "tts_diff.py", "--rtol", "0", golden, path]
    compared = subprocess.run(compare, capture_output=True, text=True, check=False)
    assert (compared.returncode, compared.stdout.endswith(" 0 differ\n")) == (0, True), compared.stdout
