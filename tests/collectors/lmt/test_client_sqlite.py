"""Saved copies, and files that grow or are replaced, as real SQLite files."""

import asyncio
import datetime as dt
import os
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import apsw
import lmt_database
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from users import as_another_user

from collectors import lmt
from collectors.lmt import client_sqlite
from collectors.lmt.client import RowRange
from collectors.lmt.client_sqlite import BlockIndex, Copy
from collectors.lmt.datasets import DATASETS, TABLES
from tokiod.collector import Site
from tokiod.dropped import Why, escaped
from tokiod.errors import Fatal, NotYet, TokiodError, Transient
from tokiod.testing.clock import FakeClock
from tokiod.testing.collector_contract import CollectorContract, collected, samples, within
from tokiod.window import Calendar, Window

START, STEP, ZONE, FIRST = lmt_database.START, lmt_database.STEP, lmt_database.ZONE, lmt_database.FIRST_TS_ID
SITE = Site(Calendar(ZONE), FakeClock())
KEYS = ("primary", "none", "rowless", "time")


def saved(*paths, **options):
    return lmt.saved(list(paths), lmt.Saved(**options), SITE)


def live(path, **options):
    return lmt.live(lmt.Config(name="lmt", kind="lmt", system="lc1", url=path.as_uri().replace("file:", "sqlite:"), **options), SITE)


def means(collector, window):
    return lmt_database.samples_of(within(collector, lambda c: collected(c, window)), window)


class TestContract(CollectorContract):
    @pytest.fixture
    def path(self, tmp_path):
        return lmt_database.save(tmp_path / "copy.sqlite3", lmt_database.tables(steps=25))

    @pytest.fixture
    def collector(self, path):
        return lambda: live(path)

    @pytest.fixture
    def saved(self, path):
        return lambda: saved(path)

    @pytest.fixture
    def window(self):
        return Window(START, START + 24 * STEP)

    @pytest.fixture
    def datasets(self):
        return DATASETS


@pytest.mark.parametrize("order", ["by time", "by component", "as it comes"])
@pytest.mark.parametrize("keys", KEYS)
def test_a_copy_means_what_its_rows_mean_whatever_keys_and_order_it_has(tmp_path, keys, order):
    content = lmt_database.tables(steps=400)
    for table in ("OST_DATA", "OSS_DATA", "MDS_DATA", "MDS_OPS_DATA"):
        if order == "by component":
            content[table].sort()
        elif order == "as it comes":
            np.random.default_rng(3).shuffle(content[table])
            content[table] = [tuple(v.item() if hasattr(v, "item") else v for v in row) for row in content[table]]
    path = lmt_database.save(tmp_path / "copy.sqlite3", content, keys)
    windows = [Window(START, START + 400 * STEP), Window(START + 60, START + 120), Window(START + 1000, START + 1500)]

    async def all_of(collector):
        return [lmt_database.samples_of(await collected(collector, window), window) for window in windows]

    wanted = [lmt_database.meaning(content, window) for window in windows]
    assert within(saved(path), all_of) == wanted
    assert within(live(path), lambda c: collected_each(c, windows[1:])) == wanted[1:]


async def collected_each(collector, windows):
    return [lmt_database.samples_of(await collected(collector, window), window) for window in windows]


@st.composite
def contents(draw):
    """Databases with holes, NULLs, time stamps off the grid or repeated, unknown components, duplicates, and MDTs that share a host."""
    content = lmt_database.tables(steps=6, osts=2, osss=2, mdts=3)
    seconds = sorted(draw(st.lists(st.integers(0, 29), min_size=6, max_size=6)))
    content["TIMESTAMP_INFO"] = [(FIRST + k, lmt_database.local(START + second)) for k, second in enumerate(seconds)]
    for table, own in (("OST_DATA", 2), ("OSS_DATA", 2), ("MDS_DATA", 2), ("MDS_OPS_DATA", 3)):
        rows = draw(st.lists(st.sampled_from(content[table]), max_size=30, unique_by=lambda row, own=own: row[:own]))
        null = draw(st.lists(st.tuples(st.integers(0, 29), st.integers(own, own + 5)), max_size=10))
        for place, column in null:
            if place < len(rows) and column < len(rows[place]):
                rows[place] = (*rows[place][:column], None, *rows[place][column + 1 :])
        if table == "MDS_OPS_DATA":
            again = draw(st.lists(st.integers(0, 29), max_size=5))
            rows += [(*rows[place][:3], draw(st.none() | st.integers(0, 2**62)), 0, 0) for place in again if place < len(rows)]
            rows += [(1, FIRST, 999, 5, 0, 0), (77, FIRST, 80, 5, 0, 0)]
        content[table] = rows
    content["OST_DATA"].append((77, FIRST, 1, 1, 0.0, 1, 1, 1, 1))
    content["OST_DATA"].append((1, FIRST + 99, 1, 1, 0.0, 1, 1, 1, 1))
    return content


@given(contents(), st.sampled_from(KEYS), st.sampled_from(["mdt", "host"]), st.sampled_from([5, 10]))
def test_any_rows_give_the_cells_of_the_slow_reference(tmp_path_factory, content, keys, mdt_names, step):
    path = lmt_database.save(tmp_path_factory.mktemp("lmt") / "copy.sqlite3", content, keys)
    window = Window(START, START + 30)
    found = within(saved(path, mdt_names=mdt_names, step=step), lambda c: collected(c, window))
    assert lmt_database.samples_of(found, window, step) == lmt_database.meaning(content, window, step, mdt_names=mdt_names)
    assert len(found) == len(DATASETS)
    os.unlink(path)  # noqa: PTH108 - Path.unlink is the same


def test_columns_are_the_whole_inventory_in_lmts_order_even_without_a_row(tmp_path):
    content = lmt_database.tables(steps=2, osts=3, mdts=3) | {"OST_DATA": [], "OSS_DATA": [], "MDS_DATA": [], "MDS_OPS_DATA": []}
    found = within(saved(lmt_database.save(tmp_path / "copy", content)), lambda c: collected(c, Window(START, START + 10)))
    assert {batch.dataset.split("/")[0]: batch.columns for batch in found} == {
        "datatargets": ("lc1-OST0000", "lc1-OST0001", "lc1-OST0002"),
        "fullness": ("lc1-OST0000", "lc1-OST0001", "lc1-OST0002"),
        "dataservers": ("oss1", "oss2"),
        "mdservers": ("mds1", "mds2"),
        "mdtargets": ("lc1-MDT0000", "lc1-MDT0001", "lc1-MDT0002"),
    }
    assert {batch.dataset for batch in found} == DATASETS
    assert sum(map(len, found)) == 0


