"""What the collector queries a database for, of either sort."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol
from urllib.parse import unquote, urlsplit

from collectors.lmt.client_sqlite import Sqlite
from collectors.lmt.config import SQLITE
from tokiod.toolkit.tls import client_context

if TYPE_CHECKING:
    import datetime as dt

    from numpy.typing import NDArray

    from collectors.lmt.config import Config, Saved
    from collectors.lmt.datasets import Table
    from tokiod.collector import Site

DEFAULT_PORT = 3306

Schema = dict[str, frozenset[str]]
"""The columns of each table."""


@dataclass(frozen=True, slots=True)
class RowRange:
    """Rows of a table: of some keys, of some operations where a row belongs to one, and of the TS_IDs from first to last."""

    table: Table
    columns: tuple[str, ...]
    keys: tuple[int, ...]
    operations: tuple[int, ...]
    first: int
    last: int

    @property
    def named(self) -> tuple[str, ...]:
        """All columns to select."""
        return *self.table.identity[:2], *self.columns

    @property
    def rows(self) -> int:
        """The number of rows if none are missing."""
        return len(self.keys) * max(1, len(self.operations)) * (self.last - self.first + 1)

    @property
    def of_keys(self) -> str:
        """The condition on the key."""
        return f"{self.table.key} IN ({','.join(map(str, self.keys))})"

    @property
    def of_operations(self) -> str:
        """The condition on the operation, to append to another; in a form for which no server gives up the index on TS_ID."""
        return f" AND OPERATION_ID + 0 IN ({','.join(map(str, self.operations))})" if self.table.by_operation else ""


class Database(Protocol):
    """LMT's tables. The first call opens the database; so does the first call after a failure.

    All methods raise Transient or Fatal. A cancelled call leaves the database usable.
    finished: nothing will be added, so the newest TS_ID is complete too.
    local: the SQL expression of TIMESTAMP_INFO's time, YYYY-MM-DD hh:mm:ss or a datetime.
    """

    finished: bool
    local: ClassVar[str]

    def __str__(self) -> str:
        """Return the location for messages, without secrets."""
        ...

    async def schema(self) -> Schema:
        """Return the tables and their columns."""
        ...

    async def zone(self) -> dt.tzinfo | None:
        """Return the time zone of TIMESTAMP_INFO, None if the database does not know it."""
        ...

    async def select(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a small result."""
        ...

    async def numbers(self, wanted: RowRange) -> list[NDArray[Any]]:
        """Return wanted.named, an array per column: i8 with NULL_INTEGER for NULL if the table is exact, else f8 with NaN.

        What is no such number is NOT_AN_INTEGER, or NOT_A_NUMBER among floats. Rows of other keys may be included, in any order.
        """
        ...

    async def stamps_near(self, first: str, last: str) -> str:
        """Return a condition that the rows of TIMESTAMP_INFO with local times from first to last meet. It spares reading most others."""
        ...

    async def unplaced(self, table: Table) -> int:
        """Return how many rows of a finished database are in no range, since their TS_ID is not a number."""
        ...

    async def count(self, wanted: RowRange) -> int:
        """Return the number of rows without reading them."""
        ...

    async def close(self) -> None:
        """Close the connection."""
        ...


def database(text: str, access: Config | Saved, site: Site, *, finished: bool) -> Database:
    """Return the database at a valid URL. access: the password and TLS of a server; finished: see Database."""
    url = urlsplit(text)
    if url.scheme == SQLITE:
        return Sqlite(Path(unquote(url.path)), finished=finished)
    from collectors.lmt.client_mysql import Mysql, Server  # noqa: PLC0415 - asyncmy takes 60 ms, for servers only

    server = Server(
        host=url.hostname or "",
        port=url.port or DEFAULT_PORT,
        user=unquote(url.username or ""),
        database=unquote(url.path.strip("/")),
        read_timeout=access.read_timeout,
        password=lambda: _password(access, site),
        tls=lambda: client_context(access.tls_ca, access.tls_cert, access.tls_key) if access.tls else None,
    )
    return Mysql(server, finished=finished)


def _password(access: Config | Saved, site: Site) -> str:
    if access.password_file:
        return site.secret(f"file:{access.password_file}")
    return site.secret(f"env:{access.password_env}") if access.password_env else ""
