"""The messages of the feed: they are decoded as they were encoded, and all others are Malformed, with a reason."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tokiod.batch import Batch, Rows, even_rows
from tokiod.bus import feed_message
from tokiod.bus.header import Stored, decode_header, encode_heartbeat
from tokiod.errors import Malformed

REASONS = {"frames", "header", "version", "topic", "shape", "step", "columns", "column", "rows"}

names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,20}", fullmatch=True)
seconds = st.integers(0, 250_000_000_000 - 1)
column_names = st.text(st.characters(exclude_categories=["C", "Zl", "Zp", "Zs"]), min_size=1, max_size=10)


@st.composite
def batches(draw):
    columns = draw(st.lists(column_names, max_size=6, unique=True).map(tuple))
    form = draw(st.sampled_from(["gauge", "counter"]))
    cells = draw(st.integers(0, 20 if columns else 0))
    return Batch(
        dataset=f"{draw(names)}/{draw(names)}",
        form=form,
        step=draw(st.integers(1, 86400)),
        columns=columns,
        time=draw(hnp.arrays(np.int64, cells)),
        column=draw(hnp.arrays(np.uint32, cells, elements=st.integers(0, max(len(columns) - 1, 0)))),
        value=draw(hnp.arrays(np.int64 if form == "counter" else np.float64, cells)),
    )


stored = st.builds(Stored, st.from_regex(r"[!-~]{1,40}", fullmatch=True), seconds, seconds)


@st.composite
def whole_rows(draw):
    """A batch of whole rows, or such a batch with one sample changed."""
    width, height, step = draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.integers(1, 90))
    start = draw(st.sampled_from([-step, 0, 5, 250_000_000_000 - height * step, 250_000_000_000 - height * step + 1]))
    time = np.repeat(start + np.arange(height) * draw(st.sampled_from([step, step, step, step + 1, 0])), width)
    column = np.tile(np.arange(width, dtype=np.uint32), height)
    if draw(st.booleans()):
        array, at = draw(st.sampled_from([time, column])), draw(st.integers(0, len(time) - 1))
        array[at] = draw(st.sampled_from([0, width - 1, array[at]]))
    columns = tuple(f"OST{i:04x}" for i in range(width))
    return Batch("datatargets/readbytes", "gauge", step, columns, time, column, draw(hnp.arrays(np.float64, len(time))))


def rows_one_by_one(batch):
    """The slow and obvious form of even_rows."""
    cells = list(zip(batch.time.tolist(), batch.column.tolist(), strict=True))
    width, start = len(batch.columns), cells[0][0]
    right = [(start + row * batch.step, column) for row in range(len(cells) // width) for column in range(width)]
    return (start, len(cells) // width) if cells == right and start >= 0 and right[-1][0] + batch.step <= 250_000_000_000 else None


def a_batch(cells=3, columns=("OST0000", "OST0001")):
    time = np.arange(cells, dtype=np.int64) * 5
    return Batch("datatargets/readbytes", "counter", 5, columns, time, np.zeros(cells, np.uint32), time * 2**40)


def plain(batch):
    """Everything a batch is, bit by bit, in a form that compares."""
    arrays = [(a.dtype.str, a.tobytes()) for a in (batch.time, batch.column, batch.value)]
    return batch.dataset, batch.form, batch.step, batch.columns, arrays


def carried(frames):
    return [bytes(frame) for frame in frames]


@given(names, batches(), st.none() | stored)
def test_a_batch_is_decoded_as_it_was_encoded_bit_by_bit(system, batch, mark):
    header, back = feed_message.decode(carried(feed_message.encode(system, batch, mark)))
    assert plain(back) == plain(batch)
    assert (header.system, header.dataset, header.form, header.step, header.cells) == (
        system,
        batch.dataset,
        batch.form,
        batch.step,
        len(batch),
    )
    assert header.stored == mark


@given(whole_rows())
def test_whole_rows_are_sent_without_times_and_columns_and_decoded_with_them(batch):
    rows = even_rows(batch)
    assert (rows and (rows.start, rows.count)) == rows_one_by_one(batch)
    frames = carried(feed_message.encode("s", replace(batch, rows=rows), whole_rows=True))
    assert len(frames) == (6 if rows is None else 4)
    header, back = feed_message.decode(frames)
    assert (plain(back), back.rows, header.cells) == (plain(batch), rows, len(batch))
    assert len(feed_message.encode("s", replace(batch, rows=rows), Stored("e", 1, 2))) == 6


def test_extreme_times_are_not_even_rows():
    times = np.array([-(2**63), 2**63 - 1])
    assert even_rows(Batch("g/d", "gauge", 2**64 - 1, ("a",), times, np.zeros(2, np.uint32), np.zeros(2))) is None


@given(names, names, names, stored)
def test_a_heartbeat_names_its_dataset_and_repeats_what_was_stored(system, group, dataset, mark):
    header, batch = feed_message.decode(encode_heartbeat(system, f"{group}/{dataset}", mark))
    assert (header.system, header.dataset, header.stored, batch) == (system, f"{group}/{dataset}", mark, None)


@pytest.mark.parametrize("dtype", [">i8", "<i8"])
def test_arrays_of_any_byte_order_are_sent_little_endian(dtype):
    time = np.array([1, 2**40], dtype)
    batch = Batch("g/d", "counter", 1, ("a",), time, np.array([0, 0], ">u4"), time)
    _, back = feed_message.decode(carried(feed_message.encode("s", batch)))
    assert back.time.tolist() == back.value.tolist() == [1, 2**40]
    assert (back.time.dtype.str, back.column.dtype.str) == ("<i8", "<u4")


def test_encoding_copies_no_array_and_decoding_makes_views():
    batch = a_batch()
    frames = feed_message.encode("s", batch)
    assert all(
        np.shares_memory(np.frombuffer(frame, np.uint8), array)
        for frame, array in zip(frames[3:], (batch.time, batch.column, batch.value), strict=True)
    )
    _, back = feed_message.decode(frames)
    assert np.shares_memory(back.value, batch.value)


@pytest.mark.parametrize("offset", range(8))
def test_arrays_are_aligned_wherever_their_frames_begin(offset):
    head, arrays = (carried(feed_message.encode("s", a_batch()))[part] for part in (slice(3), slice(3, 6)))
    frames = [*head, *(memoryview(bytearray(b"x" * offset + array))[offset:] for array in arrays)]
    _, back = feed_message.decode(frames)
    assert back.time.flags.aligned
    assert back.column.flags.aligned
    assert back.value.flags.aligned
    assert plain(back) == plain(a_batch())


def test_a_strided_array_is_sent_as_its_own_cells_only():
    table = np.arange(12.0).reshape(3, 4)
    batch = Batch("g/d", "gauge", 1, ("a",), np.arange(3), np.zeros(3, np.uint32), table[:, 1])
    _, back = feed_message.decode(carried(feed_message.encode("s", batch)))
    assert back.value.tolist() == [1.0, 5.0, 9.0]


def test_a_batch_may_have_no_cells_and_no_columns():
    batch = a_batch(cells=0, columns=())
    header, back = feed_message.decode(carried(feed_message.encode("s", batch)))
    assert header.cells == 0
    assert plain(back) == plain(batch)


def test_negative_zero_and_the_bits_of_a_nan_survive():
    bits = np.array([0x8000000000000000, 0x7FF8000000000123, 0x7FF0000000000000], np.uint64)
    batch = Batch("g/d", "gauge", 1, ("a",), np.arange(3), np.zeros(3, np.uint32), bits.view(np.float64))
    _, back = feed_message.decode(carried(feed_message.encode("s", batch)))
    assert back.value.view(np.uint64).tolist() == bits.tolist()


def header_of(frames, **changes):
    return json.dumps(json.loads(frames[1]) | changes).encode()


def with_frame(index, frame):
    return lambda f: [*f[:index], frame, *f[index + 1 :]]


def with_header(**changes):
    return lambda f: [f[0], header_of(f, **changes), *f[2:]]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        pytest.param(lambda _: [], "frames", id="no frame"),
        pytest.param(lambda f: f[:1], "frames", id="one frame"),
        pytest.param(lambda f: f[:5], "frames", id="a frame missing"),
        pytest.param(lambda f: [*f, b""], "frames", id="a frame too many"),
        pytest.param(with_frame(1, b""), "header", id="empty header"),
        pytest.param(with_frame(1, b"[]"), "header", id="header of another type"),
        pytest.param(with_frame(1, b"\xff\xfe"), "header", id="header is not text"),
        pytest.param(with_frame(1, b'{"a":' + b"[" * 100_000), "header", id="header nested without end"),
        pytest.param(with_frame(1, b'{"version":1,"system":"\\ud800"}'), "header", id="half a surrogate pair"),
        pytest.param(with_header(system="a/b"), "header", id="system with a slash"),
        pytest.param(with_header(system="../../etc"), "header", id="system that climbs"),
        pytest.param(with_header(system="s\n"), "header", id="system with a newline"),
        pytest.param(with_header(system=""), "header", id="no system"),
        pytest.param(with_header(dataset="a"), "header", id="dataset without a group"),
        pytest.param(with_header(dataset="a/b/c"), "header", id="dataset of three"),
        pytest.param(with_header(dataset="../b"), "header", id="dataset that climbs"),
        pytest.param(with_header(dataset="_tokiod/raw"), "header", id="dataset among our own groups"),
        pytest.param(with_header(form="rate"), "header", id="unknown form"),
        pytest.param(with_header(cells=-1), "header", id="negative count"),
        pytest.param(with_header(cells=10**30), "header", id="count beyond any integer"),
        pytest.param(with_header(cells=3.5), "header", id="half a cell"),
        pytest.param(with_header(cells=True), "header", id="count that is no number"),
        pytest.param(with_header(stored={"epoch": "", "sequence": 1, "watermark": 0}), "header", id="no epoch"),
        pytest.param(with_header(version=2), "version", id="another version"),
        pytest.param(with_frame(0, b""), "topic", id="empty topic"),
        pytest.param(with_frame(0, b"other/datatargets/readbytes"), "topic", id="topic of another system"),
        pytest.param(with_header(dataset="mdtargets/opens"), "topic", id="topic of another dataset"),
        pytest.param(with_header(step=0), "step", id="no step"),
        pytest.param(lambda f: [b"s/", header_of(f, dataset=""), *f[2:]], "step", id="arrays without a dataset"),
        pytest.param(lambda f: f[:2], "shape", id="cells without arrays"),
        pytest.param(with_header(cells=4), "shape", id="more cells than there are"),
        pytest.param(with_header(cells=0), "shape", id="fewer cells than there are"),
        pytest.param(with_frame(3, b"1234567"), "shape", id="array cut within a number"),
        pytest.param(lambda f: [*f[:4], f[4] + f[4], f[5]], "shape", id="arrays of two lengths"),
        pytest.param(lambda f: [*f[:3], f[4], f[3], f[5]], "shape", id="arrays exchanged"),
        pytest.param(with_frame(2, b"\xff"), "columns", id="names that are no text"),
        pytest.param(with_frame(2, b"a\na"), "columns", id="a name twice"),
        pytest.param(with_frame(2, b"a\n"), "columns", id="an empty name"),
        pytest.param(with_frame(2, b"a\n\0"), "columns", id="a name of NUL"),
        pytest.param(with_frame(2, b""), "column", id="cells without columns"),
        pytest.param(with_frame(4, np.array([0, 1, 2], "<u4").tobytes()), "column", id="a column that has no name"),
    ],
)
def test_invalid_messages_are_refused_for_their_reason(damage, reason):
    frames = damage(carried(feed_message.encode("s", a_batch())))
    with pytest.raises(Malformed) as caught:
        feed_message.decode(frames)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        pytest.param(lambda f: f[:3], "frames", id="no values"),
        pytest.param(lambda f: [*f, b"", b""], "frames", id="six frames"),
        pytest.param(lambda f: f[:2], "frames", id="two frames"),
        pytest.param(with_header(rows=None), "frames", id="four frames without rows"),
        pytest.param(with_header(rows={"start": -1, "count": 3}), "header", id="before all times"),
        pytest.param(with_header(rows={"start": 0}), "header", id="half of the rows"),
        pytest.param(with_header(rows={"start": 0, "count": 2}), "rows", id="too few rows"),
        pytest.param(with_header(rows={"start": 0, "count": 2**50}), "rows", id="more rows than any memory"),
        pytest.param(with_header(rows={"start": 249_999_999_999, "count": 3}), "rows", id="after all times"),
        pytest.param(with_header(cells=0, rows={"start": 0, "count": 0}), "shape", id="no rows with values"),
        pytest.param(lambda f: [f[0], header_of(f, cells=0, rows={"start": 0, "count": 0}), f[2], b""], "rows", id="no rows"),
        pytest.param(with_header(cells=7), "shape", id="more cells than there are"),
        pytest.param(with_header(step=0), "step", id="no step"),
        pytest.param(with_header(step=2**52), "rows", id="a step beyond all times"),
        pytest.param(with_frame(2, b""), "rows", id="no columns"),
        pytest.param(with_frame(2, b"a"), "rows", id="fewer columns"),
        pytest.param(with_frame(3, b"1234567"), "shape", id="values cut within a number"),
    ],
)
def test_invalid_rows_are_refused_for_their_reason(damage, reason):
    time, column = np.repeat(np.arange(3) * 5, 2), np.tile(np.arange(2, dtype=np.uint32), 3)
    batch = Batch("datatargets/readbytes", "counter", 5, ("OST0000", "OST0001"), time, column, time * 7, Rows(0, 3))
    frames = carried(feed_message.encode("s", batch, whole_rows=True))
    assert plain(feed_message.decode(frames)[1]) == plain(batch)
    with pytest.raises(Malformed) as caught:
        feed_message.decode(damage(frames))
    assert caught.value.reason == reason


def test_a_header_can_be_decoded_independently_of_the_arrays():
    frames = carried(feed_message.encode("s", a_batch(), Stored("e", 1, 2)))
    damaged = [*frames[:3], b"", b"", b""]
    with pytest.raises(Malformed, match="shape"):
        feed_message.decode(damaged)
    assert decode_header(damaged).stored == Stored("e", 1, 2)


def test_an_unknown_field_is_ignored():
    frames = carried(feed_message.encode("s", a_batch()))
    header, batch = feed_message.decode(with_header(colour="green")(frames))
    assert header.cells == 3
    assert plain(batch) == plain(a_batch())


@given(st.lists(st.binary(max_size=40), max_size=7))
@example([b"", b"{}"])
@example([b"/", b'{"version":1,"system":"s"}'])
def test_junk_is_malformed_for_a_known_reason(frames):
    with pytest.raises(Malformed) as caught:
        feed_message.decode(frames)
    assert caught.value.reason in REASONS


@st.composite
def damaged(draw):
    """Frames of a valid message, some of them cut, or with bytes changed, inserted or swapped."""
    batch = draw(batches() | whole_rows())
    batch = replace(batch, rows=even_rows(batch))
    frames = [bytearray(frame) for frame in feed_message.encode(draw(names), batch, draw(stored), whole_rows=draw(st.booleans()))]
    for _ in range(draw(st.integers(1, 4))):
        frame = frames[draw(st.integers(0, len(frames) - 1))]
        place = draw(st.integers(0, len(frame)))
        match draw(st.sampled_from(["cut", "change", "insert", "swap"])):
            case "cut":
                del frame[place:]
            case "change":
                frame[place : place + 1] = draw(st.binary(min_size=1, max_size=1))
            case "insert":
                frame[place:place] = draw(st.binary(min_size=1, max_size=9))
            case "swap":
                other = draw(st.integers(0, len(frames) - 1))
                mine = frames.index(frame)
                frames[mine], frames[other] = frames[other], frames[mine]
    return [bytes(frame) for frame in frames]


def decoded(frames):
    try:
        return *feed_message.decode(frames), None
    except Malformed as error:
        return None, None, error.reason


@given(damaged())
def test_a_damaged_message_is_malformed_or_a_valid_batch(frames):
    header, batch, reason = decoded(frames)
    if reason:
        assert reason in REASONS
        return
    assert batch is not None
    assert len(batch.time) == len(batch.column) == len(batch.value) == header.cells
    assert all(column < len(batch.columns) for column in batch.column.tolist())
    assert len(set(batch.columns)) == len(batch.columns)
    assert batch.step > 0
    assert frames[0] == f"{header.system}/{batch.dataset}".encode()