def test_counters_past_2_to_the_53_keep_every_digit(tmp_path):
    content = lmt_database.tables(steps=1, osts=1)
    content["OST_DATA"] = [(1, FIRST, 2**62 + 1, 2**53 + 1, 0.0, 1, 2, 3, 4)]
    found = means(saved(lmt_database.save(tmp_path / "copy", content)), Window(START, START + 5))
    assert found["datatargets/readbytes"] == {("lc1-OST0000", 0): 2**62 + 1}
    assert found["datatargets/writebytes"] == {("lc1-OST0000", 0): 2**53 + 1}


def test_floats_keep_every_digit(tmp_path):
    content = lmt_database.tables(steps=1)
    content["OSS_DATA"] = [(1, FIRST, 2.669020175933838, 1 / 3)]
    found = means(saved(lmt_database.save(tmp_path / "copy", content)), Window(START, START + 5))
    assert (found["dataservers/cpuload"], found["dataservers/memused"]) == ({("oss1", 0): 2.669020175933838}, {("oss1", 0): 1 / 3})


def test_time_stamps_may_be_written_with_a_t_and_fractions(tmp_path):
    content = lmt_database.tables(steps=3)
    plain = means(saved(lmt_database.save(tmp_path / "plain", content)), Window(START, START + 15))
    content["TIMESTAMP_INFO"] = [(ts_id, shown.replace(" ", "T") + ".250") for ts_id, shown in content["TIMESTAMP_INFO"]]
    assert means(saved(lmt_database.save(tmp_path / "other", content)), Window(START, START + 15)) == plain


def test_a_column_of_numbers_that_is_not_there_leaves_its_datasets_empty(tmp_path):
    content = lmt_database.tables(steps=2)
    columns = lmt_database.COLUMNS | {"OST_DATA": lmt_database.COLUMNS["OST_DATA"][:5]}
    content["OST_DATA"] = [row[:5] for row in content["OST_DATA"]]
    window = Window(START, START + 10)
    found = means(saved(lmt_database.save(tmp_path / "copy", content, columns=columns)), window)
    assert DATASETS - set(found) == {"fullness/bytes", "fullness/bytestotal", "fullness/inodes", "fullness/inodestotal"}


def test_the_memory_of_metadata_servers_is_stored_where_the_table_has_it_also_of_one_copy_of_two(tmp_path):
    content = lmt_database.tables(steps=2)
    columns = lmt_database.COLUMNS | {"MDS_DATA": (*lmt_database.COLUMNS["MDS_DATA"], "PCT_MEMORY")}
    without = lmt_database.save(tmp_path / "without", content)
    content["MDS_DATA"] = [(*row, 12.5) for row in content["MDS_DATA"]]
    window = Window(START, START + 10)
    path = lmt_database.save(tmp_path / "with", content, columns=columns)
    expected = {("mds1", 0): 12.5, ("mds1", 1): 12.5}
    assert means(saved(path), window)["mdservers/memused"] == expected
    assert means(lmt.saved([path, without], lmt.Saved(), SITE), window)["mdservers/memused"] == expected
    assert "mdservers/memused" not in means(saved(without), window)


def test_time_stamps_left_far_away_by_a_stopped_clock_do_not_make_a_range_of_everything(tmp_path):
    content = lmt_database.tables(steps=4)
    content["TIMESTAMP_INFO"].append((FIRST + 10**9, content["TIMESTAMP_INFO"][1][1]))
    content["OST_DATA"].append((1, FIRST + 10**9, 7, 8, 0.0, 1, 2, 3, 4))
    window = Window(START, START + 20)
    found = means(saved(lmt_database.save(tmp_path / "copy", content)), window)
    assert found == lmt_database.meaning(content, window)
    assert found["datatargets/readbytes"]["lc1-OST0000", 1] == 7


@pytest.mark.parametrize("malformed", [b"\x00\x88#,", "x", 7.5, None])
def test_a_ts_id_that_is_not_a_number_is_dropped_and_counted_and_the_rest_is_read(tmp_path, malformed):
    """`make fuzz` found it in its 865,000th file, seed 645737155."""
    content = lmt_database.tables(steps=4)
    path, window = lmt_database.save(tmp_path / "copy", content, keys="none"), Window(START, START + 20)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE TIMESTAMP_INFO SET TS_ID = ? WHERE TS_ID = ?", (malformed, FIRST + 1))
    data = within(saved(path), lambda c: c.collect(window))
    found = lmt_database.samples_of(data.batches, window)
    content["TIMESTAMP_INFO"] = [row for row in content["TIMESTAMP_INFO"] if row[0] != FIRST + 1]
    assert found == lmt_database.meaning(content, window)
    assert data.dropped == {"TS_ID that is not a number": 1}


NO_INTEGER, NO_NUMBER = "value that is not an integer of 64 bits", "value that is not a number"
WHERE = f"1, TS_ID {FIRST + 1}"


@pytest.mark.parametrize("keys", ["primary", "none"])
@pytest.mark.parametrize("opened", [saved, live])
@pytest.mark.parametrize(
    "value", [1.2e19, 1e30, 7.5, float("inf"), "text", "", "12 GB", "1,5", "0x10", str(2**63), b"\x00\x88", b"12", -(2**63)]
)
def test_what_is_no_integer_of_64_bits_is_missing_and_counted(tmp_path, opened, keys, value):
    """Each became a cell: 0, or the largest integer."""
    content = lmt_database.tables(steps=5)
    path = lmt_database.save(tmp_path / "copy.sqlite3", content, keys)
    window = Window(START, START + 15)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE OST_DATA SET READ_BYTES = ?, KBYTES_FREE = ? WHERE OST_ID = 1 AND TS_ID = ?", (value, value, FIRST + 1))
        db.execute("UPDATE MDS_OPS_DATA SET SAMPLES = ? WHERE OPERATION_ID = 80 AND TS_ID = ?", (value, FIRST + 1))
    data = within(opened(path), lambda c: c.collect(window))
    for table, changed in (("OST_DATA", (2, 5)), ("MDS_OPS_DATA", (3,))):
        for place in changed:
            is_it = {"OST_DATA": lambda row: row[0] == 1, "MDS_OPS_DATA": lambda row: row[2] == 80}[table]
            content[table] = [
                (*row[:place], None, *row[place + 1 :]) if row[1] == FIRST + 1 and is_it(row) else row for row in content[table]
            ]
    assert lmt_database.samples_of(data.batches, window) == lmt_database.meaning(content, window)
    assert data.dropped == {NO_INTEGER: 4}
    shown = "" if isinstance(value, int) else str(value)
    assert data.why == {NO_INTEGER: Why(escaped(f"OST_DATA.READ_BYTES of OST_ID {WHERE}: {shown}"), "write a number or NULL into the row")}


