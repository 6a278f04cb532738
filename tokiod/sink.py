"""The contract of a sink: it stores whole windows by assignment, makes them durable in a commit, and reports which cells changed.

A sink may receive a window twice, after a later one, or again after a kill: the result is the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from tokiod.ranges import Ranges

if TYPE_CHECKING:
    from collections import Counter
    from pathlib import Path

    from tokiod.batch import Batch
    from tokiod.window import Window
    from tokiod.window_data import Collected


class Applied(msgspec.Struct):
    """The result of storing a window: how many cells were assigned, how many were dropped by reason, and which converted cells changed.

    changes: gauge batches; a cell that became missing again has the value NaN.
    computed: spans of the system whose cells were computed, by this window and since the one before, epoch seconds: whether they changed or
    not, so that a window that comes again after a kill has the same.
    unreported: datasets of the system of which earlier changes were dropped together with a quarantined file; some of these cells are in
    the files, so subscribers must read them there.
    """

    cells: int
    dropped: Counter[str]
    changes: list[Batch] = msgspec.field(default_factory=list)
    unreported: set[str] = msgspec.field(default_factory=set)
    computed: Ranges = msgspec.field(default_factory=Ranges)


class QuarantinedFile(msgspec.Struct, frozen=True):
    """A file that is not trusted any more and was renamed to `aside`: no window of `system` in `window` counts as stored.

    salvaged: a copy holds all that was committed, so only windows since the last commit are not stored.
    """

    system: str
    window: Window
    path: str
    aside: str
    reason: str
    salvaged: bool


class UnsyncedFile(msgspec.Struct, frozen=True):
    """A file that can't be committed at present and stays in use: no window of `system` in `window` since its last commit is stored.

    window: the file's span with those of its neighbours, whose windows wrote to it too. The next commit tries again.
    """

    system: str
    window: Window
    path: str
    reason: str


class FileChange(msgspec.Struct, frozen=True):
    """A file that was made, grown, opened (reopened), or sealed; error: the reason why it was not."""

    change: str
    path: Path
    error: Exception | None = None


class Sink(Protocol):
    """Where windows are stored. Only one process calls it, from one thread.

    Windows: apply, then commit. The other operations are maintenance: they begin work that run_maintenance() reports once it is done, and
    none of them waits for it. A sink without files implements them by doing nothing.
    """

    def apply(self, collected: Collected) -> Applied:
        """Store a window, not yet durably. Raises Refusal; then nothing of it counts as stored."""
        ...

    def commit(self) -> list[QuarantinedFile | UnsyncedFile]:
        """Make all that was applied durable; return the files whose windows since the last commit are not stored."""
        ...

    @property
    def is_busy(self) -> bool:
        """Whether maintenance is in progress, so that run_maintenance() is to be called again soon."""
        ...

    def run_maintenance(self) -> list[FileChange]:
        """Go on with maintenance for some milliseconds; return what was done since the last call."""
        ...

    def prepare(self, system: str, time: int) -> None:
        """Begin to create the file that holds an epoch second, unless it exists, so that its first window need not wait."""
        ...

    def seal(self, system: str, time: int) -> bool:
        """Begin to seal the file that holds a time; return False if there is no such live file or it is being rewritten."""
        ...

    def adopt(self, system: str, time: int, last_used: float | None = None) -> None:
        """Take over a file that is to be sealed once no windows come for it: reopened by a predecessor, or sealed by request.

        last_used: the clock's time of its last window, None for now. Does nothing for a file that was taken over before.
        """
        ...

    def miss(self, path: Path) -> None:
        """Stop using a file that was found missing; the next commit reports it if windows were being stored in it."""
        ...

    def seal_reopened(self) -> list[FileChange]:
        """Try once to seal each file that was reopened or taken over, and wait for it; for a clean stop."""
        ...

    def close(self) -> None:
        """Cancel maintenance and release all files; windows that were not committed may be lost."""
        ...
