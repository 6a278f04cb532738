"""A window's data as bytes: decoded as they were encoded, whatever the frames they come in; all others are Malformed, with a reason."""

import tracemalloc
from dataclasses import replace
from itertools import pairwise

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tokiod.batch import Batch, even_rows
from tokiod.crossing import codec, names
from tokiod.crossing.codec import _LENGTH, MAX_NAMES, MAX_REASONS, decode, encode
from tokiod.dropped import Why
from tokiod.errors import Malformed
from tokiod.window_data import TableRows, WindowData

REASONS = {"header", "shape", "size", "columns", "column", "rows", "samples"}

words = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,20}", fullmatch=True)
datasets = st.builds("{}/{}".format, words, words)
counts = st.integers(0, 2**53 - 1)
column_names = st.text(st.characters(exclude_categories=["C", "Zl", "Zp", "Zs"]), min_size=1, max_size=10)
printable = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20)


@st.composite
def batches(draw):
    """Any samples; whole rows; or whole rows with one sample changed."""
    columns = draw(st.lists(column_names, max_size=6, unique=True).map(tuple))
    form, step = draw(st.sampled_from(["gauge", "counter"])), draw(st.integers(1, 86400))
    if columns and draw(st.booleans()):
        width, height = len(columns), draw(st.integers(1, 4))
        start = draw(st.sampled_from([-step, 0, 5, 250_000_000_000 - height * step, 250_000_000_000 - height * step + 1]))
        time = np.repeat(start + np.arange(height) * draw(st.sampled_from([step, step, step, step + 1, 0])), width)
        column = np.tile(np.arange(width, dtype=np.uint32), height)
        if draw(st.booleans()):
            array, at = draw(st.sampled_from([time, column])), draw(st.integers(0, len(time) - 1))
            array[at] = draw(st.sampled_from([0, width - 1, array[at]]))
            column %= width
    else:
        cells = draw(st.integers(0, 20 if columns else 0))
        time = draw(hnp.arrays(np.int64, cells))
        column = draw(hnp.arrays(np.uint32, cells, elements=st.integers(0, max(len(columns) - 1, 0))))
    value = draw(hnp.arrays(np.int64 if form == "counter" else np.float64, len(time)))
    return Batch(draw(datasets), form, step, columns, time, column, value)


@st.composite
def tables(draw):
    n = draw(st.integers(0, 5))
    others = draw(
        st.lists(st.from_regex(r"[a-z][a-z0-9_.]{0,9}", fullmatch=True).filter(lambda name: name != "time"), max_size=4, unique=True)
    )
    texts = np.array([draw(printable) for _ in range(n)] or [""], "S")[:n]
    values = [draw(hnp.arrays(np.int64, n)) if draw(st.booleans()) else texts for _ in others]
    polled = tuple(name.encode() for name in draw(st.lists(printable, max_size=3)))
    return TableRows(draw(datasets), ("time", *others), (draw(hnp.arrays(np.int64, n)), *values), polled)


@st.composite
def windows(draw):
    """Any data; some batches share their times and columns, or their names."""
    found = draw(st.lists(batches(), max_size=3))
    for one in found[: draw(st.integers(0, 3))]:
        value = draw(hnp.arrays(one.value.dtype, len(one)))
        found.append(Batch(draw(datasets), one.form, one.step, one.columns, one.time, one.column, value))
    dropped, rows = draw(st.dictionaries(st.text(max_size=10), counts, max_size=3)), draw(st.lists(tables(), max_size=2))
    why = draw(st.dictionaries(st.text(max_size=10), st.builds(Why, st.text(max_size=9)), max_size=2))
    return WindowData(found, draw(st.none() | counts), dropped, rows, draw(st.text(max_size=20)), why)


def plain(data):
    """Everything that the data are, bit by bit, in a form that compares."""
    found = [
        (one.dataset, one.form, one.step, one.columns, [(a.dtype.str, a.tobytes()) for a in (one.time, one.column, one.value)])
        for one in data.batches
    ]
    rows = [(one.table, one.columns, [(a.dtype.str, a.tobytes()) for a in one.values], one.polled) for one in data.tables]
    return found, rows, data.records, dict(data.dropped), data.trouble, dict(data.why)


def whole(data):
    return b"".join(encode(data))


def a_batch(cells=3, columns=("OST0000", "OST0001")):
    time = np.arange(cells, dtype=np.int64) * 5
    return Batch("datatargets/readbytes", "counter", 5, columns, time, np.zeros(cells, np.uint32), time * 2**40)