@pytest.mark.parametrize("keys", ["primary", "none"])
@pytest.mark.parametrize("value", ["text", "", "n/a", "1,5", b"12", float("inf"), -float("inf")])
def test_what_is_no_number_is_missing_and_counted_and_the_rest_is_read(tmp_path, keys, value):
    """A text refused the whole file."""
    content = lmt_database.tables(steps=5)
    path = lmt_database.save(tmp_path / "copy.sqlite3", content, keys)
    window = Window(START, START + 20)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE OSS_DATA SET PCT_CPU = ? WHERE OSS_ID = 1 AND TS_ID = ?", (value, FIRST + 1))
    data = within(saved(path), lambda c: c.collect(window))
    content["OSS_DATA"] = [(*row[:2], None, row[3]) if row[:2] == (1, FIRST + 1) else row for row in content["OSS_DATA"]]
    assert lmt_database.samples_of(data.batches, window) == lmt_database.meaning(content, window)
    assert data.dropped == {NO_NUMBER: 1}
    assert data.why[NO_NUMBER].example == escaped(f"OSS_DATA.PCT_CPU of OSS_ID {WHERE}: {value}")


@pytest.mark.parametrize("keys", ["primary", "none"])
def test_a_number_that_is_written_as_text_or_as_a_float_is_that_number(tmp_path, keys):
    content = lmt_database.tables(steps=5)
    path = lmt_database.save(tmp_path / "copy.sqlite3", content, keys)
    window = Window(START, START + 20)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE OST_DATA SET WRITE_BYTES = CAST(WRITE_BYTES AS TEXT), KBYTES_USED = CAST(KBYTES_USED AS REAL)")
        db.execute("UPDATE OSS_DATA SET PCT_CPU = ' ' || PCT_CPU || ' ', PCT_MEMORY = CAST(PCT_MEMORY AS TEXT)")
        db.execute("UPDATE MDS_OPS_DATA SET SAMPLES = SAMPLES || '.0'")
    data = within(saved(path), lambda c: c.collect(window))
    assert lmt_database.samples_of(data.batches, window) == lmt_database.meaning(content, window)
    assert data.dropped == {}


@pytest.mark.parametrize(("used", "free"), [(2**63 - 1, 5), (2**62, 2**62), (-5, 100), (100, -5)])
def test_a_sum_with_an_implausible_part_is_missing_and_counted(tmp_path, used, free):
    """It overflowed to -9.2e18 KiB."""
    content = lmt_database.tables(steps=2, osts=1)
    content["OST_DATA"][0] = (*content["OST_DATA"][0][:5], free, used, 3, 4)
    data = within(saved(lmt_database.save(tmp_path / "copy", content)), lambda c: c.collect(Window(START, START + 10)))
    found = lmt_database.samples_of(data.batches, Window(START, START + 10))
    assert list(found["fullness/bytestotal"]) == [("lc1-OST0000", 1)]
    assert (found["fullness/inodes"]["lc1-OST0000", 0], found["fullness/inodestotal"]["lc1-OST0000", 0]) == (4, 7)
    assert data.dropped == {"implausible": 1}
    assert data.why["implausible"].example == f"{used} + {free} in fullness/bytestotal"


@pytest.mark.parametrize("keys", ["primary", "none", "time"])
@pytest.mark.parametrize(
    ("value", "reason"), [("x", "TS_ID that is not a number"), (FIRST + 1.5, NO_INTEGER), (None, "TS_ID that is not a number")]
)
def test_a_row_whose_ts_id_is_not_a_number_is_counted(tmp_path, keys, value, reason):
    content = lmt_database.tables(steps=5)
    path = lmt_database.save(tmp_path / "copy.sqlite3", content, keys)
    window = Window(START, START + 20)
    with closing(sqlite3.connect(path)) as db, db:
        for table in ("OST_DATA", "OSS_DATA"):
            db.execute(f"UPDATE {table} SET TS_ID = ? WHERE {table[:3]}_ID = 1 AND TS_ID = ?", (value, FIRST + 1))
    data = within(saved(path), lambda c: c.collect(window))
    for table in ("OST_DATA", "OSS_DATA"):
        content[table] = [row for row in content[table] if row[:2] != (1, FIRST + 1)]
    assert lmt_database.samples_of(data.batches, window) == lmt_database.meaning(content, window)
    assert data.dropped == {reason: 2}


@pytest.mark.parametrize("keys", ["primary", "none", "time"])
def test_a_row_whose_key_is_text_is_read_where_it_is_a_number_and_counted_where_not(tmp_path, keys):
    content = lmt_database.tables(steps=5)
    path = lmt_database.save(tmp_path / "copy.sqlite3", content, keys)
    window = Window(START, START + 20)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE OST_DATA SET OST_ID = '1' WHERE OST_ID = 1")
        db.execute("UPDATE OSS_DATA SET OSS_ID = 'one' WHERE OSS_ID = 1")
    data = within(saved(path), lambda c: c.collect(window))
    content["OSS_DATA"] = [row for row in content["OSS_DATA"] if row[0] != 1]
    assert lmt_database.samples_of(data.batches, window) == lmt_database.meaning(content, window)
    assert data.dropped == {NO_INTEGER: 4}


DELETED = "its rows were deleted, or never written: copy them from a backup, then backfill"


