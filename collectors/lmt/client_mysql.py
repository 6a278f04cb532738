"""LMT's own MySQL or MariaDB server, asked as lightly as can be: read by primary key, and nothing held open between statements."""

from __future__ import annotations

import asyncio
import datetime as dt
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar
from zoneinfo import ZoneInfo, available_timezones

import asyncmy
import msgspec
import numpy as np
from asyncmy.cursors import SSCursor
from asyncmy.errors import MySQLError

from collectors.lmt.datasets import ABSENT
from tokiod.errors import CollectError, Fatal, Transient

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Iterator

    from numpy.typing import NDArray

    from collectors.lmt.client import Ask, Schema

T = TypeVar("T")

ROWS_AT_ONCE = 10_000
LONGEST_NUMBER = len(",-2.2250738585072014e-308")
CONNECT_SECONDS = 10
CONNECTIONS = 2
LOGIN_DENIED = {1045, 1130, 1251, 1698}
READING_DENIED = {1044, 1142, 1143}
NOT_THERE = {1049, 1054, 1146}
UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"
"""What the ssl module says within asyncmy's own text."""

_json_to_floats = msgspec.json.Decoder(list[float | None]).decode

OFFSET = re.compile(r"([+-])(\d\d):(\d\d)")


@dataclass(frozen=True, slots=True)
class Server:
    """Where a database is and how to get in. read_timeout: seconds that the server may be silent."""

    host: str
    port: int
    user: str
    database: str
    read_timeout: int
    password: Callable[[], str] = field(repr=False)
    tls: Callable[[], ssl.SSLContext | None] = field(repr=False)

    def __str__(self) -> str:
        return f"{self.database} on {self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Session:
    """A connection, and what does not change while it lasts.

    keyed: tables whose primary key is a component's id and TS_ID; longest: bytes that the server joins before it cuts a text off.
    """

    connection: Any
    schema: Schema
    keyed: frozenset[str]
    zone: dt.tzinfo | None
    longest: int


