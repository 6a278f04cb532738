"""Live and sealed files of tokiod 0.1.0 become live files of this version with all their samples, whoever is killed meanwhile."""

from contextlib import closing
from dataclasses import replace

import h5py
import numpy as np
import pytest
from counter_days import slow_day
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from outdated_files import outdate

from tokiod.testing.files import FaultyFiles, SimulatedKill
from tokiod.tts.counters.day_counter import DayCounter
from tokiod.tts.counters.difference_rule import LARGEST, Rule, next_day
from tokiod.tts.layout import form_of, is_outdated, open_for_reading
from tokiod.tts.live.create import create, no_pause
from tokiod.tts.live.files import REAL, sweep
from tokiod.tts.live.live_file import LiveFile, NotLive, OutdatedFile
from tokiod.tts.live.rewrite import ConvertFile, CreateFile, CreateNextDay, GrowFile, UnsealFile
from tokiod.tts.schema import ABSENT, NO_ROW
from tokiod.tts.sealed.seal import seal, unseal
from tokiod.tts.sealed.sealed_counter import state_after
from tokiod.tts.spec import FileSpec, GroupSpec, MatrixSpec

NAME, GAUGE, ROWS = "datatargets/readbytes", "fullness/bytes", 12
GROUPS = {"datatargets": GroupSpec(5, "lmt"), "fullness": GroupSpec(5, "lmt")}
MATRICES = {NAME: MatrixSpec(("b", "a"), counter=True), GAUGE: MatrixSpec(("x",), counter=False)}
DAY = FileSpec(0, 5 * ROWS, GROUPS, MATRICES)
LIMIT = 50
SAMPLES = st.one_of(st.just(ABSENT), st.integers(0, 9), st.integers(0, 400))
COLUMN = st.lists(SAMPLES, min_size=ROWS + 2, max_size=ROWS + 2)
RAW = np.arange(100, 100 + 2 * (ROWS + 2)).reshape(ROWS + 2, 2)


def limit(spec):
    return replace(spec, matrices={n: replace(m, max_step=LIMIT) if m.counter else m for n, m in spec.matrices.items()})


def written_by_older(path, raw, *, is_sealed=False):
    """A day with these raw rows, of which the first and last are the neighbours', as 0.1.0 left it; its cells are by no rule at all."""
    create(path, DAY, created=1)
    live = LiveFile.open(path)
    row, column = np.nonzero(raw[1:] != ABSENT)
    DayCounter.of(live, NAME).store(row, column, raw[1:][row, column])
    live.cells[GAUGE].write_rows(0, np.arange(ROWS, dtype=float)[:, np.newaxis])
    live.commit()
    if is_sealed:
        seal(live, path, 1)
    live.close()
    outdate(path, {NAME: raw[0, ::-1] if is_sealed else raw[0]})
    return path


def converted(path, before=None, files=REAL, *, is_sealed=False):
    rewrite = (UnsealFile if is_sealed else ConvertFile)(path, limit, 2, files, before)
    try:
        rewrite.work(no_pause)
        return rewrite.finish()
    except Exception:
        rewrite.abandon()
        raise


def content(live):
    """Samples, cells, span and state by column name, of a live file that is then closed."""
    matrices = (live.raw[NAME], live.cells[NAME], live.span[NAME], live.begin[NAME])
    found = {name: [m.read(0, m.rows)[:, m.index[name]].view(np.int64).tolist() for m in matrices] for name in ("a", "b")}
    found["gauge"] = live.cells[GAUGE].read(0, ROWS)[:, 0].tolist()
    live.close()
    return found


