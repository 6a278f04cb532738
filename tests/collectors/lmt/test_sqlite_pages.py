"""Tables of real SQLite files, read page by page, against what SQLite itself reads."""

import sqlite3
from contextlib import closing

import apsw
import lmt_database
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from collectors.lmt.client import RowRange
from collectors.lmt.client_sqlite import Copy
from collectors.lmt.datasets import NULL_INTEGER, TABLES
from collectors.lmt.sqlite_pages import PagedFile, PagedTable, Unusual

FIRST = lmt_database.FIRST_TS_ID
NAMES = ("OST_ID", "TS_ID", "A", "B")
INTEGERS = (
    st.none()
    | st.integers(-(2**63), 2**63 - 1)
    | st.sampled_from([k * 2**n + d for n in (7, 15, 23, 31, 47) for k in (-1, 1) for d in (-1, 0)])
)
NUMBERS = INTEGERS | st.floats(allow_nan=False)


def save(path, rows, *, page_bytes=4096, rowids=None, before=(), after=(), table="t (OST_ID, TS_ID, A, B)"):
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as db:
        for statement in (f"PRAGMA page_size = {page_bytes}", *before, f"CREATE TABLE {table}"):
            db.execute(statement)
        for number, row in enumerate(rows):
            rowid = (rowids or {}).get(number)
            db.execute(f"INSERT INTO t (rowid, {', '.join(NAMES)}) VALUES (?, ?, ?, ?, ?)", (rowid, *row))
        for statement in after:
            db.execute(statement)
        db.commit()
    return path


def opened(path, columns=NAMES, check=lambda: None):
    file = PagedFile.opened(path, path.stat(), check)
    with closing(sqlite3.connect(path)) as db:
        ((root,),) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 't'")
    return closing(file), lambda: PagedTable(file, root, columns, ("TS_ID",))


def read(path, first, last, *, exact, columns=NAMES, expected=7):
    file, table = opened(path, columns)
    with file:
        found = table()
        blocks, rows = found.blocks(first, last)
        numbers = found.numbers(NAMES, blocks, first, last, exact=exact, expected=expected)
        assert rows >= numbers.shape[1]
        return numbers


def reference(path, first, last, *, exact):
    with closing(sqlite3.connect(path)) as db:
        rows = db.execute(f"SELECT {', '.join(NAMES)} FROM t WHERE TS_ID BETWEEN ? AND ? ORDER BY rowid", (first, last)).fetchall()
    null = NULL_INTEGER if exact else float("nan")
    values = [[null if value is None else value for value in row] for row in rows]
    return np.array(values, np.int64 if exact else np.float64).reshape(-1, len(NAMES)).T


def same(one, other):
    return one.dtype == other.dtype and one.shape == other.shape and np.array_equal(one, other, equal_nan=one.dtype == np.float64)


@pytest.mark.parametrize("exact", [True, False])
@given(data=st.data(), page_bytes=st.sampled_from([512, 1024, 65536]), span=st.tuples(st.integers(-5, 300), st.integers(0, 300)))
def test_numbers_of_any_size_are_those_that_sqlite_reads(tmp_path_factory, exact, data, page_bytes, span):
    numbers = INTEGERS if exact else NUMBERS
    rows = data.draw(st.lists(st.tuples(numbers, st.integers(-300, 300), numbers, numbers), max_size=200))
    rowids = data.draw(st.dictionaries(st.integers(0, 199), st.integers(-(2**63), 2**63 - 1000), max_size=1))
    deleted = data.draw(st.sets(st.integers(1, 200), max_size=50))
    path = tmp_path_factory.mktemp("pages") / "copy"
    try:
        save(path, rows, page_bytes=page_bytes, rowids=rowids, after=[f"DELETE FROM t WHERE rowid = {number}" for number in deleted])
    except sqlite3.OperationalError:  # the rows after one with the greatest rowid have random ones, or find none
        return
    first, last = span[0], span[0] + span[1]
    assert same(read(path, first, last, exact=exact), reference(path, first, last, exact=exact))


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("order", [range(3000), [n * 1009 % 3000 for n in range(3000)]])
def test_a_table_of_many_levels_is_read_where_a_value_may_be(tmp_path, exact, order):
    path = save(tmp_path / "copy", [(n % 7, n, 2**53 + n, n if n % 3 else None) for n in order], page_bytes=512)
    for first, last in ((0, 3000), (17, 17), (2990, 5000), (-9, -1)):
        assert same(read(path, first, last, exact=exact), reference(path, first, last, exact=exact))
    file, table = opened(path)
    with file:
        assert (table().blocks(17, 17)[1] < 40) == (order[1] == 1)


