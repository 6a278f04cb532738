"""The result of a window: the writer's answer to it, and the outcome of an attempt."""

from __future__ import annotations

import asyncio
from typing import Literal

import msgspec

from tokiod.errors import Refusal

Outcome = Literal["transient", "timeout", "bug", "not_yet", "fatal", "rejected", "busy"]
"""The outcome of an attempt whose window was not stored; tokiod.polling.retry decides what follows."""


class Stored(msgspec.Struct, frozen=True):
    """The window is in the file, synced, and in the ledger. cells: assigned; dropped: cells that were not, by reason."""

    cells: int
    dropped: dict[str, int]


Answer = asyncio.Future[Stored | Refusal]