@pytest.mark.parametrize("opened", [saved, live])
@pytest.mark.parametrize("keys", ["primary", "none"])
def test_steps_whose_rows_were_deleted_are_counted(tmp_path, opened, keys):
    """Sites delete rows (LLNL/lmt#22), and the cells were missing without a word."""
    content = lmt_database.tables(steps=9)
    content["OST_DATA"] = [row for row in content["OST_DATA"] if row[1] not in (FIRST + 2, FIRST + 3)]
    content["MDS_OPS_DATA"] = []
    window = Window(START, START + 40)
    data = within(opened(lmt_database.save(tmp_path / "copy.sqlite3", content, keys)), lambda c: c.collect(window))
    assert lmt_database.samples_of(data.batches, window) == lmt_database.meaning(content, window)
    assert data.dropped == {"step without a row of OST_DATA": 2, "step without a row of MDS_OPS_DATA": 8}
    assert data.why == {
        "step without a row of OST_DATA": Why("the step of 2018-01-28T08:00:10Z", DELETED),
        "step without a row of MDS_OPS_DATA": Why("the step of 2018-01-28T08:00:00Z", DELETED),
    }


def test_the_steps_of_the_capture_without_the_rows_that_a_site_deleted_are_counted(tmp_path):
    shared = Path(os.environ.get("TOKIOD_SHARED", Path(__file__).parents[3].parent / "shared"))
    capture = shared / "data/lmt/snx11025_2018-01-28.sqlite3"
    if not capture.is_file():
        pytest.skip(f"the capture is not here: {capture}")
    path = tmp_path / "deleted.sqlite3"
    path.write_bytes(capture.read_bytes())
    with closing(sqlite3.connect(path)) as db, db:
        for table in ("OST_DATA", "OSS_DATA", "MDS_DATA", "MDS_OPS_DATA"):
            db.execute(f"DELETE FROM {table} WHERE TS_ID < {FIRST} + 30")
    window = Window(START, START + 300)
    whole, rest = (within(saved(one), lambda c: c.collect(window)) for one in (capture, path))
    assert whole.dropped == {}
    assert rest.dropped == {f"step without a row of {table}": 30 for table in ("OST_DATA", "OSS_DATA", "MDS_DATA", "MDS_OPS_DATA")}
    assert [batch.value.tolist() for batch in rest.batches] == [batch.value[batch.time >= START + 150].tolist() for batch in whole.batches]


def test_a_restarted_cerebrod_s_second_ts_id_of_a_step_is_no_step_without_rows(tmp_path):
    content = lmt_database.tables(steps=5)
    content["TIMESTAMP_INFO"].append((FIRST + 9, content["TIMESTAMP_INFO"][1][1]))
    path, window = lmt_database.save(tmp_path / "copy", content), Window(START, START + 20)
    assert within(saved(path), lambda c: c.collect(window)).dropped == {}


@pytest.mark.parametrize("keys", ["primary", "none"])
def test_rows_of_a_component_that_is_not_listed_are_counted(tmp_path, keys):
    content = lmt_database.tables(steps=5)
    del content["OST_INFO"][1]
    content["OSS_INFO"][0] = (*content["OSS_INFO"][0][:2], None, None)
    path, window = lmt_database.save(tmp_path / "copy", content, keys), Window(START, START + 15)
    data = within(saved(path), lambda c: c.collect(window))
    assert lmt_database.samples_of(data.batches, window) == lmt_database.meaning(content, window)
    assert data.dropped == {"row of an unlisted component": 6}
    assert data.why["row of an unlisted component"] == Why(f"OST_DATA of OST_ID 2, TS_ID {FIRST}", "list it in OST_INFO")


@pytest.mark.parametrize("opened", [saved, live])
def test_a_missing_column_and_a_missing_operation_are_counted_once(tmp_path, opened):
    content = lmt_database.tables(steps=9)
    columns = lmt_database.COLUMNS | {"OST_DATA": ("OST_ID", "TS_ID", "BYTES_READ", *lmt_database.COLUMNS["OST_DATA"][3:])}
    content["OPERATION_INFO"] = [(*row[:1], row[1].replace("close", "shut"), row[2]) for row in content["OPERATION_INFO"]]
    path = lmt_database.save(tmp_path / "copy.sqlite3", content, columns=columns)

    async def two(collector):
        return [await collector.collect(Window(START + start, START + start + 15)) for start in (0, 15)]

    first, second = within(opened(path), two)
    assert first.dropped == {"missing column or operation": 2}
    assert first.why == {"missing column or operation": Why("OST_DATA.READ_BYTES", "its datasets have no cells")}
    assert second.dropped == {}


@pytest.mark.parametrize("opened", [saved, live])
@pytest.mark.parametrize("shown", ["2018-01-28T08:00:05Z", "2018-01-28 00:00:05-08:00", "2018-01-28T08:00:05+00:00", "2018-01-28 noon"])
def test_a_time_stamp_that_is_not_a_local_time_is_counted_and_not_taken_for_one(tmp_path, opened, shown):
    """SQLite makes UTC of a time with a zone, which was taken for a local one: it moved by hours."""
    content = lmt_database.tables(steps=5)
    whole = dict(content)
    content["TIMESTAMP_INFO"] = [(ts_id, shown if ts_id == FIRST + 1 else local) for ts_id, local in content["TIMESTAMP_INFO"]]
    window = Window(START, START + 20)
    data = within(opened(lmt_database.save(tmp_path / "copy.sqlite3", content)), lambda c: c.collect(window))
    whole["TIMESTAMP_INFO"] = [row for row in whole["TIMESTAMP_INFO"] if row[0] != FIRST + 1]
    assert lmt_database.samples_of(data.batches, window) == lmt_database.meaning(whole, window)
    reason = "time stamp that is not a local time"
    assert data.dropped == {reason: 1}
    assert data.why[reason] == Why(f"TS_ID {FIRST + 1}: {shown}", "write it as YYYY-MM-DD hh:mm:ss, local time without a zone")


@pytest.mark.parametrize("shown", [1517126400, "01/28/2018 00:00:00", "2018-01-28T08:00:05Z", None])
def test_a_copy_without_any_local_time_is_refused_with_one_as_an_example(tmp_path, shown):
    content = lmt_database.tables(steps=3)
    content["TIMESTAMP_INFO"] = [(ts_id, shown) for ts_id, _ in content["TIMESTAMP_INFO"]]
    path = lmt_database.save(tmp_path / "copy", content)
    with pytest.raises(
        Fatal, match=f'no time stamp that is a local time, but "{shown}" in TIMESTAMP_INFO: write it as YYYY-MM-DD hh:mm:ss'
    ):
        means(saved(path), Window(START, START + 15))


