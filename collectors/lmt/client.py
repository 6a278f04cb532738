"""What the collector asks of a database, whichever it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    import datetime as dt

    from numpy.typing import NDArray

    from collectors.lmt.datasets import Table

Schema = dict[str, frozenset[str]]
"""The names of each table's columns."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Rows of a table: of some keys and, where a row is about one, some operations; of the TS_IDs first to last."""

    table: Table
    columns: tuple[str, ...]
    keys: tuple[int, ...]
    operations: tuple[int, ...]
    first: int
    last: int

    @property
    def named(self) -> tuple[str, ...]:
        """Everything to select."""
        return "TS_ID", self.table.key, *self.columns

    @property
    def rows(self) -> int:
        """How many rows there would be if none were missing."""
        return len(self.keys) * max(1, len(self.operations)) * (self.last - self.first + 1)

    @property
    def of_keys(self) -> str:
        """The condition on the key."""
        return f"{self.table.key} IN ({','.join(map(str, self.keys))})"

    @property
    def of_operations(self) -> str:
        """The condition on the operation, to be added to another one; in a form for which no server leaves the index on TS_ID."""
        return f" AND OPERATION_ID + 0 IN ({','.join(map(str, self.operations))})" if self.table.by_operation else ""


class Database(Protocol):
    """LMT's tables. Opens itself when it is first asked, and anew after it has failed.

    Everything raises Transient or Fatal; a cancelled call leaves it usable.
    finished: nothing will be added, so the newest TS_ID is complete too.
    local: the SQL expression of TIMESTAMP_INFO's time, YYYY-MM-DD hh:mm:ss or a datetime.
    """

    finished: bool
    local: ClassVar[str]

    def __str__(self) -> str:
        """Return where it is, for messages; without secrets."""
        ...

    async def schema(self) -> Schema:
        """Return which tables and columns there are."""
        ...

    async def zone(self) -> dt.tzinfo | None:
        """Return the time zone of TIMESTAMP_INFO, None if the database can't tell."""
        ...

    async def select(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a small result."""
        ...

    async def numbers(self, ask: Ask) -> list[NDArray[Any]]:
        """Return what ask.named says, an array each: i8 with ABSENT for NULL if the table is exact, else f8 with NaN.

        Rows of other keys may be among them; their order is any.
        """
        ...

    async def count(self, ask: Ask) -> int:
        """Return how many rows there are, without reading them."""
        ...

    async def close(self) -> None:
        """Let go of the connection."""
        ...
