import errno
import os
import time
from contextlib import closing
from typing import get_args

import numpy as np
import pytest
from faulty_files import FaultyFiles, SimulatedKill
from grown_file import grow
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tokiod.tts.layout import Kind
from tokiod.tts.live import create as create_module
from tokiod.tts.live import rewrite as rewrite_module
from tokiod.tts.live.create import Plan, build, create
from tokiod.tts.live.files import REAL, sweep
from tokiod.tts.live.live_file import FileLost, LiveFile, SyncFailed, set_aside
from tokiod.tts.live.rewrite import CopyFile, GrowFile, SealFile
from tokiod.tts.schema import ABSENT
from tokiod.tts.spec import FileSpec, GroupSpec, MatrixSpec

LATER, READ = 1_517_200_000, "datatargets/readbytes"


def grown_bits(before, wider):
    """What a grown file must hold: the old bits, and fill in new columns and datasets."""
    expected = {}
    for dataset, matrix in wider.matrices.items():
        rows = wider.rows(dataset.split("/")[0])
        for name, height, fill in (
            (dataset, rows, ABSENT),
            (f"_tokiod/raw/{dataset}", rows + 1, ABSENT),
            (f"_tokiod/span/{dataset}", 2, -1),
            (f"_tokiod/begin/{dataset}", 5, ABSENT),
        ):
            if name == dataset or matrix.counter:
                old = before.get(name, [[]] * height)
                expected[name] = [row + [fill] * (len(matrix.columns) - len(row)) for row in old]
    return expected


def test_a_grown_file_keeps_every_bit_and_has_room_for_the_rest(make, spec, widened, fill, bits):
    live = make(spec)
    fill(live)
    before = bits(live.path)
    grown = grow(live, widened, LATER)
    assert grown.spec == spec.merged(widened)
    assert grown.cells["datatargets/readbytes"].columns == ("fs-OST0010", "fs-OST0009", "fs-OST000a", "fs-OST0011")
    assert bits(grown.path) == grown_bits(before, grown.spec)
    with pytest.raises(OSError, match="Bad file descriptor"):
        live.cells["fullness/bytes"].read(0, 1)
    grown.close()


def layout(live):
    """All that a live file knows of its matrices, and where they lie."""
    kinds = get_args(Kind)
    places = [(kind, name, m._offset, m.rows, m.columns, m.dtype) for kind in kinds for name, m in live.matrices(kind).items()]
    return live.spec, list(live.spec.matrices), places


def test_a_file_that_was_just_built_is_opened_as_hdf5_reads_it(tmp_path, spec, widened):
    plan = Plan(spec.merged(widened), LATER)
    locations = build(path := tmp_path / "fs.hdf5", plan, REAL, lambda: None)
    with closing(LiveFile.built(path, plan, locations, REAL)) as known, closing(LiveFile.open(path)) as read:
        assert layout(known) == layout(read)


@pytest.mark.parametrize("kind", [GrowFile, CopyFile])
def test_a_rewrite_is_not_finished_before_its_work(make, spec, widened, kind):
    live = make(spec)
    rewrite = kind(live, spec.merged(widened), LATER) if kind is GrowFile else kind(live, LATER)
    with pytest.raises(RuntimeError, match=r"finish\(\) before work\(\)"):
        rewrite.finish()
    assert [path.name for path in live.path.parent.iterdir()] == [live.path.name]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.sampled_from("abcdefgh"), min_size=1, unique=True), min_size=1, max_size=4), st.sampled_from([64, 4096, 2**23]))
def test_any_number_of_growths_keeps_every_cell_under_its_name(tmp_path_factory, growths, slice_bytes):
    path = tmp_path_factory.mktemp("grow") / "fs.hdf5"
    specs = [
        FileSpec(0, 60, {"datatargets": GroupSpec(5, "lmt")}, {"datatargets/readbytes": MatrixSpec(tuple(columns), counter=True)})
        for columns in growths
    ]
    create(path, specs[0], created=1)
    live, expected = LiveFile.open(path), {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(create_module, "SLICE_BYTES", slice_bytes)
        for n, spec in enumerate(specs):
            live = grow(live, spec, LATER)
            for matrix in (live.cells["datatargets/readbytes"], live.raw["datatargets/readbytes"]):
                column = np.array([matrix.index[c] for c in growths[n]])
                matrix.assign(np.full(len(column), n), column, np.full(len(column), n + 1, matrix.dtype))
            expected |= {(n, c): n + 1 for c in growths[n]}
    for matrix in (live.cells["datatargets/readbytes"], live.raw["datatargets/readbytes"]):
        values = matrix.read(0, matrix.rows)
        rows, columns = np.nonzero(values.view(np.int64) != ABSENT)
        found = {(r, matrix.columns[c]): values[r, c] for r, c in zip(rows.tolist(), columns.tolist(), strict=True)}
        assert found == expected
    live.close()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 11), st.integers(0, 3)), max_size=6), st.integers(1, 12), st.integers(1, 12))