class TestSeveralCopies:
    def test_copies_of_two_days_are_read_as_one(self, tmp_path):
        whole = lmt_database.tables(steps=20)
        parts = []
        for name, chosen in (("first", range(FIRST, FIRST + 11)), ("second", range(FIRST + 9, FIRST + 20))):
            part = {t: [r for r in rows if "DATA" not in t or r[1] in chosen] for t, rows in whole.items()}
            part["TIMESTAMP_INFO"] = [row for row in whole["TIMESTAMP_INFO"] if row[0] in chosen]
            parts.append(lmt_database.save(tmp_path / name, part))
        window = Window(START, START + 100)
        assert means(saved(*parts), window) == lmt_database.meaning(whole, window)

    def test_the_later_copy_is_right_and_an_ost_that_came_later_gets_its_column(self, tmp_path):
        old, new = lmt_database.tables(steps=2, osts=1), lmt_database.tables(steps=2, osts=2)
        new["OST_DATA"] = [(*row[:2], row[2] + 1, *row[3:]) for row in new["OST_DATA"]]
        paths = [lmt_database.save(tmp_path / name, content) for name, content in (("old", old), ("new", new))]
        window = Window(START, START + 10)
        assert means(saved(*paths), window) == lmt_database.meaning(new, window)


class TestWithoutHarm:
    def test_a_copy_is_not_written_to_and_no_file_appears_next_to_it(self, tmp_path):
        path = lmt_database.save(tmp_path / "copy", lmt_database.tables())
        path.chmod(stat.S_IRUSR)
        before = path.read_bytes(), path.stat()
        assert means(saved(path), Window(START, START + 30))
        assert (path.read_bytes(), path.stat().st_mtime_ns) == (before[0], before[1].st_mtime_ns)
        assert list(tmp_path.iterdir()) == [path]

    @pytest.mark.parametrize("keys", KEYS)
    @pytest.mark.parametrize("order", ["time", "component"])
    def test_a_window_does_not_scan_the_file(self, tmp_path, keys, order):
        content = lmt_database.tables(steps=4000, osts=4)
        if order == "component":
            content["OST_DATA"].sort()
        copy = Copy(lmt_database.save(tmp_path / "copy", content, keys), finished=True)
        ask = RowRange(TABLES[0], TABLES[0].columns, (1, 2, 3, 4), (), FIRST + 2000, FIRST + 2011)
        copy.numbers(ask)
        touched = sum(
            copy.db.execute(f"SELECT count(*) FROM OST_DATA WHERE {where.split(' AND +TS_ID')[0]}").fetchone()[0]
            for where in copy._conditions(ask)
        )
        copy.close()
        assert touched <= 8 * 1024

    @pytest.mark.parametrize("keys", KEYS)
    def test_the_time_stamps_of_a_day_are_found_without_reading_all(self, tmp_path, keys):
        content = lmt_database.tables(steps=1) | {"TIMESTAMP_INFO": [(k, lmt_database.local(START + k * 60)) for k in range(20 * 1440)]}
        with closing(Copy(lmt_database.save(tmp_path / "copy", content, keys), finished=True)) as copy:
            near = copy.stamps_near(*(lmt_database.local(START + day * 86_400) for day in (9, 10)))
            rows = copy.db.execute(f"SELECT TS_ID FROM TIMESTAMP_INFO WHERE {near}").fetchall()
        assert {(k,) for k in range(9 * 1440, 10 * 1440 + 1)} <= set(rows)
        assert len(rows) <= (20 * 1440 if keys == "rowless" else 1440 + 2 * 1024)

    def test_memory_does_not_grow_with_the_rows_of_a_window(self, tmp_path):
        copy = Copy(lmt_database.save(tmp_path / "copy", lmt_database.tables(steps=50)), finished=True)
        ask = RowRange(TABLES[0], TABLES[0].columns, tuple(range(10_000)), (), FIRST, FIRST + 49)
        with closing(copy):
            assert {(part.first, part.last) for part in lmt_parts(ask)} == {
                (FIRST + k, min(FIRST + k + 5, FIRST + 49)) for k in range(0, 50, 6)
            }
            assert sorted(copy.numbers(ask)[0].tolist()) == sorted(copy.numbers(replace(ask, keys=(1, 2, 3)))[0].tolist())


def lmt_parts(ask):
    from collectors.lmt.client_sqlite import _parts  # noqa: PLC0415 - the one test that looks inside

    return _parts(ask)


@given(st.lists(st.integers(0, 99), min_size=1, max_size=60), st.integers(1, 9), st.integers(0, 99), st.integers(0, 30))
def test_zones_name_every_block_that_may_hold_a_ts_id_and_no_other(ts_ids, size, first, length):
    blocks = [ts_ids[at : at + size] for at in range(0, len(ts_ids), size)]
    zones = BlockIndex(10, size, np.array([min(block) for block in blocks]), np.array([max(block) for block in blocks]))
    last = first + length
    named = {at for start, end in zones.ranges(first, last) for at in range(start, end + 1)}
    hit = [k for k, block in enumerate(blocks) if min(block) <= last and max(block) >= first]
    assert named == {10 + k * size + i for k in hit for i in range(size)}


SHOWN = st.one_of(
    st.datetimes(dt.datetime(2018, 1, 27), dt.datetime(2018, 1, 30)).map(str),  # noqa: DTZ001 - local, as LMT stores it
    st.datetimes(dt.datetime(2018, 1, 27), dt.datetime(2018, 1, 30)).map(dt.datetime.isoformat),  # noqa: DTZ001
    st.sampled_from(
        [None, "", "x", b"\xff", "9999-12-31 23:59:59", "-4713-11-24 12:00:00", "2018-01-29", "2018-01-29 24:00:00", 7, 2458147.5]
    ),
)


@given(st.lists(SHOWN, max_size=40), st.integers(1, 5), st.integers(0, 72), st.integers(0, 30))
def test_no_time_stamp_is_missed_where_only_some_rows_are_read(stamps, size, first, hours):
    content = lmt_database.tables(steps=1) | {"TIMESTAMP_INFO": list(enumerate(stamps))}
    edges = [str(dt.datetime(2018, 1, 27) + dt.timedelta(hours=hour)) for hour in (first, first + hours)]  # noqa: DTZ001
    sql = "SELECT TS_ID FROM TIMESTAMP_INFO WHERE {} AND datetime(TIMESTAMP) >= ? AND datetime(TIMESTAMP) <= ? ORDER BY TS_ID"
    with (
        TemporaryDirectory() as directory,
        mock.patch.object(client_sqlite, "BLOCK_ROWS", size),
        closing(Copy(lmt_database.save(Path(directory) / "copy", content), finished=True)) as copy,
    ):
        near, whole = (copy.db.execute(sql.format(where), edges).fetchall() for where in (copy.stamps_near(*edges), "TRUE"))
    assert near == whole