def expected(raw, begin, rule):
    samples = raw[1:]
    cells, _ = slow_day(samples, begin, rule)
    own, index = samples[:-1], np.arange(ROWS)[:, np.newaxis]
    first = np.where(own > 0, index, ROWS).min(axis=0)
    span = np.stack([np.where(first < ROWS, first, NO_ROW), np.where(own != ABSENT, index, NO_ROW).max(axis=0)])
    found = {name: [each[:, i].view(np.int64).tolist() for each in (samples, cells, span, begin)] for i, name in enumerate("ba")}
    return found | {"gauge": list(range(ROWS))}


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.tuples(COLUMN, COLUMN), st.booleans())
def test_every_cell_is_computed_again_from_the_samples_and_that_of_the_day_before(tmp_path_factory, columns, is_sealed):
    raw = np.array(columns, np.int64).T.copy()
    path = written_by_older(tmp_path_factory.mktemp("day") / "fs.hdf5", raw, is_sealed=is_sealed)
    live = converted(path, is_sealed=is_sealed)
    assert (live.spec.matrices[NAME].max_step, live.sealed_raw) == (LIMIT, False)
    assert content(live) == expected(raw, state_after(raw[0]), Rule(LIMIT))


@pytest.mark.parametrize("is_sealed", [False, True], ids=["live", "sealed"])
def test_where_an_older_version_sealed_the_day_before_its_state_is_taken(tmp_path, is_sealed):
    day_before = RAW.copy()
    day_before[-3:-1] = [[90, 90], [91, ABSENT]]  # two dips
    before = written_by_older(tmp_path / "before.hdf5", day_before, is_sealed=True)
    raw = RAW + 100
    raw[0] = [91, 90]
    path = written_by_older(tmp_path / "fs.hdf5", raw, is_sealed=is_sealed)
    _, end = slow_day(day_before[1:], state_after(day_before[0]), Rule(LIMIT))
    begin = next_day(end, ROWS, 10**6)
    assert begin.T.tolist() == [[91, -1, ABSENT, ABSENT, ABSENT], [121, -3, 90, -2, ABSENT]]
    assert content(converted(path, before, is_sealed=is_sealed)) == expected(raw, begin, Rule(LIMIT))


def test_a_new_file_and_a_grown_one_begin_with_the_state_of_a_day_that_an_older_version_sealed(tmp_path):
    before, path = written_by_older(tmp_path / "before.hdf5", RAW, is_sealed=True), tmp_path / "fs.hdf5"
    narrow = replace(DAY, matrices={NAME: MatrixSpec(("a",), counter=True)})
    make = CreateFile(path, narrow, 2, before=before)
    make.work(no_pause)
    live = make.finish()
    assert live.begin[NAME].read(0, 2)[:, 0].tolist() == [RAW[-2, 1], -1]
    grow = GrowFile(live, live.spec.merged(replace(DAY, matrices={NAME: MatrixSpec(("b",), counter=True)})), 2, before)
    grow.work(no_pause)
    grown = grow.finish()
    assert grown.begin[NAME].read(0, 2).tolist() == [RAW[-2, ::-1].tolist(), [-1, -1]]
    grown.close()


def test_a_new_file_whose_step_is_another_begins_with_the_state_of_an_older_version_in_its_own_rows(tmp_path):
    """Of 5 seconds before and 60 from then on; and a restart that 3 a second make plausible, and 3 a row do not."""
    raw = RAW.copy()
    raw[-4:-1] = [[ABSENT] * 2, [0, 0], [14, 90]]
    before, path = written_by_older(tmp_path / "before.hdf5", raw, is_sealed=True), tmp_path / "fs.hdf5"
    spec = FileSpec(60, 180, {"datatargets": GroupSpec(60, "lmt")}, {NAME: MatrixSpec(("a", "b"), counter=True, max_step=180)})
    make = CreateFile(path, spec, 2, before=before)
    make.work(no_pause)
    live = make.finish()
    _, end = slow_day(raw[1:], state_after(raw[0]), Rule(15))
    assert end.T.tolist() == [[14, 11, ABSENT, ABSENT, ABSENT], [119, 8, 90, 11, ABSENT]]
    assert live.begin[NAME].read(0, 5).T.tolist() == [[119, -2, 90, -1, ABSENT], [14, -1, ABSENT, ABSENT, ABSENT]]
    live.close()


