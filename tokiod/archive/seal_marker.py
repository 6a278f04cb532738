"""The marker next to a file that is to be sealed: `.NAME.opened`, an empty file.

The writer makes it before it reopens a sealed file, `tokioctl seal` makes it to request that a live file is sealed. It is removed once the
file is sealed. A kill in between leaves it, next to a live, a sealed or a missing file; the next writer handles all three.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from tokiod.tts.live.files import exists

if TYPE_CHECKING:
    from collections.abc import Iterator

SUFFIX = ".opened"


def marker(path: Path) -> Path:
    """Return the path of a file's marker."""
    return path.with_name(f".{path.name}{SUFFIX}")


def mark(path: Path) -> None:
    """Make a file's marker. Raises OSError."""
    marker(path).touch()


def unmark(path: Path) -> None:
    """Remove a file's marker if there is one."""
    marker(path).unlink(missing_ok=True)


def is_marked(path: Path) -> bool:
    """Return whether a file is to be sealed. Raises OSError where that can't be found out."""
    return exists(marker(path))


def marked_files(root: Path) -> Iterator[Path]:
    """Yield the files below `root` that have a marker, whether they exist or not."""
    # Not Path.rglob(), which makes a Path of each entry.
    for directory, _, names in os.walk(root, onerror=_raise_unless_gone):
        for name in names:
            if name.startswith(".") and name.endswith(SUFFIX):
                yield Path(directory, name[1 : -len(SUFFIX)])


def _raise_unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError | PermissionError):
        raise error