class TestStopped:
    """A database that gets no rows any more: retired, restored, or of an LMT that is down."""

    STEPS = 25
    LAST = Window(START + (STEPS - 1) * STEP, START + STEPS * STEP)
    ACROSS = Window(LAST.start - STEP, LAST.end + STEP)

    @staticmethod
    def reached(collector, window):
        """Return where the database ends as far as it can be seen, None where that is not known; "complete" for a complete window."""

        async def asked():
            try:
                return "complete" if (await collector.collect(window)).batches else None
            except NotYet as error:
                return error.ended_at

        return asked()

    @pytest.mark.parametrize(("age", "wait"), [(60, 600), (80_000, 600), (3 * 86400, 10), (-3600, 600)])
    def test_its_last_time_stamp_is_complete_once_none_has_come_for_long_by_whatever_clock(self, tmp_path, age, wait):
        content = lmt_database.tables(steps=self.STEPS)
        path = lmt_database.save(tmp_path / "copy", content)
        clock = FakeClock(self.LAST.start + age)

        async def run(collector):
            states = []
            for seconds in (0, wait - 1, 1):
                await clock.advance(seconds)
                states += [await self.reached(collector, window) for window in (self.LAST, self.ACROSS)]
            found = await collected(collector, self.LAST)
            records = [(await collector.collect(Window(start, start + STEP))).records for start in (START, self.LAST.start)]
            assert records == [None, await collector.count(self.LAST)]
            with closing(sqlite3.connect(path)) as db, db:
                later = lmt_database.tables(steps=self.STEPS + 1)["TIMESTAMP_INFO"][-1:]
                lmt_database.add(db, {"TIMESTAMP_INFO": [(FIRST + self.STEPS + 100, later[0][1])]})
            return states, found, await self.reached(collector, Window(self.LAST.end, self.LAST.end + STEP))

        site = Site(Calendar(ZONE), clock)
        url = path.as_uri().replace("file:", "sqlite:")
        stopped = lmt.live(lmt.Config(name="lmt", kind="lmt", system="lc1", url=url), site)
        states, found, resumed = within(stopped, run)
        assert states == [None] * 4 + ["complete", self.LAST.end]
        assert lmt_database.samples_of(found, self.LAST) == lmt_database.meaning(content, self.LAST)
        assert resumed is None

    def test_one_without_time_stamps_ends_before_any_window(self, tmp_path):
        path = lmt_database.save(tmp_path / "copy", lmt_database.tables() | {"TIMESTAMP_INFO": []})
        clock = FakeClock(self.LAST.start)

        async def run(collector):
            first = await self.reached(collector, self.LAST)
            await clock.advance(10)
            return first, await self.reached(collector, self.LAST)

        url = path.as_uri().replace("file:", "sqlite:")
        empty = lmt.live(lmt.Config(name="lmt", kind="lmt", system="lc1", url=url), Site(Calendar(ZONE), clock))
        assert within(empty, run) == (None, 0)


class TestGrowing:
    def test_a_window_is_ready_once_a_time_stamp_at_its_end_is_there(self, tmp_path):
        whole = lmt_database.tables(steps=5)
        path = lmt_database.save(tmp_path / "live", {t: [] if "DATA" in t or t == "TIMESTAMP_INFO" else rows for t, rows in whole.items()})

        async def poll(collector):
            found = []
            for k in range(5):
                window = Window(START + (k - 1) * STEP, START + k * STEP)
                with pytest.raises(NotYet):
                    await collected(collector, window)
                with closing(sqlite3.connect(path)) as db, db:
                    lmt_database.add(
                        db,
                        {
                            t: [r for r in whole[t] if r[t != "TIMESTAMP_INFO"] == FIRST + k]
                            for t in whole
                            if "DATA" in t or t == "TIMESTAMP_INFO"
                        },
                    )
                found.append(lmt_database.samples_of(await collected(collector, window), window))
            return found

        windows = [Window(START + (k - 1) * STEP, START + k * STEP) for k in range(5)]
        assert within(live(path), poll) == [lmt_database.meaning(whole, window) for window in windows]

    @pytest.mark.parametrize("keys", KEYS)
    def test_rows_added_after_a_window_was_read_are_in_the_next_one(self, tmp_path, keys):
        whole = lmt_database.tables(steps=9)
        half = {t: [r for r in rows if "DATA" not in t or r[1] < FIRST + 4] for t, rows in whole.items()}
        path = lmt_database.save(tmp_path / "live", half, keys)
        window = Window(START, START + 40)

        async def before_and_after(collector):
            before = lmt_database.samples_of(await collected(collector, window), window)
            with closing(sqlite3.connect(path)) as db, db:
                lmt_database.add(db, {t: rows[len(half[t]) :] for t, rows in whole.items()})
            return before, lmt_database.samples_of(await collected(collector, window), window)

        assert within(live(path), before_and_after) == (lmt_database.meaning(half, window), lmt_database.meaning(whole, window))

    def test_an_ost_that_appears_gets_its_column(self, tmp_path):
        before, after = lmt_database.tables(osts=2), lmt_database.tables(osts=3)
        path = lmt_database.save(tmp_path / "live", before)

        async def columns(collector):
            first = (await collected(collector, Window(START, START + 5)))[0].columns
            with closing(sqlite3.connect(path)) as db, db:
                lmt_database.add(db, {"OST_INFO": after["OST_INFO"][2:]})
            return first, (await collected(collector, Window(START, START + 5)))[0].columns

        assert within(live(path), columns) == (("lc1-OST0000", "lc1-OST0001"), ("lc1-OST0000", "lc1-OST0001", "lc1-OST0002"))

    def test_saved_copies_are_final_at_their_newest_time_stamp(self, tmp_path):
        content = lmt_database.tables(steps=3)
        window = Window(START, START + 3600)
        assert means(saved(lmt_database.save(tmp_path / "copy", content)), window) == lmt_database.meaning(content, window)


