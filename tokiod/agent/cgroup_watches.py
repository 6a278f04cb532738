"""inotify's watches of directories of cgroups, and of what reports whether processes are in one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokiod.agent.inotify import CREATE, DELETE, IGNORED, MODIFY, ONLYDIR, OVERFLOW, Inotify

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokiod.agent.hierarchies import Hierarchy
    from tokiod.agent.sensor import Readings
    from tokiod.agent.tree import Tree

MADE, REMOVED, POPULATION, LOST = "made", "removed", "population", "lost"


class CgroupWatches:
    """What happens to cgroups. is_blind: some of it is not reported, because the kernel gives no more watches."""

    def __init__(self, tree: Tree) -> None:
        self.is_blind = False
        self._tree = tree
        self._inotify: Inotify | None = None
        self._directories: dict[int, tuple[Hierarchy, str]] = {}
        self._numbers: dict[str, int] = {}
        self._populations: dict[int, tuple[Hierarchy, str]] = {}

    def begin(self, readings: Readings) -> None:
        """Begin to watch."""
        with readings:
            self._inotify = Inotify()
        self.is_blind = self._inotify is None

    def fileno(self) -> int | None:
        """Return the descriptor that is readable when there are changes."""
        return self._inotify.fileno() if self._inotify else None

    def enter(self, readings: Readings, hierarchy: Hierarchy, directory: str) -> None:
        """Watch what is made and removed in a directory."""
        if self._inotify is None or directory in self._numbers:
            return
        try:
            number = self._inotify.watch(self._tree.path(directory), CREATE | DELETE | ONLYDIR)
        except FileNotFoundError:
            return
        except OSError as error:
            self.is_blind = True
            readings.drop("no inotify watch", f"{directory}: {error.strerror}")
            return
        self._directories[number] = hierarchy, directory
        self._numbers[directory] = number

    def has(self, directory: str) -> bool:
        """Return whether what is made and removed in a directory is reported."""
        return directory in self._numbers

    def leave(self, directory: str) -> None:
        """End the watch of a directory, if there is one."""
        if self._inotify is not None and (number := self._numbers.pop(directory, None)) is not None:
            self._inotify.unwatch(number)
            self._directories.pop(number, None)

    def follow(self, readings: Readings, hierarchy: Hierarchy, directory: str, path: str) -> int | None:
        """Watch the cgroup.events of a directory, whose changes are reported of `path`; return the watch's number."""
        number = None
        with readings:
            if self._inotify is not None:
                number = self._inotify.watch(self._tree.path(f"{directory}/cgroup.events"), MODIFY)
                self._populations[number] = hierarchy, path
        return number

    def unfollow(self, number: int | None) -> None:
        """End such a watch."""
        if self._inotify is not None and number is not None:
            self._inotify.unwatch(number)
            self._populations.pop(number, None)

    def changes(self) -> Iterator[tuple[str, Hierarchy | None, str]]:
        """Yield what has changed since the last call, where in a hierarchy, and the cgroup."""
        for number, mask, name in self._inotify.events() if self._inotify is not None else ():
            if mask & OVERFLOW:
                yield LOST, None, ""
            elif mask & IGNORED:
                self._forget(number)
            elif number in self._populations:
                yield POPULATION, *self._populations[number]
            elif number in self._directories:
                hierarchy, directory = self._directories[number]
                yield MADE if mask & CREATE else REMOVED, hierarchy, f"{directory}/{name}"

    def close(self) -> None:
        """Give the watches back."""
        if self._inotify is not None:
            self._inotify.close()
            self._inotify = None

    def _forget(self, number: int) -> None:
        self._populations.pop(number, None)
        _, directory = self._directories.pop(number, (None, ""))
        if self._numbers.get(directory) == number:
            del self._numbers[directory]
