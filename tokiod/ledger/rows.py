"""What the ledger tells: rows for people and programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from tokiod.window import Window  # noqa: TC001 - a field's type

if TYPE_CHECKING:
    from collections.abc import Mapping

Unstoredness = Literal["failed", "rejected", "lost"]


class StoredEntry(msgspec.Struct, frozen=True):
    """A window that is synced in its file: how many cells were assigned, how many dropped by reason, of how many records if known.

    partial: only some of the source's datasets, so the window is not stored.
    """

    source: str
    kind: str
    system: str
    window: Window
    cells: int
    dropped: Mapping[str, int] = msgspec.field(default_factory=dict)
    records: int | None = None
    partial: bool = False


class Unstored(msgspec.Struct, frozen=True):
    """A span that is not stored and why. Times are epoch seconds; next_try is None where it will not be asked for again."""

    source: str
    window: Window
    state: Unstoredness
    attempts: int
    error_class: str
    error: str
    last_try: float
    next_try: float | None


class SourceStatus(msgspec.Struct, frozen=True):
    """What is known of a source.

    step, length, retention: seconds, None until the collectors have registered it; since: the first epoch second that is expected;
    last: the newest window stored, at stored_at, with last_cells; windows, cells, dropped: sums over all that was ever stored.
    """

    name: str
    kind: str
    system: str
    step: int | None
    length: int | None
    retention: int | None
    since: int | None
    last: Window | None
    stored_at: float | None
    last_cells: int
    windows: int
    cells: int
    dropped: dict[str, int]
    state: str
    state_reason: str
    state_since: float | None