# asyncmy begins a transaction that never ends unless told otherwise, and would then see no new TS_ID for ever: autocommit. Its wait
# for a server that does not answer has no end either: read_timeout. Any error may have left an answer half read, so the connection is
# given up after each, and the next call makes another.
class Mysql:
    """A database of a server, over at most two connections, made when they are needed and again after errors.

    Two, because the server then works out one table's rows while another's are read here; more would only be a burden to it.
    """

    local: ClassVar[str] = "TIMESTAMP"

    def __init__(self, server: Server, *, finished: bool = False) -> None:
        self.finished = finished
        self._server = server
        self._idle: list[Session] = []
        self._slots = asyncio.Semaphore(CONNECTIONS)

    def __str__(self) -> str:
        return str(self._server)

    async def schema(self) -> Schema:
        """Return which tables and columns there are that the user may read."""
        return await self._run(_schema_of)

    async def zone(self) -> dt.tzinfo | None:
        """Return the server's time zone, if it is a named one or an offset."""
        return await self._run(_zone_of)

    async def select(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a small result."""
        return await self._run(lambda session: _fetch_all(session.connection, sql))

    async def numbers(self, ask: Ask) -> list[NDArray[Any]]:
        """Return what ask.named says, an array each."""
        return await self._run(lambda session: _fetch(session, ask))

    async def count(self, ask: Ask) -> int:
        """Return how many rows there are."""
        ((rows,),) = await self._run(lambda session: _fetch_all(session.connection, f"SELECT COUNT(*){_place(session, ask)}"))
        return int(rows)

    async def close(self) -> None:
        """Leave the server."""
        while self._idle:
            await self._idle.pop().connection.ensure_closed()

    async def _run(self, work: Callable[[Session], Awaitable[T]]) -> T:
        async with self._slots:
            session = self._idle.pop() if self._idle else None
            try:
                session = session or await self._begin()
                result = await work(session)
            except BaseException as error:
                if session is not None:
                    session.connection.close()
                if isinstance(error, (MySQLError, OSError)):
                    self._forget_idle()
                    raise self._classified(error) from None
                raise
            self._idle.append(session)
            return result

    def _forget_idle(self) -> None:
        """Give up the other connection too: what broke one, such as a restart of the server, mostly breaks both."""
        while self._idle:
            self._idle.pop().connection.close()

    async def _begin(self) -> Session:
        server = self._server
        async with asyncio.timeout(CONNECT_SECONDS):
            connection = await asyncmy.connect(
                host=server.host,
                port=server.port,
                user=server.user,
                password=server.password(),
                database=server.database,
                charset="utf8mb4",
                ssl=server.tls(),
                autocommit=True,
                connect_timeout=CONNECT_SECONDS,
                read_timeout=server.read_timeout,
            )
        try:
            return await _described(connection)
        except BaseException:
            connection.close()
            raise

    def _classified(self, error: Exception) -> CollectError:
        number = error.args[0] if isinstance(error, MySQLError) and error.args else None
        said = str(error.args[-1] if number else error) or type(error).__name__
        user = self._server.user
        if number in LOGIN_DENIED:
            return Fatal(f"{self} does not let {user} in: {said}; check the user in url, its password, and what hosts the server allows")
        if number in READING_DENIED:
            return Fatal(f"{self} must not be read by {user}: {said}; GRANT SELECT ON `{self._server.database}`.* TO that user")
        if number in NOT_THERE:
            return Fatal(f"{self} is no LMT database: {said}; check the database in url, and whether {user} may read it")
        if UNTRUSTED in said:
            return Fatal(f"{self} shows a certificate that is not trusted: {said}; check tls_ca and the host in url")
        return Transient(f"{self} does not answer: {said}")


async def _schema_of(session: Session) -> Schema:
    return session.schema


async def _zone_of(session: Session) -> dt.tzinfo | None:
    return session.zone


async def _described(connection: Any) -> Session:
    columns: dict[str, set[str]] = {}
    of_tables = "SELECT TABLE_NAME, COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE()"
    for table, column in await _fetch_all(connection, of_tables):
        columns.setdefault(table, set()).add(column.upper())
    of_keys = "SELECT TABLE_NAME FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = DATABASE()"
    by_ts_id = " AND INDEX_NAME = 'PRIMARY' AND SEQ_IN_INDEX = 2 AND COLUMN_NAME = 'TS_ID'"
    keyed = frozenset(table for (table,) in await _fetch_all(connection, of_keys + by_ts_id))
    await connection.query("SET SESSION group_concat_max_len = @@max_allowed_packet")
    of_server = "SELECT @@global.time_zone, @@system_time_zone, @@group_concat_max_len"
    ((told, system, longest),) = await _fetch_all(connection, of_server)
    return Session(connection, {table: frozenset(names) for table, names in columns.items()}, keyed, zone(told, system), longest)


def zone(told: str, system: str) -> dt.tzinfo | None:
    """Return the time zone of a server's settings, if that is a named one or an offset.

    Abbreviations, which is what servers in their machine's zone tell, are none: PST is no zone, and EST is no longer that in July.
    """
    name = system if told == "SYSTEM" else told
    if offset := OFFSET.fullmatch(name):
        seconds = int(offset[2]) * 3600 + int(offset[3]) * 60
        return dt.timezone(dt.timedelta(seconds=-seconds if offset[1] == "-" else seconds))
    return ZoneInfo(name) if name == "UTC" or ("/" in name and name in available_timezones()) else None


# By itself the server takes the index on TS_ID and looks up row by row, at less than half the speed and twice its own work.
def _place(session: Session, ask: Ask) -> str:
    keyed = f" FORCE INDEX (PRIMARY) WHERE {ask.of_keys} AND" if ask.table.name in session.keyed else " WHERE"
    return f" FROM {ask.table.name}{keyed} TS_ID BETWEEN {ask.first} AND {ask.last}{ask.of_operations}"


async def _fetch_all(connection: Any, sql: str) -> list[tuple[Any, ...]]:
    async with connection.cursor() as cursor:
        await cursor.execute(sql)
        return list(await cursor.fetchall())


async def _fetch(session: Session, ask: Ask) -> list[NDArray[Any]]:
    parse: Callable[[str], NDArray[Any]] = _integers if ask.table.exact else _floats
    group, others = _grouped(session, ask)
    groups, values = [parse("")], [parse("").reshape(0, len(others))]
    for part in _parts(ask, session.longest // 2 // LONGEST_NUMBER // len(others)):
        at_once = max(1, ROWS_AT_ONCE // (part.last - part.first + 1))
        async with session.connection.cursor(cursor=SSCursor) as cursor:
            await cursor.execute(_joined(session, part))
            while rows := await cursor.fetchmany(at_once):
                keys, counts, texts = zip(*rows, strict=True)
                if max(map(len, texts)) >= session.longest:
                    raise Fatal(f"{ask.table.name} has more rows of a TS_ID than its server joins: raise its max_allowed_packet")
                groups.append(np.repeat(np.array(keys, groups[0].dtype), counts))
                values.append(parse(",".join(texts)).reshape(-1, len(others)))
    found = dict(zip(others, np.concatenate(values).T, strict=True)) | {group: np.concatenate(groups)}
    return [found[name] for name in ask.named]


# The numbers of a component, or of a TS_ID where a table has no such key, come as one text, joined by the server in the order of its
# index: cheaper for both sides than a row at a time, and so many Python objects.
def _joined(session: Session, ask: Ask) -> str:
    group, others = _grouped(session, ask)
    absent = ABSENT if ask.table.exact else "'null'"
    # A condition leaves no NULL among TS_IDs.
    numbers = ", ".join(name if name == "TS_ID" else f"IFNULL({name}, {absent})" for name in others)
    return f"SELECT {group}, COUNT(*), GROUP_CONCAT(CONCAT_WS(',', {numbers})){_place(session, ask)} GROUP BY {group}"


def _grouped(session: Session, ask: Ask) -> tuple[str, list[str]]:
    """Return what rows are joined by, and what else is asked for."""
    group = ask.table.key if ask.table.name in session.keyed else "TS_ID"
    return group, [name for name in ask.named if name != group]


def _parts(ask: Ask, most: int) -> Iterator[Ask]:
    """Cut a range of TS_IDs into such of `most` TS_IDs."""
    for first in range(ask.first, ask.last + 1, max(1, most)):
        yield replace(ask, first=first, last=min(ask.last, first + max(1, most) - 1))


def _integers(text: str) -> NDArray[np.int64]:
    return np.fromstring(text, np.int64, sep=",")


# Six times as fast as numpy reads floats.
def _floats(text: str) -> NDArray[np.float64]:
    return np.array(_json_to_floats(f"[{text}]"), np.float64)