def test_tomorrows_file_is_created_after_a_live_file_of_an_older_version(tmp_path):
    before = written_by_older(tmp_path / "before.hdf5", RAW)
    make = CreateNextDay(tmp_path / "fs.hdf5", before, (DAY.end, 2 * DAY.end), 2, limit)
    make.work(no_pause)
    live = make.finish()
    assert (live.spec.start, live.spec.groups, live.spec.matrices) == (DAY.end, GROUPS, limit(DAY).matrices)
    live.close()


@pytest.mark.parametrize("is_sealed", [False, True], ids=["live", "sealed"])
def test_of_a_file_without_all_samples_no_filled_cell_is_lost(tmp_path, is_sealed):
    path = written_by_older(tmp_path / "fs.hdf5", RAW, is_sealed=is_sealed)
    cells = np.full((ROWS, 2), 2.0)
    if is_sealed:
        with open_for_reading(path) as file:
            assert is_outdated(file)

        with h5py.File(path, "r+") as file:
            file[f"_tokiod/edges/{NAME}"].attrs["proved"] = np.zeros(2, np.uint8)
    else:
        old = LiveFile.open_outdated(path)
        raw = old.raw[NAME].read(0, ROWS + 2)
        raw[4:9] = ABSENT
        old.raw[NAME].write_rows(0, raw)
        old.commit()
        old.close()

        with h5py.File(path, "r+", locking=False) as file:
            file["_tokiod"].attrs["raw_sealed"] = 1
    live = converted(path, is_sealed=is_sealed)
    assert live.sealed_raw
    assert live.cells[NAME].read(0, ROWS).tolist() == cells.tolist()
    live.close()


def test_a_file_of_an_older_version_is_opened_by_its_conversion_only(tmp_path):
    path = written_by_older(tmp_path / "fs.hdf5", RAW)
    with pytest.raises(OutdatedFile, match=r"it is a live file of tokiod 0\.1\.0"):
        LiveFile.open(path)
    with open_for_reading(path) as file:
        assert (form_of(file), is_outdated(file), file["_tokiod"].attrs["form"]) == ("live", True, b"live")
    converted(path).close()
    with pytest.raises(NotLive, match=r"it is not of tokiod 0\.1\.0"):
        LiveFile.open_outdated(path)
    with open_for_reading(path) as file:
        assert (form_of(file), is_outdated(file), file["_tokiod"].attrs["form"]) == ("live", False, b"live 2")


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power loss"])
@pytest.mark.parametrize("is_sealed", [False, True], ids=["live", "sealed"])
def test_wherever_a_conversion_is_cut_off_the_old_or_the_new_file_is_whole(tmp_path_factory, is_sealed, power):
    def begin():
        return written_by_older(tmp_path_factory.mktemp("day") / "fs.hdf5", RAW, is_sealed=is_sealed)

    files = FaultyFiles((path := begin()).parent)
    live = converted(path, files=files, is_sealed=is_sealed)
    steps, wanted = len(files.operations), content(live)
    for step in range(1, steps + 1):
        path = begin()
        files = FaultyFiles(path.parent)
        files.kill_at(step)
        with pytest.raises(SimulatedKill):
            converted(path, files=files, is_sealed=is_sealed).close()
        if power:
            files.power_loss(step)
        sweep(path.parent)
        with open_for_reading(path) as file:
            outdated = is_outdated(file)
        assert content(converted(path, is_sealed=is_sealed) if outdated else LiveFile.open(path)) == wanted, step


def test_a_sealed_file_of_an_older_version_is_unsealed_without_limits_where_none_are_given(tmp_path):
    path = written_by_older(tmp_path / "fs.hdf5", RAW, is_sealed=True)
    with closing(unseal(path, tmp_path / "live.hdf5", created=1)) as live:
        assert live.spec.matrices[NAME].max_step == LARGEST