class TestReplacedFiles:
    window = Window(START, START + 30)

    def test_a_file_that_was_replaced_is_read_anew(self, tmp_path):
        path = lmt_database.save(tmp_path / "live", lmt_database.tables(osts=1))

        async def through_a_replacement(collector):
            first = (await collected(collector, self.window))[0].columns
            os.replace(lmt_database.save(tmp_path / "new", lmt_database.tables(osts=2)), path)  # noqa: PTH105 - as a copy job does
            return first, (await collected(collector, self.window))[0].columns

        assert within(live(path), through_a_replacement) == (("lc1-OST0000",), ("lc1-OST0000", "lc1-OST0001"))

    @pytest.mark.parametrize("damage", ["cut", "empty", "text", "gone", "torn"])
    def test_a_file_that_is_half_there_is_transient_and_read_once_it_is_whole(self, tmp_path, damage):
        path = lmt_database.save(tmp_path / "live", lmt_database.tables(steps=60))
        whole = path.read_bytes()

        async def through_damage(collector):
            first = await samples(collector, self.window)
            spoil(path, whole, damage)
            with pytest.raises(Transient, match=r"cannot be read now|is empty"):
                await collected(collector, self.window)
            path.unlink(missing_ok=True)
            path.write_bytes(whole)
            return first == await samples(collector, self.window)

        assert within(live(path), through_damage)

    @pytest.mark.parametrize("damage", ["cut", "torn"])
    def test_a_damaged_copy_is_fatal(self, tmp_path, damage):
        path = lmt_database.save(tmp_path / "copy", lmt_database.tables(steps=60))
        spoil(path, path.read_bytes(), damage)
        with pytest.raises(Fatal, match="damaged"):
            means(saved(path), self.window)

    @pytest.mark.parametrize("page_bytes", [512, 4096, 65536])
    def test_a_copy_whose_last_page_is_cut_is_fatal(self, tmp_path, page_bytes):
        """SQLite read zeros there, and rows were missing without a word."""
        path = lmt_database.save(tmp_path / "copy", lmt_database.tables(steps=60))
        with closing(sqlite3.connect(path)) as db:
            db.execute(f"PRAGMA page_size = {page_bytes}")
            db.execute("VACUUM")
        whole = path.read_bytes()
        assert means(saved(path), self.window)
        path.write_bytes(whole[:-400])
        with pytest.raises(Fatal, match=f"damaged: it has {len(whole) - 400} of {len(whole)} bytes"):
            means(saved(path), self.window)

    def test_a_file_that_another_process_writes_to_is_waited_for(self, tmp_path, monkeypatch):
        monkeypatch.setattr(client_sqlite, "BUSY_SECONDS", 0.05)
        path = lmt_database.save(tmp_path / "live", lmt_database.tables())

        async def beside_a_writer(collector):
            with writing(path), pytest.raises(Transient, match="locked"):
                await collected(collector, self.window)
            return await samples(collector, self.window)

        assert within(live(path), beside_a_writer)


@contextmanager
def writing(path):
    """Another process, which holds the file's lock: within one, the locks of two SQLite libraries would not see each other."""
    lock = "db = sqlite3.connect(sys.argv[1], isolation_level=None); db.execute('BEGIN EXCLUSIVE')"
    code = f"import sqlite3, sys; {lock}; print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        writer.stdout.readline()
        yield
        writer.communicate("\n")


