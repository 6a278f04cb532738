"""The contract of a sink: windows in, whole, by assignment; then a commit; then what has changed.

A sink may apply a window twice or after a later one, whole or again after a kill: the result is the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections import Counter
    from pathlib import Path

    from tokiod.batch import Batch
    from tokiod.window import Window
    from tokiod.window_data import Collected


@dataclass(slots=True)
class Applied:
    """What became of a window: cells assigned; cells dropped by reason; the converted cells that changed, as gauge batches.

    A cell that became missing again has the value NaN in `changes`.
    """

    cells: int
    dropped: Counter[str]
    changes: list[Batch] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SetAside:
    """A file that is not trusted any more and was renamed to `aside`: all windows of `system` in `window` are unproved.

    salvaged: a new file holds all that had been committed, so only what was not yet committed is unproved.
    """

    system: str
    window: Window
    path: str
    aside: str
    reason: str
    salvaged: bool


@dataclass(frozen=True, slots=True)
class Done:
    """Something that was done to a file beside storing windows (made, grown, opened, sealed), or why it was not."""

    what: str
    path: Path
    error: OSError | None = None


class Sink(Protocol):
    """Where windows are stored."""

    def apply(self, collected: Collected) -> Applied:
        """Store a window, not yet durably. Raises Refusal; then nothing of it counts as stored."""
        ...

    def commit(self) -> list[SetAside]:
        """Make all that was applied durable; returns the files that failed, whose windows since the last commit are not stored."""
        ...

    def rest(self) -> list[Done]:
        """Go on with what is done beside storing windows; it takes milliseconds. Returns what is done since."""
        ...

    def close(self) -> None:
        """Let go of files; what was not committed may be lost."""
        ...