@given(windows(), st.lists(st.integers(0, 400), max_size=5))
def test_data_are_decoded_as_they_were_encoded_bit_by_bit_from_frames_cut_anywhere(data, places):
    content = whole(data)
    cuts = [0, *sorted(min(place, len(content)) for place in places), len(content)]
    back = decode([content[begin:end] for begin, end in pairwise(cuts)])
    assert plain(back) == plain(data)
    assert [one.rows for one in back.batches] == [even_rows(one) for one in data.batches]


def test_whole_rows_have_no_times_and_columns_and_others_have_shared_ones_once():
    time, column = np.repeat(np.arange(60, 120, 5), 6), np.tile(np.arange(6, dtype=np.uint32), 12)
    columns = tuple(f"OST{index:04x}" for index in range(6))

    def size(*several):
        batches = [Batch(f"d/{name}", "gauge", 5, columns, *arrays, np.zeros(len(arrays[0]))) for name, *arrays in several]
        return len(whole(WindowData(batches)))

    rows, strewn = size(("a", time, column)), size(("a", time[1:], column[1:]))
    assert rows < 72 * 8 + 120
    assert strewn - rows > 71 * 12 - 8 - 32
    assert size(("a", time, column), ("b", time, column)) - rows < 72 * 8 + 60
    shared = time[1:], column[1:]
    assert size(("a", *shared), ("b", *shared)) - strewn < 71 * 8 + 60


def test_batches_that_share_their_arrays_and_not_their_steps_or_columns_are_not_the_same_rows():
    time, column = np.repeat(np.arange(60, 120, 10), 2), np.tile(np.arange(2, dtype=np.uint32), 6)
    wide, slow = ("a", "b", "c"), Batch("d/slow", "gauge", 10, ("a", "b"), time, column, np.arange(12.0))
    data = WindowData([slow, replace(slow, dataset="d/fast", step=5), replace(slow, dataset="d/wide", columns=wide)])
    back = decode([whole(data)])
    assert plain(back) == plain(data)
    assert [one.rows for one in back.batches] == [even_rows(one) for one in data.batches]
    assert [one.rows is None for one in back.batches] == [False, True, True]


def test_encoding_copies_no_array_and_decoding_makes_views():
    batch = a_batch()
    pieces = encode(WindowData([batch]))
    assert all(
        np.shares_memory(np.frombuffer(piece, np.uint8), array)
        for piece, array in zip(pieces[1:], (batch.time, batch.column, batch.value), strict=True)
    )
    assert np.shares_memory(decode(pieces).batches[0].value, batch.value)


@pytest.mark.parametrize("offset", range(8))
def test_arrays_are_aligned_wherever_their_bytes_begin(offset):
    content = memoryview(bytearray(b"x" * offset + whole(WindowData([a_batch()]))))[offset:]
    (back,) = decode([content]).batches
    assert all(array.flags.aligned for array in (back.time, back.column, back.value))
    assert plain(WindowData([back])) == plain(WindowData([a_batch()]))


@pytest.mark.parametrize("dtype", [">i8", "<i8"])
def test_arrays_of_any_byte_order_and_stride_are_sent_as_their_cells_little_endian(dtype):
    table = np.arange(12, dtype=dtype).reshape(3, 4)
    (back,) = decode(encode(WindowData([Batch("g/d", "counter", 1, ("a",), table[:, 0], np.zeros(3, ">u4"), table[:, 1])]))).batches
    assert (back.time.tolist(), back.value.tolist()) == ([0, 4, 8], [1, 5, 9])
    assert (back.time.dtype.str, back.column.dtype.str, back.value.dtype.str) == ("<i8", "<u4", "<i8")


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (
            WindowData([Batch("no_group", "gauge", 5, ("a",), np.zeros(0), np.zeros(0), np.zeros(0))]),
            "'no_group' is not a name of a dataset",
        ),
        (WindowData([a_batch(columns=("a", "a"))]), "a column name is a duplicate"),
        (WindowData([a_batch(columns=("a\nb",))]), "expected 1 to 400 printable characters"),
        (WindowData(trouble="\ud800"), "header"),
        (WindowData(dropped={str(number): 1 for number in range(MAX_REASONS + 1)}), "1001 reasons for dropped records, the limit is 1000"),
        (WindowData(tables=[TableRows("jobs/operations", ("time", "Job"), (np.arange(2), np.arange(2)))]), "header"),
        (WindowData(tables=[TableRows("jobs/operations", ("time", "a" * 61), (np.arange(2), np.arange(2)))]), "header"),
    ],
)
def test_data_that_no_one_would_decode_are_not_encoded(data, sentence):
    with pytest.raises(Malformed, match=sentence):
        encode(data)


