"""File operations on real files that fail, end with the process or lose power at a step that a test chooses."""

from __future__ import annotations

import os
import random
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokiod.tts.live.files import Files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

PAGE = 4096

Names = dict[Path, int]


class SimulatedKill(BaseException):
    """The process was killed: no later operation has an effect."""


class FaultyFiles(Files):
    """File operations of a process on a machine that may fail, over the files below `root`, except those in directories named in `other`.

    fail(operation, nth, code) lets the nth call of an operation raise OSError(code), fail_at(n, code) the nth operation of any kind.
    kill_at(n) makes the nth operation of any kind the last, kill(operation, nth) the nth call of an operation: it does nothing (a write
    stores half of its cells) and raises SimulatedKill, and so does every later one. `operations` lists the names of all operations so far:
    a test can count the steps of a procedure and then fail it, or kill it, at each. `failures` lists the names of those that failed.

    revive() returns the operations of a process that starts after this one ended: it finds what the kernel has, synced or not.

    power_loss(seed) leaves what a disk could hold if the machine stopped now. Each page that differs from the last synced state is any of
    its versions since then; the length is the old or the new one. Names are certain if an fsync_directory followed; later renames and
    unlinks are kept up to some point, as a journalling file system does. Writes of HDF5 itself count as unsynced too, because whole
    files are compared: the content at the last sync is kept, and so is the inode of a removed name.
    """

    def __init__(self, root: Path, disk: _Disk | None = None, *, other: frozenset[str] = frozenset()) -> None:
        self.root = root
        self.operations: list[str] = []
        self.failures: list[str] = []
        self._counts: Counter[str] = Counter()
        self._faults: dict[tuple[str, int], int] = {}
        self._fault_at: dict[int, int] = {}
        self._kill_at = 0
        self._kill_call = "", 0
        self._dead = False
        self._disk = disk or _Disk(root, other)

    def fail(self, operation: str, nth: int, code: int) -> None:
        """Let the nth call of an operation from now on raise OSError(code)."""
        self._faults[operation, self._counts[operation] + nth] = code

    def fail_at(self, n: int, code: int) -> None:
        """Let the nth operation from now on, of whatever kind, raise OSError(code)."""
        self._fault_at[len(self.operations) + n] = code

    def fail_no_more(self) -> None:
        """Let no operation fail of those that were to fail from now on."""
        self._faults.clear()
        self._fault_at.clear()

    def kill_at(self, n: int) -> None:
        """Make the nth operation from now on the last one."""
        self._kill_at = len(self.operations) + n

    def kill(self, operation: str, nth: int) -> None:
        """Make the nth call of an operation from now on the last operation."""
        self._kill_call = operation, self._counts[operation] + nth

    def revive(self) -> FaultyFiles:
        """End this process; return the operations of another one on the same file system, which fail nowhere yet."""
        self._dead = True
        return type(self)(self.root, self._disk)

    def close(self, fd: int) -> None:
        """Close the file, after a kill too, as the kernel does."""
        super().close(fd)
        if not self._dead:
            self._step("close")

    def pwrite(self, fd: int, data: NDArray[Any], offset: int) -> None:
        """Write, and keep a copy of each page that changes."""
        alive = not self._dead
        try:
            self._step("pwrite")
        except SimulatedKill:
            if alive:
                os.pwrite(fd, data.tobytes()[: data.nbytes // 16 * 8], offset)
            raise
        super().pwrite(fd, data, offset)
        self._disk.written(fd, offset, data.nbytes)

    def fdatasync(self, fd: int) -> None:
        """Sync, and keep a copy of what is on the disk now."""
        self._step("fdatasync")
        self._disk.synced(fd)

    def fsync(self, fd: int) -> None:
        """Sync, and keep a copy of what is on the disk now."""
        self._step("fsync")
        self._disk.synced(fd)

    def fsync_directory(self, path: Path) -> None:
        """Sync a directory: its names are durable now."""
        self._step("fsync_directory")
        super().fsync_directory(path)
        self._disk.synced_directory(path)

    def rename(self, source: Path, target: Path) -> None:
        """Rename, not yet durably."""
        self._step("rename")
        self._disk.hold_names(source, target)
        super().rename(source, target)
        self._disk.renamed(source, target)

    def link(self, path: Path, other: Path) -> None:
        """Give a file another name, not yet durably."""
        self._step("link")
        super().link(path, other)
        self._disk.linked(other)

    def unlink(self, path: Path) -> None:
        """Unlink, not yet durably."""
        self._step("unlink")
        self._disk.hold_names(path)
        super().unlink(path)
        self._disk.unlinked(path)

    def power_loss(self, seed: int) -> Names:
        """Leave below `root` what a disk could hold after a power loss now, and return each file's inode before; the process has ended."""
        self._dead = True
        return self._disk.lose_power(random.Random(seed))

    def _step(self, operation: str) -> None:
        if self._dead:
            raise SimulatedKill(operation)
        self.operations.append(operation)
        self._counts[operation] += 1
        if len(self.operations) == self._kill_at or (operation, self._counts[operation]) == self._kill_call:
            self._dead = True
            raise SimulatedKill(operation)
        code = self._faults.get((operation, self._counts[operation])) or self._fault_at.get(len(self.operations))
        if code is not None:
            self.failures.append(operation)
            raise OSError(code, os.strerror(code))


class _Disk:
    """What is durable of the files below `root`, and what was changed since: it outlives the processes."""

    def __init__(self, root: Path, other: frozenset[str] = frozenset()) -> None:
        self._root = root
        self._other = other
        self._held: dict[int, int] = {}
        self._synced: dict[int, bytes] = {}
        self._versions: defaultdict[int, defaultdict[int, list[bytes]]] = defaultdict(lambda: defaultdict(list))
        self._journal: list[tuple[Path, Callable[[Names], object]]] = []
        self._names = self.hold_present()
        for inode in self._names.values():
            self._synced[inode] = self._content(inode)

    def __del__(self) -> None:
        for fd in self._held.values():
            os.close(fd)

    def written(self, fd: int, offset: int, nbytes: int) -> None:
        """Note that some bytes of a file were written."""
        inode = self._hold_open(fd)
        for page in range(offset // PAGE, -(-(offset + nbytes) // PAGE)):
            self._versions[inode][page].append(os.pread(self._held[inode], PAGE, page * PAGE))

    def synced(self, fd: int) -> None:
        """Note that a file's content is durable."""
        inode = self._hold_open(fd)
        self._synced[inode] = self._content(inode)
        self._versions.pop(inode, None)

    def synced_directory(self, path: Path) -> None:
        """Note that the names in a directory are durable."""
        self._journal = [entry for entry in self._journal if entry[0] != path]
        if not self._is_below(path):
            return
        with os.scandir(path) as entries:
            here = sorted(path / entry.name for entry in entries if not entry.is_dir())
        elsewhere = {name: inode for name, inode in self._names.items() if name.parent != path}
        self._names = elsewhere | self._hold_paths(here)

    def renamed(self, source: Path, target: Path) -> None:
        """Note a rename that was done."""
        inode = self._hold(os.open(target, os.O_RDONLY))
        self._journal.append((target.parent, lambda names: (names.pop(source, None), names.update({target: inode}))))

    def linked(self, path: Path) -> None:
        """Note that a file got another name."""
        inode = self._hold(os.open(path, os.O_RDONLY))
        self._journal.append((path.parent, lambda names: names.update({path: inode})))

    def unlinked(self, path: Path) -> None:
        """Note that a name was removed."""
        self._journal.append((path.parent, lambda names: names.pop(path, None)))

    def lose_power(self, chance: random.Random) -> Names:
        """Replace all files by what the disk could hold; return the inode whose content each name has."""
        present = self.hold_present()
        names = self._names | {n: i for n, i in present.items() if i not in self._names.values() and chance.random() < 0.5}
        for _, change in self._journal[: chance.randint(0, len(self._journal))]:
            change(names)
        left = {name: self._left_of(inode, chance) for name, inode in names.items()}
        for name in present:
            name.unlink()
        for name, content in left.items():
            # The removal of its directory may not have been durable either.
            name.parent.mkdir(parents=True, exist_ok=True)
            name.write_bytes(content)
        for fd in self._held.values():
            os.close(fd)
        self._held.clear()
        return names

    def hold_present(self) -> Names:
        """Return the present names in their order; the inode of each is held open from now on."""
        paths = []
        for directory, below, names in os.walk(self._root):
            below[:] = [name for name in below if name not in self._other]
            paths += [Path(directory) / name for name in names]
        return self._hold_paths(sorted(paths))

    def hold_names(self, *paths: Path) -> None:
        """Hold the inodes of names that are about to be removed or replaced, as far as they exist."""
        self._hold_paths(path for path in paths if path.exists())

    def _hold_paths(self, paths: Iterable[Path]) -> Names:
        return {path: self._hold(os.open(path, os.O_RDONLY)) for path in paths}

    def _is_below(self, path: Path) -> bool:
        return path.is_relative_to(self._root) and self._other.isdisjoint(path.relative_to(self._root).parts)

    def _hold_open(self, fd: int) -> int:
        inode = os.fstat(fd).st_ino
        if inode not in self._held:
            self._held[inode] = os.dup(fd)
        return inode

    def _left_of(self, inode: int, chance: random.Random) -> bytes:
        synced, now = self._synced.get(inode, b""), self._content(inode)
        pages = []
        for page in range(-(-max(len(synced), len(now)) // PAGE)):
            part = slice(page * PAGE, (page + 1) * PAGE)
            versions = [synced[part], *self._versions[inode][page], now[part]]
            pages.append(chance.choice(versions).ljust(PAGE, b"\0"))
        return b"".join(pages)[: chance.choice((len(synced), len(now)))]

    def _hold(self, fd: int) -> int:
        inode = os.fstat(fd).st_ino
        if self._held.setdefault(inode, fd) != fd:
            os.close(fd)
        return inode

    def _content(self, inode: int) -> bytes:
        fd = self._held[inode]
        return os.pread(fd, os.fstat(fd).st_size, 0)


def _stepped(operation: str) -> Callable[..., Any]:
    plain = getattr(Files, operation)

    def method(self: FaultyFiles, *arguments: Any) -> Any:
        self._step(operation)
        return plain(self, *arguments)

    return method


for _operation in ("open", "create", "write", "pread_into", "allocate", "fstat", "stat", "listdir", "free_space", "make_directory"):
    setattr(FaultyFiles, _operation, _stepped(_operation))
