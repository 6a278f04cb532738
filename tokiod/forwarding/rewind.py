"""Requests to send a span again: files that `tokioctl sinks rewind` puts into the state directory of a sink, which may run or not.

Each request is a file of its own, so that none replaces one that is being followed. One that is followed twice sends the rows twice.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from tokiod.errors import TokiodError
from tokiod.tts.live.files import exists

if TYPE_CHECKING:
    from pathlib import Path

PATTERN = "rewind-*.json"
READABLE_MODE = 0o644
"""Root's file is read by the sink's user. The directory keeps others out."""


class Rewind(msgspec.Struct, frozen=True):
    """Send all rows from `start` on again, epoch seconds."""

    start: int


def request(directory: Path, start: int) -> None:
    """Ask the sink with this state directory to send all rows from a time on again.

    Raises TokiodError for a sink that has never run, and for a user who may not write to its directory.
    """
    try:
        if not exists(directory):
            raise TokiodError(f"{directory} does not exist: the sink has never run, and sends all rows at its first start")
        name = f"rewind-{uuid.uuid4().hex}.json"
        temporary = directory / f".{name}.tmp"
        temporary.write_bytes(msgspec.json.encode(Rewind(start)))
        temporary.chmod(READABLE_MODE)
        temporary.replace(directory / name)
    except PermissionError:
        raise TokiodError(f"no permission to write to {directory}: run this as root, or as the user of the sink") from None


def requested(directory: Path) -> dict[Path, int]:
    """Return the requests in a directory, and from when on each of them asks for rows; a malformed one is removed."""
    found: dict[Path, int] = {}
    for path in sorted(directory.glob(PATTERN)):
        try:
            found[path] = msgspec.json.decode(path.read_bytes(), type=Rewind).start
        except FileNotFoundError:
            continue
        except (OSError, msgspec.DecodeError, ValueError):
            done([path])
    return found


def done(requests: list[Path]) -> None:
    """Remove requests that were followed."""
    for path in requests:
        with suppress(OSError):
            path.unlink()
