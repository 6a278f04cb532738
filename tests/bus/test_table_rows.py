"""Rows of a table over the bus: they are decoded as they were encoded, in pieces of any size, and what does not fit is refused."""

import asyncio

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokiod.bus import pieces as bus_pieces
from tokiod.bus import wire
from tokiod.bus.header import Header, Piece, decode_header
from tokiod.bus.pieces import joined_rows, pieces, refusal
from tokiod.bus.reassembly import Reassembly
from tokiod.bus.sender import Sender
from tokiod.errors import Malformed
from tokiod.window import Window
from tokiod.window_data import Collected, TableRows, WindowMeta

META = WindowMeta("fs-jobs", "lustre_jobstats", "fs", Window(60, 120), records=3, dropped={"malformed": 1})
PIECE = Piece("fs-jobs", "lustre_jobstats", 60, 120, 1, 0, 1)


def table(n=3, name="jobs/operations", text="7"):
    jobs = np.array([f"{text}{row}".encode() for row in range(n)] or [b""], "S")[:n]
    polled = (b"fs-MDT0000", b"fs-OST0000")
    return TableRows(name, ("time", "job", "open.samples"), (np.arange(60, 60 + n), jobs, np.arange(n) * 10**15), polled)


def plain(rows):
    return rows.table, rows.columns, [values.tolist() for values in rows.values], rows.polled


def arrived(collected, attempt=7):
    """Send a window through messages and put its pieces together in the reverse order."""
    found, reassembly = None, Reassembly(10**9)
    for message in reversed([[bytes(frame) for frame in one] for one in pieces(collected, attempt)]):
        header = decode_header(message)
        content = wire.decode_rows(header, message) if header.table is not None else wire.decode_batch(header, message)
        found = reassembly.add(b"p", header, content)
    return found.collected


@given(st.integers(0, 40), st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20), st.integers(40, 300))
def test_rows_arrive_as_they_were_sent_in_pieces_of_any_size(n, text, most_bytes):
    sent = table(n, text=text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bus_pieces, "MAX_FRAME_BYTES", most_bytes)
        back = arrived(Collected(META, [], [sent]))
    assert [plain(rows) for rows in back.tables] == [plain(sent)]
    assert (back.meta, list(back.batches)) == (META, [])


def test_a_table_without_rows_arrives_so_that_its_window_can_be_stored():
    assert [plain(rows) for rows in arrived(Collected(META, [], [table(0)])).tables] == [plain(table(0))]


def test_pieces_with_other_columns_are_malformed():
    other = TableRows("jobs/operations", ("time",), (np.arange(3),))
    with pytest.raises(Malformed, match="pieces of jobs/operations with different columns"):
        joined_rows([table(), other])


def message(columns, cells, data, **changes):
    header = Header(1, "fs", "jobs/operations", cells=cells, table=columns, piece=PIECE)
    encoded = msgspec.json.encode(msgspec.to_builtins(header) | changes)
    return [b"fs/jobs/operations", encoded, data]


@pytest.mark.parametrize(
    ("columns", "cells", "data", "sentence"),
    [
        ({"time": 0, "job": 2}, 2, b"x" * 19, "19 bytes for 2 rows of jobs/operations, expected 20"),
        ({"time": 0, "job": 2}, 1, b"\0" * 8 + b"\xc3\xa4", "text in jobs/operations that is not ASCII"),
        ({"job": 8}, 1, b"\0" * 8, "the first must be time"),
    ],
)
def test_rows_that_their_header_does_not_describe_are_malformed(columns, cells, data, sentence):
    frames = message(columns, cells, data)
    with pytest.raises(Malformed, match=sentence):
        wire.decode_rows(decode_header(frames), frames)


@pytest.mark.parametrize("target", ["", "fs OST", "\xe4", "\n"])
def test_headers_with_targets_that_no_target_has_are_malformed(target):
    with pytest.raises(Malformed):
        decode_header(message({"time": 0}, 0, b"", polled=[target]))


@pytest.mark.parametrize("table", [{"Bad Name": 0}, {"time": -1}, {"time": 5000}])
def test_headers_with_columns_that_no_table_has_are_malformed(table):
    with pytest.raises(Malformed):
        decode_header(message({}, 0, b"", table=table))


def test_a_table_needs_three_frames_and_three_frames_a_table():
    with pytest.raises(Malformed, match="3 for rows of a table"):
        decode_header(message({"time": 0}, 0, b"")[:2])
    with pytest.raises(Malformed, match="3 for rows of a table"):
        decode_header(message({}, 0, b"", table=None))


@pytest.mark.parametrize("columns", [("time", "Job"), ("time", "a" * 61)])
def test_rows_that_the_writer_would_not_decode_are_refused_before_they_are_sent(columns, tmp_path):
    collected = Collected(META, [], [TableRows("jobs/operations", columns, (np.arange(2), np.arange(2)))])
    assert refusal(collected).when == "never"

    async def main():
        return (await Sender(f"ipc://{tmp_path}/bus").submit(collected)).result()

    assert str(asyncio.run(main())).startswith("source fs-jobs: ")
