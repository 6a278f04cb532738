"""Examine the directories that the daemon writes: whether its user may. Everything found is a warning.

The check may run as root or as a reader, for a service that has a user of its own: the owner of the directories. This process can't know
that user's groups, so a directory that its group may write counts as permitted.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tokiod.runtime.users import user_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tokiod.config.schema import Config

BY_UNITS = (Path("/run/tokiod"), Path("/var/lib/tokiod"))
"""What systemd makes for the units."""
UNIT_DIRECTORIES = ("/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system")
_OWNER_WRITES, _GROUP_WRITES, _OTHERS_WRITE = 0o300, 0o030, 0o003


def problems(config: Config) -> Iterator[str]:
    """Yield each directory that the daemon's user may not write, or can't make, as "key: sentence"."""
    directories = list(_directories(config))
    try:
        user = _daemon_user([directory for _, directory in directories])
    except PermissionError:
        return
    for key, directory in directories:
        if sentence := _problem(directory, user):
            yield f"{key}: {sentence}"


def _daemon_user(directories: Iterable[Path]) -> int:
    """Return the owner of the first directory that is there and not root's: a daemon should have its own user; else this user.

    Raises PermissionError where this user may not see who it is.
    """
    for directory in directories:
        with suppress(FileNotFoundError, NotADirectoryError):
            if owner := directory.stat().st_uid:
                return owner
    return os.geteuid()


def _directories(config: Config) -> Iterator[tuple[str, Path]]:
    """Yield the directories with their keys; the daemon makes those in another one itself, so they are looked at where they exist."""
    archive = config.archive
    yield "archive.path", archive.root
    yield "bus.endpoint", config.run
    if config.feed.endpoint.startswith("ipc://"):
        yield "feed.endpoint", Path(config.feed.endpoint.removeprefix("ipc://")).parent
    inner = [("archive.path", directory) for directory in (archive.private, archive.owner.parent, archive.jobs)]
    inner += [("bus.endpoint", config.run / "metrics"), ("feed.endpoint", config.stages)]
    yield from ((key, directory) for key, directory in inner if _is_there(directory))


def _problem(directory: Path, user: int) -> str:
    """Return why a user can't write in a directory; empty if it can, or if this user may not see it."""
    there = next(path for path in (directory, *directory.parents) if _is_there(path))
    try:
        status = there.stat()
        # The units of the collectors, the feed and the page have the archive read-only on purpose: they never write there.
        if os.statvfs(there).f_flag & os.ST_RDONLY:
            return ""
    except OSError:
        return ""
    if not stat.S_ISDIR(status.st_mode):
        return f"{there} is not a directory"
    name = user_name(user)
    if _may_write(there, status, user) or (there != directory and _is_made_by_a_unit(directory)):
        return ""
    if there != directory:
        whom = "this user" if user == os.geteuid() else f"user {name}"
        return f"{directory} does not exist, and {whom} can't create it in {there}; as root: `install -d -o {name.lstrip('#')} {directory}`"
    remedy = "chmod u+rwx" if status.st_uid == user else f"chown {name.lstrip('#')}"
    return f"no permission to write to {there} for user {name}, as it belongs to {user_name(status.st_uid)}: `{remedy} {there}`"


def _may_write(directory: Path, status: os.stat_result, user: int) -> bool:
    if user == os.geteuid() and os.access(directory, os.W_OK | os.X_OK):
        return True
    permitted = (_OWNER_WRITES,) if status.st_uid == user else (_GROUP_WRITES, _OTHERS_WRITE)
    return any(status.st_mode & wanted == wanted for wanted in permitted)


def _is_made_by_a_unit(directory: Path) -> bool:
    """Return whether systemd makes a directory before the daemon starts: one of the units, where a unit is installed."""
    units = (unit for place in UNIT_DIRECTORIES for unit in Path(place).glob("tokiod*.service"))
    return any(directory.is_relative_to(made) for made in BY_UNITS) and next(units, None) is not None


def _is_there(path: Path) -> bool:
    """Return whether a path exists, or is in a directory that this user may not search."""
    try:
        return path.exists()
    except PermissionError:
        return True
