"""LMT's MySQL or MariaDB server, queried with little load: by primary key, with nothing held open between statements."""

from __future__ import annotations

import asyncio
import datetime as dt
import re
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar
from zoneinfo import ZoneInfo, available_timezones

import asyncmy
import msgspec
import numpy as np
from asyncmy.cursors import SSCursor
from asyncmy.errors import MySQLError, OperationalError

from collectors.lmt.datasets import NOT_A_NUMBER, NOT_AN_INTEGER, NULL_INTEGER
from tokiod.errors import CollectError, Fatal, Transient

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Iterator

    from numpy.typing import NDArray

    from collectors.lmt.client import RowRange, Schema
    from collectors.lmt.datasets import Table

T = TypeVar("T")

ROWS_AT_ONCE = 10_000
MAX_NUMBER_LENGTH = len(",-2.2250738585072014e-308")
CONNECT_SECONDS = 10
CONNECTIONS = 2
LOGIN_DENIED = {1045, 1130, 1251, 1698}
READING_DENIED = {1044, 1142, 1143}
UNKNOWN_NAME = {1049, 1054, 1146}
NEEDS_TLS = -1
"""The number, no server's, of the error for a login that is refused without TLS."""
CERTIFICATE_FAILED = "CERTIFICATE_VERIFY_FAILED"
"""The text of the ssl module within that of asyncmy."""

_json_to_floats = msgspec.json.Decoder(list[float | None]).decode

OFFSET = re.compile(r"([+-])(\d\d):(\d\d)")


@dataclass(frozen=True, slots=True)
class Server:
    """Where a database is and how to log in. read_timeout: seconds for which the server may send nothing."""

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
    """A connection, and what is constant during its life.

    types: of the columns of each table, such as "float" and "bigint(20) unsigned"; keyed: tables whose primary key is a component's id and
    TS_ID; max_joined_bytes: where the server truncates a joined text.
    """

    connection: Any
    schema: Schema
    types: dict[str, dict[str, str]]
    keyed: frozenset[str]
    zone: dt.tzinfo | None
    max_joined_bytes: int