# ---- hostile bytes


def built(header, *arrays, joined=b""):
    """Return bytes with a header of builtins."""
    content = msgspec.msgpack.encode(header)
    head = _LENGTH.pack(len(content)) + content + joined
    return head + bytes(-len(head) % 8) + b"".join(array.tobytes() for array in arrays)


def header(names=(3,), samples=(), batches=(), tables=(), records=0, dropped=None, trouble=""):
    return [names, samples, batches, tables, records, dropped or {}, trouble, {}]


def of_rows(start=0, count=2, step=5, number=0):
    return ["g/d", "gauge", step, number, {"start": start, "count": count}]


CELLS = np.arange(4.0)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(b"", "header", id="nothing"),
        pytest.param(b"\xff\xff\xff\xff", "header", id="a header longer than its bytes"),
        pytest.param(built([]), "header", id="an empty header"),
        pytest.param(built({"a": 1}), "header", id="a header of another type"),
        pytest.param(built(header(names=(-1,))), "header", id="names of a negative length"),
        pytest.param(built(header(names=(2**40,))), "header", id="names longer than the bytes"),
        pytest.param(built(header(tables=[["g/t", {"time": 0}, 0, ["a"] * (2 << 20)]])), "header", id="a header of 4 MiB"),
        pytest.param(built(header(names=(0,) * 1001)), "header", id="more lists of names than datasets"),
        pytest.param(built(header(records=2**53)), "header", id="a count that no float holds"),
        pytest.param(built(header(names=(1,)), joined=b"\xff"), "columns", id="names that are no text"),
        pytest.param(built(header(), joined=b"a\na"), "columns", id="a name twice"),
        pytest.param(built(header(), joined=b"a\n\0"), "columns", id="a name of NUL"),
        pytest.param(built(header(batches=[of_rows()]), CELLS[:3], joined=b"a\nb"), "shape", id="a value too few"),
        pytest.param(built(header(batches=[of_rows()]), CELLS, CELLS, joined=b"a\nb"), "shape", id="values that belong to nothing"),
        pytest.param(built(header(batches=[of_rows(count=2**52)]), CELLS, joined=b"a\nb"), "rows", id="rows beyond all times"),
        pytest.param(built(header(batches=[of_rows(count=2**36, step=1)]), CELLS, joined=b"a\nb"), "shape", id="more rows than any memory"),
        pytest.param(built(header(batches=[of_rows(start=249_999_999_999)]), CELLS, joined=b"a\nb"), "rows", id="rows after all times"),
        pytest.param(built(header(batches=[of_rows(count=0)]), joined=b"a\nb"), "rows", id="no rows"),
        pytest.param(built(header(names=(0,), batches=[of_rows()])), "rows", id="rows without columns"),
        pytest.param(built(header(batches=[of_rows(start=-1)]), CELLS, joined=b"a\nb"), "header", id="rows before all times"),
        pytest.param(built(header(batches=[of_rows(step=0)]), CELLS, joined=b"a\nb"), "header", id="no step"),
        pytest.param(built(header(batches=[of_rows(number=1)]), CELLS, joined=b"a\nb"), "columns", id="columns that are not there"),
        pytest.param(built(header(batches=[["g/d", "gauge", 5, 0, 0]]), joined=b"a\nb"), "samples", id="samples that are not there"),
        pytest.param(built(header(batches=[["../d", "gauge", 5, 0, 0]]), joined=b"a\nb"), "header", id="a dataset that climbs"),
        pytest.param(built(header(batches=[["_t/raw", "gauge", 5, 0, 0]]), joined=b"a\nb"), "header", id="a dataset among our own"),
        pytest.param(built(header(batches=[["g/d", "rate", 5, 0, 0]]), joined=b"a\nb"), "header", id="an unknown form"),
        pytest.param(
            built(header(samples=(1,), batches=[["g/d", "gauge", 5, 0, 0]]), CELLS[:1], np.array([2], "<u4"), CELLS[:1], joined=b"a\nb"),
            "column", id="a column that has no name",
        ),
        pytest.param(built(header(samples=(2**52,), batches=[["g/d", "gauge", 5, 0, 0]]), joined=b"a\nb"), "shape", id="endless samples"),
        pytest.param(built(header(names=(), tables=[["g/t", {"job": 8}, 1, []]]), CELLS[:1]), "columns", id="a table without times"),
        pytest.param(built(header(names=(), tables=[["g/t", {}, 2**52, []]])), "columns", id="a table without columns"),
        pytest.param(built(header(names=(), tables=[["g/t", {"time": 0}, 2**52, []]])), "shape", id="an endless table"),
        pytest.param(built(header(names=(), tables=[["g/t", {"time": -1}, 0, []]])), "header", id="a negative width"),
        pytest.param(built(header(names=(), tables=[["g/t", {"time": 0, "job": 4097}, 0, []]])), "header", id="text that is too wide"),
        *(
            pytest.param(built(header(names=(), tables=[["g/t", {"time": 0}, 0, [one]]])), "header", id=f"a target {one!a}")
            for one in ("a b", "", "ä", "a\n")
        ),
        pytest.param(
            built(header(names=(), tables=[["g/t", {"time": 0, "job": 2}, 1, []]]), CELLS[:1], np.array(["ä".encode()])),
            "columns", id="text that is not ASCII",
        ),
    ],
)  # fmt: skip
def test_bytes_that_are_no_window_are_refused_for_their_reason_at_no_cost(content, reason):
    tracemalloc.start()
    try:
        with pytest.raises(Malformed) as caught:
            decode([content])
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert caught.value.reason == reason


