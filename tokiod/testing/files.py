"""File operations on real files that fail, end with the process or lose power at a step that a test chooses."""

from __future__ import annotations

import os
import random
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from tokiod.tts.live.files import Files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

PAGE = 4096

Names = dict["Path", int]


class SimulatedKill(BaseException):
    """The process was killed: no later operation has an effect."""


class FaultyFiles(Files):
    """File operations of a process on a machine that may fail, over the files below `root`.

    fail(operation, nth, code) lets the nth call of an operation raise OSError(code). kill_at(n) makes the nth operation of any kind
    the last: it does nothing (a write stores half of its cells) and raises SimulatedKill, and so does every later one. `operations` lists
    the names of all operations so far: a test can count the steps of a procedure and then kill it at each.

    power_loss(seed) leaves what a disk could hold if the machine stopped now. Each page that differs from the last synced state is any of
    its versions since then; the length is the old or the new one. Names are certain if an fsync_directory followed; later renames and
    unlinks are kept up to some point, as a journalling file system does. Writes of HDF5 itself count as unsynced too, because whole
    files are compared: the content at the last sync is kept, and so is the inode of a removed name.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.operations: list[str] = []
        self._counts: Counter[str] = Counter()
        self._faults: dict[tuple[str, int], int] = {}
        self._kill_at = 0
        self._dead = False
        self._held: dict[int, int] = {}
        self._synced: dict[int, bytes] = {}
        self._versions: defaultdict[tuple[int, int], list[bytes]] = defaultdict(list)
        self._journal: list[tuple[Path, Callable[[Names], object]]] = []
        self._names = self._present()
        for inode in self._names.values():
            self._synced[inode] = self._content(inode)

    def __del__(self) -> None:
        for fd in self._held.values():
            os.close(fd)

    def fail(self, operation: str, nth: int, code: int) -> None:
        """Let the nth call of an operation from now on raise OSError(code)."""
        self._faults[operation, self._counts[operation] + nth] = code

    def kill_at(self, n: int) -> None:
        """Make the nth operation from now on the last one."""
        self._kill_at = len(self.operations) + n

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
        inode = self._hold(os.dup(fd))
        for page in range(offset // PAGE, -(-(offset + data.nbytes) // PAGE)):
            self._versions[inode, page].append(os.pread(self._held[inode], PAGE, page * PAGE))

    def fdatasync(self, fd: int) -> None:
        """Sync, and keep a copy of what is on the disk now."""
        self._step("fdatasync")
        self._sync(fd)

    def fsync(self, fd: int) -> None:
        """Sync, and keep a copy of what is on the disk now."""
        self._step("fsync")
        self._sync(fd)

    def fsync_directory(self, path: Path) -> None:
        """Sync a directory: its names are durable now."""
        self._step("fsync_directory")
        super().fsync_directory(path)
        self._journal = [entry for entry in self._journal if entry[0] != path]
        elsewhere = {name: inode for name, inode in self._names.items() if name.parent != path}
        self._names = elsewhere | {name: inode for name, inode in self._present().items() if name.parent == path}

    def rename(self, source: Path, target: Path) -> None:
        """Rename, not yet durably."""
        self._step("rename")
        self._present()
        super().rename(source, target)
        inode = self._hold(os.open(target, os.O_RDONLY))
        self._journal.append((target.parent, lambda names: (names.pop(source, None), names.update({target: inode}))))

    def unlink(self, path: Path) -> None:
        """Unlink, not yet durably."""
        self._step("unlink")
        self._present()
        super().unlink(path)
        self._journal.append((path.parent, lambda names: names.pop(path, None)))

    def power_loss(self, seed: int) -> None:
        """Leave below `root` what a disk could hold after a power loss now; the process has ended."""
        self._dead = True
        chance = random.Random(seed)  # noqa: S311 - chosen by the test's seed
        present = self._present()
        names = self._names | {n: i for n, i in present.items() if i not in self._names.values() and chance.random() < 0.5}  # noqa: PLR2004
        for _, change in self._journal[: chance.randint(0, len(self._journal))]:
            change(names)
        left = {name: self._left_of(inode, chance) for name, inode in names.items()}
        for name in present:
            name.unlink()
        for name, content in left.items():
            name.write_bytes(content)
        for fd in self._held.values():
            os.close(fd)
        self._held.clear()

    def _step(self, operation: str) -> None:
        if self._dead:
            raise SimulatedKill(operation)
        self.operations.append(operation)
        self._counts[operation] += 1
        if len(self.operations) == self._kill_at:
            self._dead = True
            raise SimulatedKill(operation)
        code = self._faults.get((operation, self._counts[operation]))
        if code is not None:
            raise OSError(code, os.strerror(code))

    def _sync(self, fd: int) -> None:
        inode = self._hold(os.dup(fd))
        self._synced[inode] = self._content(inode)
        for key in [key for key in self._versions if key[0] == inode]:
            del self._versions[key]

    def _left_of(self, inode: int, chance: random.Random) -> bytes:
        synced, now = self._synced.get(inode, b""), self._content(inode)
        pages = []
        for page in range(-(-max(len(synced), len(now)) // PAGE)):
            part = slice(page * PAGE, (page + 1) * PAGE)
            versions = [synced[part], *self._versions[inode, page], now[part]]
            pages.append(chance.choice(versions).ljust(PAGE, b"\0"))
        return b"".join(pages)[: chance.choice((len(synced), len(now)))]

    def _present(self) -> Names:
        """Return the present names; the inode of each is held open from now on."""
        return {path: self._hold(os.open(path, os.O_RDONLY)) for path in self.root.rglob("*") if path.is_file()}

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
