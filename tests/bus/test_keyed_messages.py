"""Rows as messages with keys, and back."""

import json
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokiod.bus.keyed_messages import MAX_PART_BYTES, decode, encode, window_key
from tokiod.change_sink import Block
from tokiod.errors import Malformed

START = 1_767_261_600
FORMS = ("wire", "json")


def block(rows=24, columns=3, step=5, start=START, values=None, names=None):
    names = tuple(f"OST{i:04x}" for i in range(columns)) if names is None else names
    cells = np.arange(rows * len(names), dtype=float).reshape(rows, len(names)) if values is None else values
    return Block("cscratch", "datatargets/readbytes", start, step, names, cells, "bytes", 7, 3)


def decoded(message):
    return decode(message.key, message.headers, message.value)


def cells_of(messages):
    found = {}
    for part in map(decoded, messages):
        batch = part.batch
        names = [batch.columns[i] for i in batch.column]
        found |= dict(zip(zip(batch.time.tolist(), names, strict=True), batch.value.tolist(), strict=True))
    return found


@pytest.mark.parametrize("form", FORMS)
@given(
    step=st.sampled_from([1, 5, 7, 60, 300]),
    window=st.sampled_from([1, 5, 60, 120, 3600]),
    offset=st.integers(0, 3599),
    rows=st.integers(1, 50),
    columns=st.integers(0, 4),
    seed=st.integers(0, 2**32),
)
def test_every_cell_comes_back_in_the_window_of_its_row(form, step, window, offset, rows, columns, seed):
    chance = np.random.default_rng(seed)
    values = chance.random((rows, columns))
    values[chance.random(values.shape) < 0.3] = np.nan
    whole = block(step=step, start=START + offset, columns=columns, values=values)
    messages = list(encode(whole, window, form))
    parts = [decoded(message) for message in messages]
    assert [one.start for one in parts] == sorted({min(t for t in whole.times.tolist() if t // window == n) for n in whole.times // window})
    assert [parts[0].start, *(one.end for one in parts)] == [*(one.start for one in parts), whole.end]
    expected = {
        (t, name): v for t, row in zip(whole.times.tolist(), values, strict=True) for name, v in zip(whole.columns, row, strict=True)
    }
    found = cells_of(messages)
    assert found.keys() == expected.keys()
    assert np.array_equal([found[key] for key in expected], [float(v) for v in expected.values()], equal_nan=True)
    for one in parts:
        assert (one.system, one.dataset, one.units, one.revision, one.epoch) == ("cscratch", "datatargets/readbytes", "bytes", 7, 3)


@given(first=st.integers(0, 59), rows=st.integers(1, 40))
def test_the_key_of_a_row_does_not_depend_on_the_block(first, rows):
    """A block is of whole windows: however long, and wherever it begins, a window has the same key."""
    whole = {decoded(one).start: one.key for one in encode(block(rows=720), 60)}
    start = START + first * 60
    part = {decoded(one).start: one.key for one in encode(block(rows=rows * 12, start=start), 60)}
    assert part == {at: key for at, key in whole.items() if start <= at < start + rows * 60} | {
        at: part[at] for at in part if at not in whole
    }


@pytest.mark.parametrize("form", FORMS)
def test_a_large_window_is_cut_by_columns_and_named_by_its_parts(form):
    whole = block(rows=12, columns=20_000)
    messages = list(encode(whole, 60, form))
    key = f"cscratch/datatargets/readbytes/{START}"
    assert [one.key.decode() for one in messages] == [f"{key}/{number}" for number in range(len(messages))]
    assert {window_key(one.key).decode() for one in messages} == {key}
    assert [(one.part, one.parts) for one in map(decoded, messages)] == [(number, len(messages)) for number in range(len(messages))]
    assert len(messages) > 1
    assert max(len(one.value) for one in messages) < MAX_PART_BYTES + 4096
    assert len(cells_of(messages)) == whole.values.size


def test_json_can_be_read_without_tokiod():
    (message,) = encode(block(rows=2, columns=2, step=30, values=np.array([[1.5, np.nan], [0.0, 2.0]])), 60, "json")
    assert json.loads(message.value) == {
        "system": "cscratch",
        "dataset": "datatargets/readbytes",
        "start": START,
        "version": 1,
        "epoch": 3,
        "revision": 7,
        "step": 30,
        "end": START + 60,
        "units": "bytes",
        "part": 0,
        "parts": 1,
        "columns": ["OST0000", "OST0001"],
        "times": [START, START + 30],
        "values": [[1.5, None], [0.0, 2.0]],
    }


def changed(message, **headers):
    key, value = headers.pop("key", message.key), headers.pop("value", message.value)
    return key, [(name, headers.get(name, text)) for name, text in message.headers], value


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "change",
    [
        {"key": None},
        {"value": None},
        {"value": b"{"},
        {"value": b"{}"},
        {"value": b"\x01\0\0\0x"},
        {"key": b"cscratch/readbytes/1"},
        {"key": b"cscratch/datatargets/readbytes/x"},
        {"key": b"cscratch/datatargets/readbytes/-5"},
        {"key": b"cscratch/datatargets/\xff/5"},
        {"key": b"cscratch/datatargets/writebytes/5"},
        {"key": f"cscratch/datatargets/readbytes/{START}/1".encode()},
        {"version": b"2"},
        {"step": b"0"},
        {"step": b"7"},
        {"end": b"9" * 19},
        {"end": str(START).encode()},
        {"parts": b"1000000"},
        {"revision": b""},
        {"epoch": b"x"},
    ],
)
def test_what_contradicts_itself_is_malformed(form, change):
    (message,) = encode(block(rows=12), 60, form)
    with pytest.raises(Malformed):
        decode(*changed(message, **change))


@pytest.mark.parametrize("form", FORMS)
def test_a_message_that_promises_a_billion_rows_takes_no_memory(form):
    (message,) = encode(block(rows=12), 60, form)
    tracemalloc.start()
    try:
        with pytest.raises(Malformed):
            decode(*changed(message, key=b"cscratch/datatargets/readbytes/5"))
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


@given(
    st.binary(max_size=200), st.lists(st.tuples(st.sampled_from(["version", "end", "step", "parts"]), st.binary(max_size=5))), st.binary()
)
def test_random_messages_are_malformed(key, headers, value):
    with pytest.raises(Malformed):
        decode(key, headers, value)
