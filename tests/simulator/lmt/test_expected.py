import datetime as dt
import math
import sqlite3
from contextlib import closing
from dataclasses import replace
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokiod.simulator import oracle
from tokiod.simulator.lmt.database import Database
from tokiod.simulator.lmt.expected import COUNTERS, GAUGES, Answers
from tokiod.simulator.site import Site
from tokiod.window import Calendar, Window

MIDNIGHT = 1_517_126_400
SITE = Site(epoch=MIDNIGHT - 1800, osts=5, osss=3, mdts=3)
BEFORE, AFTER = Window(MIDNIGHT - 1800, MIDNIGHT), Window(MIDNIGHT, MIDNIGHT + 1800)
WINDOWS = [Window(start, start + 60) for start in range(BEFORE.start, AFTER.end, 60)]
TABLES = {
    "datatargets/readbytes": "SELECT TS_ID, OST_NAME, READ_BYTES FROM OST_DATA NATURAL JOIN OST_INFO",
    "datatargets/writebytes": "SELECT TS_ID, OST_NAME, WRITE_BYTES FROM OST_DATA NATURAL JOIN OST_INFO",
    "dataservers/cpuload": "SELECT TS_ID, HOSTNAME, PCT_CPU FROM OSS_DATA NATURAL JOIN OSS_INFO",
    "dataservers/memused": "SELECT TS_ID, HOSTNAME, PCT_MEMORY FROM OSS_DATA NATURAL JOIN OSS_INFO",
    "mdservers/cpuload": "SELECT TS_ID, HOSTNAME, PCT_CPU FROM MDS_DATA NATURAL JOIN MDS_INFO",
    "fullness/bytes": "SELECT TS_ID, OST_NAME, KBYTES_USED FROM OST_DATA NATURAL JOIN OST_INFO",
    "fullness/bytestotal": "SELECT TS_ID, OST_NAME, KBYTES_USED + KBYTES_FREE FROM OST_DATA NATURAL JOIN OST_INFO",
    "fullness/inodes": "SELECT TS_ID, OST_NAME, INODES_USED FROM OST_DATA NATURAL JOIN OST_INFO",
    "fullness/inodestotal": "SELECT TS_ID, OST_NAME, INODES_USED + INODES_FREE FROM OST_DATA NATURAL JOIN OST_INFO",
    **{
        f"mdtargets/{name}s": "SELECT TS_ID, MDS_NAME, SAMPLES FROM MDS_OPS_DATA NATURAL JOIN MDS_INFO NATURAL JOIN OPERATION_INFO"
        f" WHERE OPERATION_NAME = '{name}'"
        for name in ("open", "close", "mknod", "link", "unlink", "mkdir", "rmdir", "rename", "getxattr", "statfs", "setattr", "getattr")
    },
}


def times_by_ts_id(db, zone):
    """Read local datetimes in the order of TS_IDs: each is the earliest time not before that of the TS_ID before it."""
    times, newest = {}, 0
    for ts_id, stamp in db.execute("SELECT TS_ID, TIMESTAMP FROM TIMESTAMP_INFO ORDER BY TS_ID"):
        local = dt.datetime.fromisoformat(stamp).replace(tzinfo=ZoneInfo(zone))
        newest = min(t for fold in (0, 1) if (t := int(local.replace(fold=fold).timestamp())) >= newest)
        times[ts_id] = newest
    return times


def samples(db, zone, dataset):
    """Return {column: {time: value}}, the latest value that isn't NULL of each time."""
    times, found = times_by_ts_id(db, zone), {}
    for ts_id, column, value in sorted(db.execute(TABLES[dataset])):
        if value is not None:
            found.setdefault(column, {})[times[ts_id]] = value
    return found