def test_tables_whose_pages_lie_between_those_of_others_are_read(tmp_path):
    path = tmp_path / "copy"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("PRAGMA page_size = 512")
        db.execute("CREATE TABLE t (OST_ID, TS_ID, A, B)")
        db.execute("CREATE TABLE other (x)")
        for n in range(2000):
            db.execute("INSERT INTO t VALUES (1, ?, ?, 7)", (n, 2**60 + n))
            db.executemany("INSERT INTO other VALUES (?)", [("x" * 300,)] * (n % 100 // 10))
    assert same(read(path, 5, 1900, exact=True), reference(path, 5, 1900, exact=True))


@pytest.mark.parametrize(
    "rows",
    [
        [(1, 1, "7", 2)],
        [(1, 1, b"7", 2)],
        [(1, 1, 7.5, 2)],
        [(1, "1", 7, 2)],
        [(1, None, 7, 2)],
        [(1, 1, "x" * 200, 2)],
        [(1, 1, "x" * 60, 2)],
    ],
)
def test_values_that_are_not_integers_are_left_to_sqlite(tmp_path, rows):
    with pytest.raises(Unusual):
        read(save(tmp_path / "copy", [(1, 1, 1, 1), *rows]), 0, 9, exact=True)


@pytest.mark.parametrize(
    ("table", "after", "columns"),
    [
        ("t (OST_ID, TS_ID, A)", ["ALTER TABLE t ADD COLUMN B DEFAULT 7"], NAMES),
        ("t (OST_ID, TS_ID, A, B, PRIMARY KEY (OST_ID, TS_ID)) WITHOUT ROWID", [], NAMES),
    ],
)
def test_tables_of_another_form_are_left_to_sqlite(tmp_path, table, after, columns):
    path = tmp_path / "copy"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"CREATE TABLE {table}")
        db.execute("INSERT INTO t (OST_ID, TS_ID, A) VALUES (1, 2, 3)")
        for statement in after:
            db.execute(statement)
    with pytest.raises(Unusual):
        read(path, 0, 9, exact=True, columns=columns)


@pytest.mark.parametrize("keys", ["primary", "none", "rowless", "time"])
@pytest.mark.parametrize("odd", [None, "7", 7.9, "x" * 300, b"\1"])
def test_a_copy_gives_the_same_numbers_with_its_pages_and_without(tmp_path, keys, odd):
    content = lmt_database.tables(steps=300)
    content["OST_DATA"][400] = (*content["OST_DATA"][400][:2], odd, *content["OST_DATA"][400][3:])
    path = lmt_database.save(tmp_path / "copy", content, keys)
    with closing(Copy(path, finished=True)) as copy:
        for table in TABLES:
            operations = (80, 77) if table.by_operation else ()
            for span in ((0, 299), (130, 140), (200, 1000)):
                columns = tuple(name for name in table.columns if name in lmt_database.COLUMNS[table.name])
                wanted = RowRange(table, columns, (1, 2, 3), operations, FIRST + span[0], FIRST + span[1])
                found = copy._numbers_of_pages(wanted)
                is_odd = table.name == "OST_DATA" and odd is not None and (span != (200, 1000) or odd == "x" * 300)
                assert (found is None) == (keys == "rowless" or is_odd)
                pages, copy._pages = copy._pages, None
                paged, copy._paged = copy._paged, {}
                plain = copy.numbers(wanted)
                copy._pages, copy._paged = pages, paged
                if found is not None:
                    assert sorted(zip(*found.tolist(), strict=True)) == sorted(zip(*np.array(plain).tolist(), strict=True))


def test_a_table_whose_key_is_one_column_is_left_to_sqlite(tmp_path):
    path = lmt_database.save(tmp_path / "copy", lmt_database.tables(steps=3) | {"OSS_DATA": []})
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("DROP TABLE OSS_DATA")
        db.execute("CREATE TABLE OSS_DATA (OSS_ID, TS_ID INTEGER PRIMARY KEY, PCT_CPU, PCT_MEMORY)")
        db.execute("INSERT INTO OSS_DATA VALUES (1, ?, 0.5, 0.25)", (FIRST,))
    with closing(Copy(path, finished=True)) as copy:
        wanted = RowRange(TABLES[1], TABLES[1].columns, (1,), (), FIRST, FIRST)
        assert np.array(copy.numbers(wanted)).T.tolist() == [[FIRST, 1, 0.5, 0.25]]


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 511), st.integers(0, 255)), min_size=1, max_size=3))
@example([(2, 0, 5)])
def test_what_is_read_of_a_damaged_file_is_what_sqlite_reads_of_it_or_left_to_it(tmp_path_factory, damages):
    path = save(tmp_path_factory.mktemp("pages") / "copy", [(n % 7, n, 2**53 + n, n) for n in range(300)], page_bytes=512)
    content = bytearray(path.read_bytes())
    for page, place, value in damages:
        content[(1 + page) * 512 + place] = value
    path.write_bytes(content)
    try:
        found = read(path, -(2**63), 2**63 - 1, exact=True)
    except Unusual:
        return
    db = apsw.Connection(f"{path.as_uri()}?immutable=1", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    with closing(db):
        try:
            rows = db.execute("SELECT OST_ID, TS_ID, A, B FROM t NOT INDEXED").fetchall()
        except apsw.CorruptError:
            return
    values = [[NULL_INTEGER if value is None else value for value in row] for row in rows]
    assert np.array_equal(found, np.array(values, np.int64).T)


def test_a_file_that_is_cut_is_left_to_sqlite(tmp_path):
    path = save(tmp_path / "copy", [(n % 7, n, 2**53 + n, n) for n in range(300)], page_bytes=512)
    file, table = opened(path)
    path.write_bytes(path.read_bytes()[:-700])
    with file, pytest.raises(Unusual):
        table()


def test_a_file_that_was_replaced_is_left_to_sqlite(tmp_path):
    path, other = (save(tmp_path / name, [(1, 2, 3, 4)]) for name in ("copy", "other"))
    assert PagedFile.opened(path, other.stat(), lambda: None) is None


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\0" + bytes(200)])
def test_what_is_not_a_database_is_left_to_sqlite(tmp_path, content):
    (tmp_path / "copy").write_bytes(content)
    assert PagedFile.opened(tmp_path / "copy", (tmp_path / "copy").stat(), lambda: None) is None


def test_reading_ends_soon_after_it_was_interrupted(tmp_path):
    def interrupted():
        raise apsw.InterruptError("interrupted")

    file, table = opened(save(tmp_path / "copy", [(1, 2, 3, 4)]), check=interrupted)
    with file, pytest.raises(apsw.InterruptError):
        table()
    with closing(Copy(lmt_database.save(tmp_path / "other", lmt_database.tables()), finished=True)) as copy:
        copy.interrupt()
        with pytest.raises(apsw.InterruptError):
            copy._pages._check()
        copy.start_clock()
        copy._pages._check()
