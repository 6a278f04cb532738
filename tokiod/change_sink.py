"""The contract of a sink that the change log feeds: blocks of rows in, the receiver's acknowledgement out.

A kind of sink is a package in sinks/, or an entry point `tokiod.sinks` of another distribution (tokiod.config.plugins). It has

    class Config(SinkConfig)     its part of a [[sink]] section
    def sink(config, site)       returns a ChangeSink, or a DaySink; it opens nothing yet

The process `tokiod sink NAME` reads the change log, reads the rows from the files, calls the sink, and moves its cursor once the sink has
returned. So delivery is at least once, and the same rows may come again, also older ones after newer ones. A receiver keeps one state for
each row of a dataset, and the row with the highest revision replaces the others; of rows with the same revision the last one does.
The sink of the archive itself, which the writer calls, has another contract: tokiod.sink.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol

import msgspec

from tokiod.option import option
from tokiod.units import Duration

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from tokiod.window import Window


class SinkConfig(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """The keys of every [[sink]] section; each kind's Config adds its own.

    takes: "rows" for a ChangeSink, "days" for a DaySink.
    needs: the package that the kind needs beside those of tokiod, and the extra of tokiod that installs it; empty if there is no such one.
    """

    takes: ClassVar[Literal["rows", "days"]] = "rows"
    needs: ClassVar[tuple[str, str] | None] = None

    name: Annotated[
        str,
        option(
            "The name of the sink in commands, logs, metrics and its state. `tokiod sink NAME` runs it. With another name it is another "
            "sink, which sends the archive from its beginning.",
            '"kafka"',
            values="letters, digits, `.`, `_` and `-`; unique",
        ),
    ]
    kind: Annotated[str, option("The kind of the sink.", '"kafka"', values="a kind below, or one of another package")]
    systems: Annotated[
        tuple[str, ...],
        option("The systems whose rows are sent; without this key those of all sources and of [site].", '["cscratch"]'),
    ] = ()

    timeout: Annotated[
        Duration,
        option("Time limit for the receiver to acknowledge what is sent at once: some megabytes, or a day.", values="greater than zero"),
    ] = Duration(60)

    @property
    def window(self) -> int:
        """Seconds: blocks begin and end at multiples of it, or at the edges of a site day. 1 for a receiver of single rows."""
        return 1

    def faults(self) -> list[str]:
        """Return the errors that types can't express, each as "field: sentence"; none by default."""
        return []

    def warnings(self) -> list[str]:
        """Return warnings about values that are allowed but probably not intended, each as "field: sentence"."""
        return []


class Block(msgspec.Struct, frozen=True, eq=False):
    """Consecutive rows of a dataset, as the file held them when it was read. It replaces these rows whole.

    dataset: its logical name, such as "datatargets/readbytes". Row i is of [start + i x step, start + (i + 1) x step), UTC epoch seconds.
    columns: of the dataset in this file, in natural order; what is not among them is missing in these rows.
    values: f8[rows, columns], NaN where missing. All are missing where the rows are no longer stored.
    revision: the highest number of the changes that the block covers; it grows also from one epoch of the log to the next.
    """

    system: str
    dataset: str
    start: int
    step: int
    columns: tuple[str, ...]
    values: NDArray[np.float64]
    units: str
    revision: int
    epoch: int

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.values)

    @property
    def end(self) -> int:
        """Epoch seconds of the end of the last row."""
        return self.start + self.rows * self.step

    @property
    def times(self) -> NDArray[np.int64]:
        """The left edges i8[rows], UTC epoch seconds."""
        import numpy as np  # noqa: PLC0415 - commands that only read the configuration don't need it

        return self.start + self.step * np.arange(self.rows, dtype=np.int64)


class Acknowledged(msgspec.Struct):
    """What the receiver acknowledged: how many records it holds now, and how many it rejected for ever, by reason.

    A record is the receiver's unit: a message, a document, a file. A reason is a short stable phrase, for a metric.
    """

    records: int = 0
    rejected: Counter[str] = msgspec.field(default_factory=Counter)

    def add(self, other: Acknowledged) -> None:
        """Add the records of another acknowledgement."""
        self.records += other.records
        self.rejected.update(other.rejected)


class Opened(Protocol):
    """What every sink has. One task calls it, one call at a time.

    Its methods raise Transient where another attempt may help, and Fatal where a person must act first (a missing permission, a wrong
    password), with one sentence that names the remedy. A TimeoutError is transient, and so is any other exception, which is logged as a
    fault of the sink. The process then closes the sink, waits, and begins again with a new one. asyncio.CancelledError passes through.
    """

    async def open(self) -> None:
        """Connect to the receiver, and check what can be checked before the first row: names, rights, keys."""
        ...

    async def close(self) -> None:
        """Release what open() acquired, also after a failed open() or send(). What was not acknowledged may be lost."""
        ...


class ChangeSink(Opened, Protocol):
    """A sink of rows."""

    async def send(self, blocks: Sequence[Block]) -> Acknowledged:
        """Send the rows of one span of one system; return once the receiver has acknowledged all of them.

        blocks: at most one for each dataset, all of the same revision. Steps may differ between the groups of datasets; those of one group
        have the same rows. Each block begins at a whole number of `window` of the configuration, or with the site day, and has all rows
        that begin in its windows; one with rows longer than `window` may begin before the others. Where a day was made again with another
        step, a call before has the rows of the former step as missing, with a revision that is lower by one.
        """
        ...


class SealedDay(Protocol):
    """A site day of a system whose file is sealed. Call what reads it in a thread; it raises Transient where the file can't be read now.

    Let its other exceptions pass through store(): by them the process sees that the file is damaged, counts the day as rejected, and goes
    on with the next one.
    """

    @property
    def system(self) -> str:
        """Its system."""
        ...

    @property
    def date(self) -> dt.date:
        """Its date at the site."""
        ...

    @property
    def window(self) -> Window:
        """Its span."""
        ...

    @property
    def revision(self) -> int:
        """The highest number of the changes that it covers, as in Block."""
        ...

    @property
    def epoch(self) -> int:
        """The epoch of the change log."""
        ...

    @property
    def datasets(self) -> tuple[str, ...]:
        """The logical names of the datasets that the file has."""
        ...

    def blocks(self, dataset: str, rows: int) -> Iterator[Block]:
        """Read a dataset, at most so many rows at a time, oldest first. All blocks have the same columns."""
        ...


class DaySink(Opened, Protocol):
    """A sink of sealed days."""

    async def store(self, day: SealedDay) -> Acknowledged:
        """Store a day in place of what is stored of it; return once it is durable."""
        ...

    async def reopened(self, system: str, date: dt.date, revision: int) -> None:
        """Note that a day which was stored is no longer sealed: it changes, or its file is set aside. It comes again once it is sealed."""
        ...


class SinkSite(msgspec.Struct, frozen=True):
    """What a sink gets from the site.

    secret: returns the secret that a `*_file` or `*_env` field names; raises ConfigError where it is missing.
    state: the sink's own directory, where it may keep files; the process keeps its cursor there.
    """

    secret: Callable[[str], str]
    state: Path


class SinkPlugin(Protocol):
    """The parts of a kind."""

    Config: type[SinkConfig]

    def sink(self, config: Any, site: SinkSite) -> ChangeSink | DaySink:
        """Return the sink of a [[sink]] section. It opens nothing."""
        ...
