"""A file with the state of a process: replaced as a whole, so that no reader meets half of it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

import msgspec

if TYPE_CHECKING:
    from pathlib import Path

T = TypeVar("T")


def publish(path: Path, state: object) -> None:
    """Write a state. One that can't be written, as on a full disk, is written next time."""
    temporary = path.with_name(f".{path.name}.tmp")
    # Not synced: after a power loss it is written again.
    with suppress(OSError):
        temporary.write_bytes(msgspec.json.encode(state))
        temporary.replace(path)


def published(path: Path, kind: type[T]) -> tuple[T, float] | None:
    """Return a state and when it was written, seconds of the machine's clock; None for a file that is missing or of another version.

    Raises PermissionError.
    """
    try:
        written_at = path.stat().st_mtime
        return msgspec.json.decode(path.read_bytes(), type=kind), written_at
    except PermissionError:
        raise
    except (OSError, ValueError, msgspec.DecodeError):
        return None