# By default asyncmy begins a transaction that never ends and would never see a new TS_ID: hence autocommit. Its wait for a server that
# does not answer has no limit either: hence read_timeout. Any error may leave an answer half read, so a connection is closed after each
# error, and the next call opens another.
class Mysql:
    """A database of a server, over at most two connections, opened when required and again after errors.

    Two, because the server then works on one table while the rows of another are read here; more would only load it.
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
        """Return the tables and columns that the user may read."""
        return await self._run(_schema_of)

    async def zone(self) -> dt.tzinfo | None:
        """Return the server's time zone, if it is a named one or an offset."""
        return await self._run(_zone_of)

    async def select(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a small result."""
        return await self._run(lambda session: _fetch_all(session.connection, sql))

    async def numbers(self, wanted: RowRange) -> list[NDArray[Any]]:
        """Return wanted.named, an array per column."""
        return await self._run(lambda session: _fetch(session, wanted))

    async def stamps_near(self, first: str, last: str) -> str:  # noqa: ARG002 - the condition on TIMESTAMP itself is enough
        """Return TRUE."""
        return "TRUE"

    async def unplaced(self, table: Table) -> int:  # noqa: ARG002 - a column has one type, and a range takes its numbers
        """Return 0."""
        return 0

    async def count(self, wanted: RowRange) -> int:
        """Return the number of rows."""
        ((rows,),) = await self._run(lambda session: _fetch_all(session.connection, f"SELECT COUNT(*){_from_where(session, wanted)}"))
        return int(rows)

    async def close(self) -> None:
        """Close the connections."""
        while self._idle:
            await self._idle.pop().connection.ensure_closed()

    async def _run(self, work: Callable[[Session], Awaitable[T]]) -> T:
        async with self._slots:
            session = self._idle.pop() if self._idle else None
            try:
                session = session or await self._connect()
                result = await work(session)
            except BaseException as error:
                if session is not None:
                    session.connection.close()
                if isinstance(error, (MySQLError, OSError)):
                    self._forget_idle()
                    raise self._to_collect_error(error) from None
                raise
            self._idle.append(session)
            return result

    def _forget_idle(self) -> None:
        """Close the other connection too: what broke one, such as a restart of the server, usually broke both."""
        while self._idle:
            self._idle.pop().connection.close()

    async def _connect(self) -> Session:
        server, tls = self._server, self._server.tls()
        with _only_with_tls(tls):
            async with asyncio.timeout(CONNECT_SECONDS):
                connection = await asyncmy.connect(
                    host=server.host,
                    port=server.port,
                    user=server.user,
                    password=server.password(),
                    database=server.database,
                    charset="utf8mb4",
                    ssl=tls,
                    autocommit=True,
                    connect_timeout=CONNECT_SECONDS,
                    read_timeout=server.read_timeout,
                    **({} if tls else WITHOUT_TLS),
                )
        try:
            return await _describe(connection)
        except BaseException:
            connection.close()
            raise

    def _to_collect_error(self, error: Exception) -> CollectError:
        number = error.args[0] if isinstance(error, MySQLError) and error.args else None
        text = str(error.args[-1] if number else error) or type(error).__name__
        user = self._server.user
        if number in LOGIN_DENIED:
            return Fatal(f"{self} rejects user {user}: {text}; check the user in url, its password, and the hosts that the server allows")
        if number == NEEDS_TLS:
            return Fatal(f"{self} asks for the password of {user} in a form that is safe with TLS only ({text}): set tls = true")
        if number in READING_DENIED:
            return Fatal(f"{user} may not read {self}: {text}; GRANT SELECT ON `{self._server.database}`.* TO that user")
        if number in UNKNOWN_NAME:
            return Fatal(f"{self} is not an LMT database: {text}; check the database in url, and whether {user} may read it")
        if CERTIFICATE_FAILED in text:
            return Fatal(f"{self}: the server's certificate is not trusted: {text}; check tls_ca and the host in url")
        return Transient(f"{self} does not answer: {text}")


class _Refused:
    """A method of login whose answer is the password, or enough to compute it: the server receives no answer."""

    def __init__(self, connection: Any) -> None:
        pass

    def authenticate(self, _packet: Any) -> None:
        raise OperationalError(NEEDS_TLS, "its method of login sends the password")


# The server, or what answers in its place, may ask for any method. sha256_password encrypts the password for the key that the server sends,
# and caching_sha2_password does so where its first step fails; without TLS it may be any key. A value that is not a key ends both.
WITHOUT_TLS: dict[str, Any] = {
    "auth_plugin_map": dict.fromkeys((b"mysql_clear_password", b"dialog", b"sha256_password", b"mysql_old_password"), _Refused),
    "server_public_key": b"no key is trusted",
}


@contextmanager
def _only_with_tls(tls: ssl.SSLContext | None) -> Iterator[None]:
    """Give the error of an invalid key the number of a refused login."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        if tls is None:
            raise OperationalError(NEEDS_TLS, f"the password would be encrypted for any key: {error}") from None
        raise


async def _schema_of(session: Session) -> Schema:
    return session.schema


async def _zone_of(session: Session) -> dt.tzinfo | None:
    return session.zone


async def _describe(connection: Any) -> Session:
    types: dict[str, dict[str, str]] = {}
    of_tables = "SELECT TABLE_NAME, COLUMN_NAME, COLUMN_TYPE FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE()"
    for table, column, kind in await _fetch_all(connection, of_tables):
        types.setdefault(table, {})[column.upper()] = kind.lower()
    of_keys = "SELECT TABLE_NAME FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = DATABASE()"
    by_ts_id = " AND INDEX_NAME = 'PRIMARY' AND SEQ_IN_INDEX = 2 AND COLUMN_NAME = 'TS_ID'"
    keyed = frozenset(table for (table,) in await _fetch_all(connection, of_keys + by_ts_id))
    await connection.query("SET SESSION group_concat_max_len = @@max_allowed_packet")
    of_server = "SELECT @@global.time_zone, @@system_time_zone, @@group_concat_max_len"
    ((setting, system, max_joined_bytes),) = await _fetch_all(connection, of_server)
    schema = {table: frozenset(columns) for table, columns in types.items()}
    return Session(connection, schema, types, keyed, zone(setting, system), max_joined_bytes)


def zone(configured: str, system: str) -> dt.tzinfo | None:
    """Return the time zone of a server's settings, if that is a named one or an offset.

    Servers in their host's zone report abbreviations, which are no zones: PST is unknown, and EST is wrong in July.
    """
    name = system if configured == "SYSTEM" else configured
    if offset := OFFSET.fullmatch(name):
        seconds = int(offset[2]) * 3600 + int(offset[3]) * 60
        return dt.timezone(dt.timedelta(seconds=-seconds if offset[1] == "-" else seconds))
    return ZoneInfo(name) if name == "UTC" or ("/" in name and name in available_timezones()) else None


# Without the hint the server takes the index on TS_ID and looks up row by row, at less than half the speed and twice the load.
def _from_where(session: Session, wanted: RowRange) -> str:
    keyed = f" FORCE INDEX (PRIMARY) WHERE {wanted.of_keys} AND" if wanted.table.name in session.keyed else " WHERE"
    return f" FROM {wanted.table.name}{keyed} TS_ID BETWEEN {wanted.first} AND {wanted.last}{wanted.of_operations}"


async def _fetch_all(connection: Any, sql: str) -> list[tuple[Any, ...]]:
    async with connection.cursor() as cursor:
        await cursor.execute(sql)
        return list(await cursor.fetchall())


# A server converts what it can, 0 for most texts, and what does not fit wraps around or is cut. So a column that is not of LMT's type is
# compared before it is converted. Of a FLOAT the server shows six digits, and all of it as a DOUBLE; old ones have no CAST to that.
def _number(session: Session, table: Table, name: str) -> str:
    """Return the expression of a BIGINT, with NOT_AN_INTEGER for other values, or of a DOUBLE, with NOT_A_NUMBER for other values."""
    kind = session.types[table.name][name]
    is_exact = table.exact or name in table.identity
    if kind.startswith(INTEGER_TYPES):
        return name if not is_exact or not kind.startswith("bigint") or "unsigned" not in kind else _if(f"{name} < 1 << 63", name, SIGNED)
    if kind.startswith(FLOAT_TYPES):
        return _if(f"{name} = FLOOR({name}) AND ABS({name}) < 9e18", name, SIGNED) if is_exact else f"{name} + 0E0"
    return _if(f"{name} REGEXP '{WHOLE}'", name, SIGNED) if is_exact else _if(f"{name} REGEXP '{DECIMAL}'", name, "{} + 0E0")


SIGNED = "CAST({} AS SIGNED)"
INTEGER_TYPES, FLOAT_TYPES = ("tinyint", "smallint", "mediumint", "int", "bigint"), ("float", "double")
WHOLE, DECIMAL = "^ *[-+]?[0-9]{1,19}([.]0*)? *$", "^ *[-+]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][-+]?[0-9]+)? *$"


def _if(condition: str, name: str, converted: str) -> str:
    otherwise = f"({NOT_AN_INTEGER + 1} - 1)" if converted == SIGNED else repr(NOT_A_NUMBER)
    return f"IF({condition}, {converted.format(name)}, IF({name} IS NULL, NULL, {otherwise}))"


async def _fetch(session: Session, wanted: RowRange) -> list[NDArray[Any]]:
    """Return wanted.named, an array per column, of columns of any type."""
    parse: Callable[[str], NDArray[Any]] = _integers if wanted.table.exact else _floats
    group, others = _grouped(session, wanted)
    groups, values = [parse("")], [parse("").reshape(0, len(others))]
    for part in _parts(wanted, session.max_joined_bytes // 2 // MAX_NUMBER_LENGTH // len(others)):
        at_once = max(1, ROWS_AT_ONCE // (part.last - part.first + 1))
        async with session.connection.cursor(cursor=SSCursor) as cursor:
            await cursor.execute(_joined_select(session, part))
            while rows := await cursor.fetchmany(at_once):
                keys, counts, texts = zip(*rows, strict=True)
                if max(map(len, texts)) >= session.max_joined_bytes:
                    raise Fatal(f"{wanted.table.name} has more rows of a TS_ID than its server joins: increase its max_allowed_packet")
                groups.append(np.repeat(np.array(keys, groups[0].dtype), counts))
                values.append(parse(",".join(texts)).reshape(-1, len(others)))
    found = dict(zip(others, np.concatenate(values).T, strict=True)) | {group: np.concatenate(groups)}
    return [found[name] for name in wanted.named]


# The server joins the numbers of a component (or of a TS_ID, where a table has no such key), in the order of its index. That is cheaper for
# both sides than sending row by row and making a Python object of each number.
def _joined_select(session: Session, wanted: RowRange) -> str:
    group, others = _grouped(session, wanted)
    # The condition on TS_ID leaves no NULL among them. CONCAT writes a DOUBLE in full, IFNULL cuts it.
    form = f"IFNULL({{}}, {NULL_INTEGER})" if wanted.table.exact else "IFNULL(CONCAT({}), 'null')"
    numbers = ", ".join(name if name == "TS_ID" else form.format(_number(session, wanted.table, name)) for name in others)
    return f"SELECT {group}, COUNT(*), GROUP_CONCAT(CONCAT_WS(',', {numbers})){_from_where(session, wanted)} GROUP BY {group}"


def _grouped(session: Session, wanted: RowRange) -> tuple[str, list[str]]:
    """Return the column that rows are grouped by, and the other columns."""
    group = wanted.table.key if wanted.table.name in session.keyed else "TS_ID"
    return group, [name for name in wanted.named if name != group]


def _parts(wanted: RowRange, ts_ids: int) -> Iterator[RowRange]:
    """Split a range of TS_IDs into parts of `ts_ids`."""
    for first in range(wanted.first, wanted.last + 1, max(1, ts_ids)):
        yield replace(wanted, first=first, last=min(wanted.last, first + max(1, ts_ids) - 1))


def _integers(text: str) -> NDArray[np.int64]:
    return np.fromstring(text, np.int64, sep=",")


# Six times as fast as numpy reads floats.
def _floats(text: str) -> NDArray[np.float64]:
    return np.array(_json_to_floats(f"[{text}]"), np.float64)
