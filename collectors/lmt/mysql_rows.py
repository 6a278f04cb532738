"""Rows of a prepared statement, as the server sends them: numbers of fixed length, many at a time.

asyncmy makes an object of Python of each number. Of rows in the binary protocol, whose numbers are as long as their types and follow each
other without gaps, numpy takes thousands at once, and the server does not write any digits. NULLs are absent from a row, so rows are read
in runs with the same ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from asyncmy.constants.COMMAND import COM_STMT_CLOSE, COM_STMT_EXECUTE, COM_STMT_PREPARE
from asyncmy.errors import MySQLError
from asyncmy.protocol import FieldDescriptorPacket

from collectors.lmt.datasets import NULL_INTEGER

if TYPE_CHECKING:
    from numpy.typing import NDArray

STATEMENT, COLUMNS = slice(1, 5), slice(5, 7)
"""In the answer to a statement that is prepared: its number, and how many columns it has."""
ONCE = b"\x00\x01\x00\x00\x00"
"""Flags and number of an execution."""
NOT_PREPARED = {1047, 1235, 1295, 1461}
"""Errors: unknown command, not supported, not supported in this protocol, more statements than the server permits."""
UNSIGNED = 32
INTEGERS = {1: "i1", 2: "i2", 3: "i4", 8: "i8", 9: "i4"}
"""By the number of a type: TINYINT, SMALLINT, INTEGER, BIGINT, MEDIUMINT."""
FLOATS = {4: "f4", 5: "f8"}
FLOAT_TYPES = {"<" + name for name in FLOATS.values()}
HEADER_BYTES = 4
"""Before each row: its length, and a number that increases."""
FIRST_BITS = 2
"""The bits before those of the columns in the bytes that tell which columns are NULL."""
ROWS_PER_RUN = 64
"""With fewer rows between changes of what is NULL, a statement that has no NULLs takes less time."""
NEEDED = ("_proto", "_fill_buffer", "_next_seq_id", "_execute_command", "_deprecate_eof")


class Rows(NamedTuple):
    """columns: of a statement's rows, i8 with NULL_INTEGER for NULL, or f8 with NaN; is_slow: whether NULLs come and go between them."""

    columns: list[NDArray[Any]]
    is_slow: bool


async def fetch(connection: Any, sql: str, *, exact: bool) -> Rows | None:
    """Return the rows of a statement; None where a column is not a number, or not an integer and exact is asked for.

    None too where the server, or what is between, prepares no statements. Raises what asyncmy raises.
    """
    if not all(hasattr(connection, name) for name in NEEDED):
        return None  # another version of asyncmy, whose inner parts these are
    await connection._execute_command(COM_STMT_PREPARE, sql)  # noqa: SLF001
    try:
        prepared = (await connection.read_packet()).get_all_data()
    except MySQLError as error:
        if error.args and error.args[0] in NOT_PREPARED:
            return None
        raise
    statement, count = prepared[STATEMENT], int.from_bytes(prepared[COLUMNS], "little")
    types = await _types(connection, count)
    is_known = None not in types and not (exact and FLOAT_TYPES & set(types))
    reader = _Reader([kind or "" for kind in types])
    if is_known:
        await connection._execute_command(COM_STMT_EXECUTE, statement + ONCE)  # noqa: SLF001
        await connection.read_packet()  # the number of columns
        await _types(connection, count)
        await reader.read(connection)
    await connection._execute_command(COM_STMT_CLOSE, statement)  # noqa: SLF001
    return reader.rows(exact=exact) if is_known else None


async def _types(connection: Any, count: int) -> list[str | None]:
    """Read the descriptions of so many columns; return numpy's name of each type, None for one that is no number of fixed length."""
    fields = [await connection.read_packet(FieldDescriptorPacket) for _ in range(count)]
    if not connection._deprecate_eof:  # noqa: SLF001
        await connection.read_packet()
    return [_type(field.type_code, field.flags) for field in fields]