def expected(by_time, dataset, file, stored):
    """Return {time: cell} of one column, slowly."""
    seconds = {second for window in stored for second in range(window.start, window.end)}
    known = {t: v for t, v in by_time.items() if t in seconds}
    if dataset in GAUGES:
        return {t: float(v) for t, v in known.items() if file.start <= t < file.end}
    rows = {(t - file.start) // 5: v for t, v in known.items() if t <= file.end}
    max_rate = 5e10 if dataset.startswith("datatargets") else 1e7
    cells = oracle.cells(rows, max_step=5 * max_rate, reach=23 * 720)
    return {file.start + 5 * row: cell for row, cell in cells.items() if row >= 0}


@pytest.fixture(scope="module", params=[1, 2, 3])
def simulated(request, tmp_path_factory):
    site = replace(SITE, seed=request.param)
    path = tmp_path_factory.mktemp("lmt") / "lmt.sqlite3"
    database = Database(path, site)
    database.fill(720)
    database.close()
    with closing(sqlite3.connect(path)) as db:
        yield site, {dataset: samples(db, site.timezone, dataset) for dataset in TABLES}


@pytest.mark.parametrize("file", [BEFORE, AFTER], ids=["evening", "morning"])
@pytest.mark.parametrize(
    "stored",
    [[Window(BEFORE.start, AFTER.end)], [BEFORE], [Window(MIDNIGHT - 5, MIDNIGHT + 605)], WINDOWS[::2], [*WINDOWS[:25], *WINDOWS[33:]], []],
    ids=["all", "evening only", "around midnight", "every other minute", "a hole at midnight", "nothing"],
)
def test_every_cell_is_what_a_slow_reading_of_the_database_and_the_oracle_make_of_the_stored_windows(simulated, file, stored):
    site, database = simulated
    answers = Answers(site, stored).of(file)
    assert answers.keys() == TABLES.keys()
    for dataset, answer in answers.items():
        got = {
            column: {t: v for t, v in zip(answer.timestamps.tolist(), values, strict=True) if not math.isnan(v)}
            for column, values in zip(answer.columns, answer.values.T.tolist(), strict=True)
        }
        assert got == {column: expected(database[dataset].get(column, {}), dataset, file, stored) for column in answer.columns}, dataset


def test_a_measured_zero_is_positive(simulated):
    site, _ = simulated
    for answer in Answers(site, [BEFORE]).of(BEFORE).values():
        assert not np.signbit(answer.values[answer.values == 0]).any()


def test_autumns_day_has_25_hours_and_its_repeated_hour_twice(tmp_path):
    site = Site(1_541_318_400, osts=2, osss=2, mdts=1)  # 2018-11-04T01:00-07:00
    database = Database(tmp_path / "lmt.sqlite3", site)
    database.fill(1800)
    database.close()
    day = Calendar(site.timezone).day(site.epoch)
    file, stored = Window(day.start, day.end), [Window(site.epoch, site.epoch + 9000)]
    answers = Answers(site, stored).of(file)
    with closing(sqlite3.connect(tmp_path / "lmt.sqlite3")) as db:
        for dataset in ("datatargets/readbytes", "dataservers/cpuload"):
            found = samples(db, site.timezone, dataset)
            assert len(answers[dataset].timestamps) == 25 * 720
            for column, values in zip(answers[dataset].columns, answers[dataset].values.T, strict=True):
                got = {int(t): float(v) for t, v in zip(answers[dataset].timestamps, values, strict=True) if not np.isnan(v)}
                assert got == expected(found[column], dataset, file, stored)


@settings(deadline=None, max_examples=30)
@given(
    st.sets(st.sampled_from(WINDOWS)),
    st.sets(st.sampled_from(WINDOWS)),
    st.integers(0, 20),
    st.sampled_from([BEFORE, AFTER]),
    st.booleans(),
)
def test_no_window_that_is_stored_later_changes_a_determined_cell(stored, later, seed, file, late_start):
    site, since = replace(SITE, seed=seed), BEFORE.start + 600 if late_start else None
    stored, more = ({w for w in windows if since is None or w.start >= since} for windows in (stored, stored | later))
    now, then = Answers(site, stored, since).of(file), Answers(site, more, since).of(file)
    for dataset, answer in now.items():
        assert np.array_equal(answer.values[answer.determined], then[dataset].values[answer.determined], equal_nan=True)
        assert (then[dataset].determined >= answer.determined).all()


@pytest.mark.parametrize("watermark", [BEFORE.start + 5, BEFORE.start + 600, MIDNIGHT - 5, MIDNIGHT, MIDNIGHT + 5, MIDNIGHT + 1000])
def test_a_watermark_determines_gauges_up_to_it_and_counters_up_to_one_step_before(watermark):
    for file in (BEFORE, AFTER):
        for dataset, answer in Answers(SITE, [Window(BEFORE.start, watermark)]).of(file).items():
            end = answer.timestamps + (10 if dataset in COUNTERS else 5)
            assert np.array_equal(answer.determined, np.broadcast_to((end <= watermark)[:, np.newaxis], answer.values.shape))


def test_cells_behind_a_hole_are_determined_from_an_anchor_on():
    calm = replace(SITE, trouble=False)
    stored = [Window(BEFORE.start, BEFORE.start + 60), Window(BEFORE.start + 120, BEFORE.end)]
    answer = Answers(calm, stored).of(BEFORE)["mdtargets/opens"]
    first = 24 + 1  # the second sample behind the hole is the first anchor
    assert answer.determined[:, 0].tolist() == [row < 11 or first <= row < 359 for row in range(360)]


def test_a_new_osts_cells_are_missing_before_it_appears():
    growing = replace(SITE, growth=600, trouble=False)
    answers = Answers(growing, [BEFORE]).of(BEFORE)
    for dataset, filled in (("datatargets/readbytes", 239), ("fullness/bytes", 240)):
        assert (~np.isnan(answers[dataset].values)).sum(axis=0).tolist()[-1] == filled


def test_nothing_is_expected_before_the_epoch_or_where_nothing_is_stored():
    file = Window(SITE.epoch - 7200, SITE.epoch - 3600)
    for answer in Answers(SITE, [Window(SITE.epoch, SITE.epoch + 60)]).of(file).values():
        assert np.isnan(answer.values).all()
        assert answer.determined[:-1].all()


def test_a_file_off_the_steps_is_refused():
    with pytest.raises(ValueError, match="does not lie on steps of 5 s"):
        Answers(SITE, []).of(Window(MIDNIGHT + 1, MIDNIGHT + 61))
