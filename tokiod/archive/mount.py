"""Whether the file system of an archive is mounted: an empty archive in its mount point would be filled, and hidden once it is."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tokiod.errors import TokiodError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokiod.config.sections import ArchiveConfig

FSTAB, MOUNTED = Path("/etc/fstab"), Path("/proc/self/mountinfo")


class NotMounted(TokiodError):  # noqa: N818 - says what is the case
    """An archive's file system is not there."""


def check_mounted(archive: ArchiveConfig) -> None:
    """Raise NotMounted for an archive without a ledger where /etc/fstab has a file system at or above it that is not mounted.

    A ledger shows that the archive is where it belongs, whatever /etc/fstab says.
    """
    with suppress(OSError):
        if archive.ledger.exists():
            return
    with suppress(OSError):
        mounted = set(_places(MOUNTED.read_text(), 4))
        for place in _places(FSTAB.read_text(), 1):
            is_above = place != "/" and archive.root.is_relative_to(place)
            if is_above and os.path.realpath(place) not in mounted:  # the kernel knows neither links nor a slash at the end
                raise NotMounted(f"the archive {archive.root} is not there: {place} of /etc/fstab is not mounted: mount {place}")


def _places(table: str, column: int) -> Iterator[str]:
    """Yield the mount points of /etc/fstab or mountinfo; without tmpfs and what is mounted by hand alone. Blanks are octal."""
    for line in table.splitlines():
        fields = line.split()
        if len(fields) > max(column, 3) and fields[0][0] != "#" and fields[2] != "tmpfs" and "noauto" not in fields[3].split(","):
            yield re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields[column])