def _type(number: int, flags: int) -> str | None:
    if number in INTEGERS and flags & UNSIGNED:
        return "<" + INTEGERS[number].replace("i", "u")
    kind = INTEGERS.get(number) or FLOATS.get(number)
    return "<" + kind if kind else None


def _is_end(packet: bytes) -> bool:
    return packet[0] != 0


class _Run:
    """Rows with the same NULLs. packet: the first one, without its header."""

    def __init__(self, packet: bytes, types: list[str]) -> None:
        bits = (len(types) + FIRST_BITS + 7) // 8
        null = np.unpackbits(np.frombuffer(packet, np.uint8, bits, 1), bitorder="little")[FIRST_BITS:]
        self.present = [place for place in range(len(types)) if not null[place]]
        fields = [("header", f"V{HEADER_BYTES}"), ("nulls", f"V{1 + bits}"), *((str(place), types[place]) for place in self.present)]
        self.dtype = np.dtype(fields)
        self.parts = [np.frombuffer(bytes(HEADER_BYTES) + packet, self.dtype, 1)]
        beginning = len(packet).to_bytes(HEADER_BYTES - 1, "little") + b"\0" + packet[: 1 + bits]
        self._beginning = np.frombuffer(beginning, np.uint8)
        self._compared = np.array([place for place in range(len(beginning)) if place != HEADER_BYTES - 1])
        self._is_whole = len(packet) == self.dtype.itemsize - HEADER_BYTES

    def take(self, data: bytes) -> int:
        """Take the rows of this kind at the beginning of what was received; return their number."""
        count = len(data) // self.dtype.itemsize if self._is_whole else 0
        if not count:
            return 0
        rows = np.frombuffer(data, np.uint8, count * self.dtype.itemsize).reshape(count, -1)
        others = np.flatnonzero((rows[:, self._compared] != self._beginning[self._compared]).any(axis=1))
        count = int(others[0]) if len(others) else count
        if count:
            self.parts.append(np.frombuffer(data, self.dtype, count))
        return count


class _Reader:
    """Reads the rows of a result whose columns have these types."""

    def __init__(self, types: list[str]) -> None:
        self._types = types
        self._runs: list[_Run] = []

    async def read(self, connection: Any) -> None:
        """Read all rows. Raises what asyncmy raises for errors of the server and of the connection."""
        while not _is_end(packet := (await connection.read_packet()).get_all_data()):
            run = _Run(packet, self._types)
            self._runs.append(run)
            while True:
                if not await self._take(connection, run):
                    break

    async def _take(self, connection: Any, run: _Run) -> bool:
        """Take what was received, once it is a row; return whether more of this kind may follow."""
        received = connection._proto  # noqa: SLF001
        await connection._fill_buffer(HEADER_BYTES + 1)  # noqa: SLF001
        size = run.dtype.itemsize
        if received.buffer[received.pos] | received.buffer[received.pos + 1] << 8 == size - HEADER_BYTES:
            await connection._fill_buffer(size)  # noqa: SLF001
        # A copy: the buffer may be moved at the next await.
        count = run.take(bytes(memoryview(received.buffer)[received.pos : received.length]))
        received.pos += count * size
        connection._next_seq_id = (connection._next_seq_id + count) & 0xFF  # noqa: SLF001
        return count > 0

    def rows(self, *, exact: bool) -> Rows:
        """Return all columns."""
        found = [[_numbers(run, place, exact=exact) for run in self._runs] for place in range(len(self._types))]
        dtype = np.int64 if exact else np.float64
        columns = [np.concatenate([np.empty(0, dtype), *parts]) for parts in found]
        return Rows(columns, len(self._runs) > 1 and len(columns[0]) < ROWS_PER_RUN * len(self._runs))


def _numbers(run: _Run, place: int, *, exact: bool) -> NDArray[Any]:
    if place not in run.present:
        return np.full(sum(map(len, run.parts)), NULL_INTEGER if exact else np.nan)
    value = np.concatenate([part[str(place)] for part in run.parts])
    return value.astype(np.int64 if exact else np.float64)