def test_names_are_counted_before_they_are_made():
    content = built(header(names=(2 * MAX_NAMES + 1,)), joined=b"a\n" * MAX_NAMES + b"b")
    tracemalloc.start()
    try:
        with pytest.raises(Malformed, match=r"^columns: 4194305 names of 8388609 bytes, the limits are 4194304 and 67108864$"):
            decode([content])
        assert tracemalloc.get_traced_memory()[1] < 2 * len(content)
    finally:
        tracemalloc.stop()


def test_whole_rows_that_take_more_memory_than_a_window_may_have_are_malformed(monkeypatch):
    """Their times and columns are not among the bytes."""
    monkeypatch.setattr(codec, "MAX_WINDOW_BYTES", 3 * 4 * 20)
    rows = [of_rows(start) for start in (0, 10, 20, 30)]
    assert len(decode([built(header(batches=rows[:3]), *[CELLS] * 3, joined=b"a\nb")]).batches) == 3
    with pytest.raises(Malformed, match=r"^size: a window of 320 bytes, the limit is 240$"):
        decode([built(header(batches=rows), *[CELLS] * 4, joined=b"a\nb")])


@st.composite
def damaged(draw):
    """Bytes of a window, some of them cut, changed or inserted."""
    content = bytearray(whole(draw(windows())))
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, min(len(content), 300)))
        match draw(st.sampled_from(["cut", "change", "insert"])):
            case "cut":
                del content[place : place + draw(st.integers(1, 300))]
            case "change":
                content[place : place + 1] = draw(st.binary(min_size=1, max_size=1))
            case "insert":
                content[place:place] = draw(st.binary(min_size=1, max_size=9))
    return bytes(content)


def decoded(content):
    try:
        return None, decode([content])
    except Malformed as error:
        return error.reason, WindowData()


@given(damaged() | st.binary(max_size=200))
def test_damaged_bytes_are_malformed_or_valid_data(content):
    reason, data = decoded(content)
    assert reason in REASONS | {None}
    for batch in data.batches:
        assert len(batch.time) == len(batch.column) == len(batch.value)
        assert all(column < len(batch.columns) for column in batch.column.tolist())
        assert len(set(batch.columns)) == len(batch.columns)
        assert batch.step > 0
    for rows in data.tables:
        assert rows.columns[0] == "time"


@pytest.mark.parametrize(("width", "bound"), [(2000, 8 * (2 << 20)), (6000, 2 << 20)])
def test_the_names_of_few_large_messages_are_kept_and_the_largest_not_at_all(width, bound):
    """A peer that sends other names with each message costs a bounded amount of memory."""
    tracemalloc.start()
    try:
        for number in range(40):
            names.split("\n".join(f"{number}-{index:0390d}" for index in range(width)).encode())
        assert tracemalloc.get_traced_memory()[0] < bound
    finally:
        tracemalloc.stop()
        names._split_many.cache_clear()