def spoil(path, whole, damage):
    path.unlink()
    contents = {
        "cut": whole[: len(whole) // 2],
        "empty": b"",
        "text": b"not a database\n" * 500,
        "torn": whole[:4096] + bytes(len(whole) - 4096),
    }
    if damage in contents:
        path.write_bytes(contents[damage])


class TestRefusals:
    window = Window(START, START + 30)

    def refused(self, collector, kind=Fatal):
        with pytest.raises(kind) as caught:
            within(collector, lambda c: collected(c, self.window))
        return str(caught.value)

    @pytest.mark.parametrize("table", sorted(set(lmt_database.COLUMNS) - {"FILESYSTEM_INFO"}))
    def test_a_missing_table_is_named(self, tmp_path, table):
        content = lmt_database.tables()
        del content[table]
        path = lmt_database.save(tmp_path / "copy", content)
        assert self.refused(saved(path)) == f"{path} has no {table}: is it a whole LMT database of schema 1.1, and may its user read it?"

    def test_a_missing_key_column_is_named(self, tmp_path):
        content = lmt_database.tables()
        columns = lmt_database.COLUMNS | {"OST_DATA": ("OST", *lmt_database.COLUMNS["OST_DATA"][1:])}
        assert "has no OST_DATA.OST_ID:" in self.refused(saved(lmt_database.save(tmp_path / "copy", content, columns=columns)))

    def test_a_copy_without_time_stamps_is_an_error(self, tmp_path):
        content = lmt_database.tables() | {"TIMESTAMP_INFO": []}
        path = lmt_database.save(tmp_path / "copy", content)
        assert "has no time stamps" in self.refused(saved(path))
        assert "has no time stamps" in self.refused(live(path), NotYet)

    def test_a_missing_window_is_reported_with_the_zone_of_the_time_stamps(self, tmp_path):
        path = lmt_database.save(tmp_path / "live", lmt_database.tables(steps=3))
        message = self.refused(live(path), NotYet)
        assert message == f"{path} has reached 2018-01-28T08:00:10Z (2018-01-28 00:00:10 in {ZONE}), not yet 2018-01-28T08:00:30Z"

    def test_a_file_that_is_missing_or_not_sqlite_is_refused_at_once(self, tmp_path):
        (tmp_path / "text").write_text("hello")
        with pytest.raises(TokiodError, match="is not a SQLite file"):
            saved(tmp_path / "text")
        with pytest.raises(TokiodError, match="No such file"):
            saved(tmp_path / "gone")

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
    def test_a_file_that_must_not_be_read_is_fatal(self, tmp_path):
        directory = tmp_path / "closed"
        directory.mkdir()
        path = lmt_database.save(directory / "live", lmt_database.tables())
        directory.chmod(0)
        try:
            assert "let tokiod's user read it" in self.refused(live(path))
        finally:
            directory.chmod(0o700)


def test_a_copy_whose_ts_id_is_text_is_refused(tmp_path):
    """Tables that were made from CSV: no row was found, and none was counted."""
    path = lmt_database.save(tmp_path / "copy", lmt_database.tables(steps=4))
    with closing(sqlite3.connect(path)) as db, db:
        rows = db.execute("SELECT * FROM OST_DATA").fetchall()
        names = [name for _, name, *_ in db.execute("PRAGMA table_info(OST_DATA)")]
        db.execute("DROP TABLE OST_DATA")
        db.execute(f"CREATE TABLE OST_DATA ({', '.join(f'{name} TEXT' for name in names)})")
        db.executemany(f"INSERT INTO OST_DATA VALUES ({', '.join('?' * len(names))})", rows)
    with pytest.raises(Fatal, match="TS_ID of OST_DATA is declared as TEXT: make it an INTEGER"):
        means(saved(path), Window(START, START + 15))


def test_a_name_with_spaces_and_percent_signs_is_a_name(tmp_path):
    path = lmt_database.save(tmp_path / "a copy of 100% ?#.sqlite3", lmt_database.tables())
    assert within(live(path), lambda c: samples(c, Window(START, START + 10)))
    assert within(saved(path), lambda c: samples(c, Window(START, START + 10)))


def test_a_long_query_ends_soon_after_it_was_cancelled(tmp_path):
    collector = saved(lmt_database.save(tmp_path / "copy", lmt_database.tables()))
    forever = f"SELECT count(*) FROM {', '.join(f'OST_DATA t{n}' for n in range(8))}"

    async def cancelled(c):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await c._database.select(forever)
        return await samples(c, Window(START, START + 10))

    assert within(collector, cancelled)


def test_the_reader_of_a_write_ahead_log_sees_what_is_committed(tmp_path):
    path = lmt_database.save(tmp_path / "live", lmt_database.tables(steps=4))
    whole = lmt_database.tables(steps=8)
    window = Window(START, START + 35)
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        with db:
            lmt_database.add(
                db,
                {
                    t: [r for r in rows if r[t != "TIMESTAMP_INFO"] >= FIRST + 4]
                    for t, rows in whole.items()
                    if "DATA" in t or t == "TIMESTAMP_INFO"
                },
            )
        assert means(live(path), window) == lmt_database.meaning(whole, window)
        assert means(saved(path), window) == lmt_database.meaning(whole, window)
        (tmp_path / "links").mkdir()
        link = tmp_path / "links" / "latest"
        link.symlink_to(path)
        assert means(saved(link), window) == lmt_database.meaning(whole, window)


def test_a_write_ahead_log_in_a_directory_that_the_user_may_not_write_is_named():
    tables, window = lmt_database.tables(steps=4), Window(START, START + 15)
    with TemporaryDirectory() as name:
        path = lmt_database.save(Path(name) / "live", tables)
        for mode in ("WAL", "DELETE"):
            with closing(sqlite3.connect(path)) as db:
                db.execute(f"PRAGMA journal_mode = {mode}")
            Path(name).chmod(0o555)
            with as_another_user():
                if mode == "WAL":
                    with pytest.raises(
                        Fatal, match=f"{path} is in WAL mode, .* where it may write to {name}: PRAGMA journal_mode = DELETE"
                    ):
                        means(live(path), window)
                else:
                    assert means(live(path), window) == lmt_database.meaning(tables, window)
            Path(name).chmod(0o755)


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"


def altered(path, *statements):
    lmt_database.save(path, lmt_database.tables(steps=5))
    with closing(sqlite3.connect(path)) as db, db:
        for statement in statements:
            db.execute(statement)
    return path


@pytest.mark.parametrize(
    ("statements", "what"),
    [
        (
            ["DROP TABLE OST_INFO", "CREATE VIEW OST_INFO AS SELECT 1 OST_ID, 1 OSS_ID, printf('%.*c', 300000000, 'x') OST_NAME"],
            "view, 'OST_INFO'",
        ),
        (
            [
                "DROP TABLE OST_INFO",
                f"CREATE VIEW OST_INFO AS {ENDLESS} SELECT i OST_ID, 1 OSS_ID, 'x' OST_NAME FROM n",
            ],
            "view, 'OST_INFO'",
        ),
        (["CREATE VIRTUAL TABLE words USING fts5(x)"], "virtual table, 'words'"),
        (["CREATE TRIGGER t AFTER INSERT ON OST_INFO BEGIN SELECT 1; END"], "trigger, 't'"),
        (
            ["DROP TABLE OST_INFO", "CREATE TABLE OST_INFO (OST_ID, OSS_ID, OST_NAME AS (printf('%.*c', 300000000, 'x')))"],
            "generated column, OST_INFO.OST_NAME",
        ),
    ],
)
@pytest.mark.parametrize("opened", [saved, live])
def test_a_copy_with_a_program_in_its_schema_is_refused(tmp_path, statements, what, opened):
    with pytest.raises(Fatal, match="only copies with nothing but tables are read") as error:
        means(opened(altered(tmp_path / "copy.sqlite3", *statements)), Window(START, START + 20))
    assert what in str(error.value)


def test_a_copy_s_own_indexes_and_other_tables_are_accepted(tmp_path):
    path = altered(tmp_path / "copy.sqlite3", "CREATE INDEX i ON OST_DATA (TS_ID)", "CREATE TABLE notes (x)", "ANALYZE")
    assert means(saved(path), Window(START, START + 20)) == lmt_database.meaning(lmt_database.tables(steps=5), Window(START, START + 20))


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM notes", "SELECT printf('%.*c', 300000000, 'x')", "DELETE FROM OST_INFO",
        "ATTACH ':memory:' AS m", "PRAGMA trusted_schema",
        f"{ENDLESS} SELECT count(*) FROM n",
    ],
)  # fmt: skip
def test_a_connection_can_only_read_the_tables_of_lmt(tmp_path, statement):
    copy = Copy(altered(tmp_path / "copy.sqlite3", "CREATE TABLE notes (x)"), finished=True)
    with closing(copy), pytest.raises(apsw.Error):
        copy.db.execute(statement).fetchall()


def test_a_value_is_no_longer_than_the_limit(tmp_path):
    path = altered(tmp_path / "copy.sqlite3", f"UPDATE OST_INFO SET OST_NAME = zeroblob({17 << 20})")
    with pytest.raises(Fatal, match="or is damaged: string or blob too big"):
        means(saved(path), Window(START, START + 20))


def test_a_query_that_does_not_end_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(client_sqlite, "QUERY_SECONDS", -1.0)
    monkeypatch.setattr(client_sqlite, "OPCODES_PER_CHECK", 1)
    with pytest.raises(Fatal, match="a query did not end within -1 s"):
        means(saved(altered(tmp_path / "copy.sqlite3")), Window(START, START + 20))