def test_a_new_day_has_the_columns_with_a_cell_in_the_last_hours_of_the_day_before(tmp_path_factory, filled, hours, rows_at_once):
    """By a slow reference: whatever the slices are in which the day is read."""
    path, columns = tmp_path_factory.mktemp("recent") / "fs.hdf5", ("d", "c", "b", "a")
    create(path, FileSpec(0, 43200, {"datatargets": GroupSpec(3600, "lmt")}, {READ: MatrixSpec(columns, counter=False)}), created=1)
    with closing(LiveFile.open(path)) as live, pytest.MonkeyPatch.context() as patch:
        for row, column in filled:
            live.cells[READ].assign(np.array([row]), np.array([column]), np.array([0.0]))
        patch.setattr(rewrite_module, "RECENT_SECONDS", hours * 3600)
        patch.setattr(rewrite_module, "SLICE_BYTES", 8 * len(columns) * rows_at_once)
        found = rewrite_module._recent(live, READ, lambda: None)
    last = max((row for row, _ in filled), default=0)
    recent = {columns[column] for row, column in filled if row > last - hours}
    assert found == tuple(name for name in columns if name in recent or not filled)


def test_a_contradiction_leaves_the_file_alone(make, spec):
    live = make(spec)
    other = FileSpec(spec.start, spec.end, {"fullness": GroupSpec(5, "lmt")}, {})
    with pytest.raises(ValueError, match="fullness: rows are 10 s apart, not 5 s"):
        grow(live, other, LATER)
    live.commit()


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power loss"])
def test_wherever_growing_is_cut_off_the_old_or_the_grown_file_is_whole(make, tmp_path, spec, widened, fill, bits, power):
    live = make(spec)
    fill(live)
    live.commit()
    whole, old = live.path.read_bytes(), bits(live.path)
    grow(live, widened, LATER).close()
    new = bits(live.path)
    assert new != old

    found = []
    while True:
        directory = tmp_path / str(len(found))
        directory.mkdir()
        (directory / "fs.hdf5").write_bytes(whole)
        files = FaultyFiles(directory)
        live = LiveFile.open(directory / "fs.hdf5", files)
        files.kill_at(len(found) + 1)
        try:
            grow(live, widened, LATER).close()
        except SimulatedKill:
            live.close()
        else:
            break
        if power:
            files.power_loss(len(found))
        sweep(directory)
        assert [p.name for p in directory.iterdir()] == ["fs.hdf5"]
        found.append(bits(directory / "fs.hdf5"))
        LiveFile.open(directory / "fs.hdf5").close()
    assert all(bits in (old, new) for bits in found)
    assert (found[0], found[-1]) == (old, new)
    if not power:
        assert found == [old] * found.count(old) + [new] * found.count(new)


@pytest.mark.parametrize(("operation", "code"), [("allocate", errno.ENOSPC), ("pwrite", errno.EIO), ("rename", errno.EACCES)])
def test_a_growth_that_fails_leaves_the_old_file_open_and_no_other(make, spec, widened, tmp_path, operation, code):
    files = FaultyFiles(tmp_path)
    live = make(spec, files=files)
    files.fail(operation, 1, code)
    with pytest.raises(OSError, match=os.strerror(code)):
        grow(live, widened, LATER)
    assert [p.name for p in tmp_path.iterdir()] == ["fs.hdf5"]
    live.cells["fullness/bytes"].write_rows(0, np.ones((1, 2)))
    live.commit()


def test_a_file_whose_sync_failed_is_not_grown(make, spec, widened, tmp_path):
    files = FaultyFiles(tmp_path)
    live = make(spec, files=files)
    files.fail("fdatasync", 1, errno.EIO)
    for _ in range(2):
        with pytest.raises(SyncFailed):
            grow(live, widened, LATER)
    assert files.operations.count("fdatasync") == 1


def test_a_file_that_was_replaced_is_not_grown_over(make, spec, widened, tmp_path):
    live = make(spec)
    (tmp_path / "other").write_text("another process's")
    (tmp_path / "other").replace(live.path)
    with pytest.raises(FileLost):
        grow(live, widened, LATER)
    assert live.path.read_text() == "another process's"


@pytest.mark.parametrize("when", ["before the copy", "during the copy"])
@pytest.mark.parametrize("rewrite", [lambda live, spec: GrowFile(live, spec, LATER), lambda live, _: SealFile(live, LATER)])
def test_a_file_that_others_overwrote_is_not_taken_over(make, spec, widened, fill, rewrite, when):
    live = make(spec)
    fill(live)
    live.commit()
    wider = spec.merged(widened)

    def overwrite():
        time.sleep(0.02)
        with live.path.open("r+b") as file:
            file.seek(live.path.stat().st_size // 2)
            file.write(os.urandom(live.path.stat().st_size // 2))

    if when == "before the copy":
        overwrite()
        with pytest.raises(FileLost, match="another process wrote to it"):
            rewrite(live, wider)
        return
    rewriting = rewrite(live, wider)
    rewriting.work(lambda: None)
    overwrite()
    with pytest.raises(FileLost, match="another process wrote to it"):
        rewriting.finish()
    rewriting.abandon()


def test_a_copy_takes_the_place_of_what_is_there_and_the_original_stays_open(make, spec, fill, bits):
    live = make(spec)
    fill(live)
    before = bits(live.path)
    copying = CopyFile(live, LATER)
    copying.work(lambda: None)
    aside = set_aside(live.path, LATER)
    copied = copying.finish()
    assert (bits(copied.path), bits(aside)) == (before, before)
    assert copied.path.stat().st_ino != aside.stat().st_ino
    copied.commit()
    copied.close()
