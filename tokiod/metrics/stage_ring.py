"""A ring of the stages that a process has recorded, in a file that outlives the process and that others read while it is written.

    head     4 KiB        magic, version, number of slots, the boot's id; CRC-32
    names    60 KiB       names of sources and systems, appended: length (u16), CRC-32 (u32), UTF-8
    slots    32,768 x 88  number, five marks, ns from the monotonic to the wall clock, window, bytes, attempt, name, kind, outcome; CRC-32

A slot is a piece of work. Its marks are the times at which its stages began, and its end: a new one is one store of 88 bytes into mapped
memory. Each slot has its own checksum instead of a sequence lock: a reader never waits, sees a half-written slot as none, on every kind of
processor, and so does the reader of a file whose process was killed at that instant.
Times are ns of the machine's monotonic clock, which all processes of one boot share. Each slot has its own distance to the wall clock,
which may be set at any time. After a reboot the file shows the boot before, until the daemon starts again.

Readers may open the file, so they may lock it. The process that records holds an exclusive lock on another file, which is private, and a
shared one on this file, which no lock of a reader is in the way of: it shows that the process lives. A reader asks for it and takes none.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self, get_args
from zlib import crc32

import msgspec

from tokiod.archive.rights import PRIVATE_FILE_MODE, SHARED_FILE_MODE
from tokiod.errors import TokiodError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy as np
    from numpy.typing import NDArray

Kind = Literal["collection", "submission", "commit", "make", "grow", "reopen", "seal", "convert"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""In the file a kind is its place here: new ones are appended."""
STAGES: dict[Kind, tuple[str, ...]] = {kind: (kind,) for kind in KINDS} | {
    "collection": ("due", "ask", "fetch", "parse"),
    "submission": ("submit", "bus"),
    "commit": ("apply", "sync", "ledger", "feed"),
}
"""Of a piece of work, in their order: each lasts until the next one begins, the last one until the end."""
Outcome = Literal["open", "done", "failed", "refused"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
OPEN, DONE, FAILED, REFUSED = range(len(OUTCOMES))
"""As kinds. Refused: the writer did not store the window, and it is brought again."""

SLOTS = 32_768
MARKS = 5
HEAD_BYTES, NAMES_END = 4096, 65_536
NO_NAME = 0xFFFF
"""The place of a name for which the table has no room."""
LOCK_TRIES, LOCK_PAUSE_SECONDS = 20, 0.1
"""How often the lock of the file is tried: a predecessor that is being killed holds it for a moment."""
_MAGIC, _VERSION = b"tokiod stages\n\0\0", 1
_HEAD, _BODY, _NAME, _CRC = struct.Struct("<16sII36s"), struct.Struct("<Q5qqqQIIHBB"), struct.Struct("<HI"), struct.Struct("<I")
SLOT_BYTES = _BODY.size + _CRC.size
_FIELDS = [("number", "<u8"), ("marks", "<i8", MARKS), ("others", f"V{_BODY.size - 50}"), ("kind", "u1"), ("outcome", "u1"), ("crc", "<u4")]
"""A slot as numpy reads it."""
_EMPTY = bytes(SLOT_BYTES)
FILE_BYTES = NAMES_END + SLOTS * SLOT_BYTES
_pack, _pack_slot = _BODY.pack, struct.Struct(f"<{_BODY.size}sI").pack_into
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_PAUSE = threading.Event()
_FLOCK = struct.Struct("hhqqi4x")
"""struct flock: type, whence, start, length, pid."""


class Work(msgspec.Struct, frozen=True):
    """A piece of work: the collection, submission or commit of a window, or the rewrite of a file.

    number: in the order in which they began; marks: ns of the monotonic clock at which each of its stages began, then its end, 0 where that
    was not reached; wall: ns to add for the wall clock; name: a source, of a file its system; window_start, window_seconds: UTC epoch
    seconds, of a file its day; nbytes: of a submission; attempt: of a commit, as the bus numbers them.
    """

    number: int
    marks: tuple[int, ...]
    wall: int
    window_start: int
    nbytes: int
    window_seconds: int
    attempt: int
    name: str
    kind: Kind
    outcome: Outcome


class Recording(msgspec.Struct, frozen=True):
    """What a ring holds. boot: the id of the boot that the monotonic clock belongs to; is_live: its process lives; works: by number.

    damaged: slots of which the checksum is wrong.
    """

    boot: str
    is_live: bool
    works: list[Work]
    damaged: int


class StageRing:
    """The ring of this process."""

    def __init__(self, path: Path, lock: Path) -> None:
        """Open the file, or make it again if it is of another boot or damaged. Raises OSError, and TokiodError if it is taken.

        What the process before left open ends as failed, at the last time that it recorded. lock: a file in a private directory.
        """
        self._lock = _locked(lock)
        try:
            self._fd, self._map = _mapped(path)
        except BaseException:
            os.close(self._lock)
            raise
        if _read_head(self._map) != boot_id():
            self._map[:] = bytes(len(self._map))
            head = _HEAD.pack(_MAGIC, _VERSION, SLOTS, boot_id().encode())
            self._map[: len(head) + _CRC.size] = head + _CRC.pack(crc32(head))
        names, self._names_end = _read_names(self._map)
        self._names = {name: place for place, name in enumerate(names)}
        self._last = 0
        self._go_on(self._map[NAMES_END:FILE_BYTES])

    def place_of(self, name: str) -> int:
        """Return the place of a name in the table, which it is appended to. Where the table is full, the place is that of no name."""
        if (place := self._names.get(name)) is None:
            place = self._append(name)
        return place

    def next_number(self) -> int:
        """Return the number of the next piece of work."""
        self._last += 1
        return self._last

    def is_overwritten(self, number: int) -> bool:
        """Return whether a later piece of work has taken the slot."""
        return self._last - number >= SLOTS

    def write(self, slot: list[int]) -> None:
        """Write a piece of work: the fields of Work, all marks, and places instead of name, kind and outcome. Do nothing once closed."""
        if not self._map.closed:
            body = _pack(*slot)
            _pack_slot(self._map, NAMES_END + slot[0] % SLOTS * SLOT_BYTES, body, crc32(body))

    def close(self) -> None:
        """Unmap the file and release its locks."""
        self._map.close()
        os.close(self._fd)
        os.close(self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # With numpy, which looks at all slots in 5 ms, and at the checksums of few: Python took 60 ms of each start for a full ring.
    def _go_on(self, content: bytes) -> None:
        """Continue with the number after the last one; what is open ends as failed, at the last time that was recorded."""
        import numpy as np  # noqa: PLC0415 - processes that record have it, and those that read a ring may not

        slots = np.frombuffer(content, np.dtype(_FIELDS))
        used = np.flatnonzero(slots["number"])
        number, time = slots["number"][used], slots["marks"][used].max(axis=1, initial=0)

        def whole(places: NDArray[np.intp]) -> Iterator[tuple[int, ...]]:
            return _whole(content[place * SLOT_BYTES : (place + 1) * SLOT_BYTES] for place in places.tolist())

        self._last = next((slot[0] for slot in whole(used[np.argsort(number)[::-1]])), 0)
        last_time = next((max(slot[1 : 1 + MARKS]) for slot in whole(used[np.argsort(time)[::-1]])), 0)
        for *fields, kind, _ in whole(used[slots["outcome"][used] == OPEN]):
            fields[1 + len(STAGES[KINDS[kind]])] = last_time
            self.write([*fields, kind, FAILED])

    def _append(self, name: str) -> int:
        text = name.encode()
        end = self._names_end + _NAME.size + len(text)
        if end > NAMES_END:
            return NO_NAME
        # The text first: a kill leaves a name that is whole, or none.
        self._map[end - len(text) : end] = text
        self._map[self._names_end : self._names_end + _NAME.size] = _NAME.pack(len(text), crc32(text))
        self._names_end = end
        self._names[name] = place = len(self._names)
        return place


def boot_id() -> str:
    """Return the id of this boot of the machine."""
    return _BOOT_ID.read_text().strip()


def read_ring(path: Path) -> Recording | None:
    """Return what a ring holds, None for a file that is no ring. Raises OSError."""
    with path.open("rb") as file:
        is_live = _is_locked(file.fileno())
        content = file.read()
    if (boot := _read_head(content)) is None:
        return None
    names, _ = _read_names(content)
    used = _used(content)
    slots = sorted(_whole(used))
    return Recording(boot, is_live, [_work(slot, names) for slot in slots], len(used) - len(slots))


def _work(slot: tuple[int, ...], names: list[str]) -> Work:
    number, *marks, wall, window_start, nbytes, window_seconds, attempt, name, place, outcome = slot
    known, kind = names[name] if name < len(names) else "?", KINDS[place]
    reached = tuple(marks[: len(STAGES[kind]) + 1])
    return Work(number, reached, wall, window_start, nbytes, window_seconds, attempt, known, kind, OUTCOMES[outcome])


def _read_head(content: bytes | mmap.mmap) -> str | None:
    """Return the boot that a ring is of."""
    head = content[: _HEAD.size]
    if len(content) != FILE_BYTES or content[_HEAD.size : _HEAD.size + _CRC.size] != _CRC.pack(crc32(head)):
        return None
    magic, version, slots, boot = _HEAD.unpack(head)
    return boot.decode() if (magic, version, slots) == (_MAGIC, _VERSION, SLOTS) else None


def _read_names(content: bytes | mmap.mmap) -> tuple[list[str], int]:
    """Return the names, and where the next one is to be appended."""
    names, place = [], HEAD_BYTES
    while place + _NAME.size <= NAMES_END:
        length, checksum = _NAME.unpack(content[place : place + _NAME.size])
        text = content[place + _NAME.size : place + _NAME.size + length]
        if not length or crc32(text) != checksum:
            break
        names.append(text.decode())
        place += _NAME.size + length
    return names, place


def _used(content: bytes) -> list[bytes]:
    """Return the slots that were written, wholly or in part."""
    return [slot for place in range(NAMES_END, FILE_BYTES, SLOT_BYTES) if (slot := content[place : place + SLOT_BYTES]) != _EMPTY]


def _whole(slots: Iterable[bytes]) -> Iterator[tuple[int, ...]]:
    """Yield the fields of each slot that is whole, and of a kind that this version knows: a newer one may have recorded before it."""
    for slot in slots:
        body = slot[: _BODY.size]
        if slot[_BODY.size :] == _CRC.pack(crc32(body)):
            fields = _BODY.unpack(body)
            if fields[-2] < len(KINDS) and fields[-1] < len(OUTCOMES):
                yield fields


def _mapped(path: Path) -> tuple[int, mmap.mmap]:
    """Open a ring for this process and map it. Raises OSError."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, SHARED_FILE_MODE)
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0))
        # A write into a mapped page for which the disk has no space ends the process with SIGBUS.
        os.posix_fallocate(fd, 0, FILE_BYTES)
        return fd, mmap.mmap(fd, FILE_BYTES)
    except BaseException:
        os.close(fd)
        raise


def _is_locked(fd: int) -> bool:
    """Return whether a process holds the lock that shows that it lives."""
    kind, *_ = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)))
    return bool(kind != fcntl.F_UNLCK)


def _locked(path: Path) -> int:
    """Return a descriptor of a file with an exclusive lock. Raises OSError, TokiodError."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE_MODE)
    for _ in range(LOCK_TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _PAUSE.wait(LOCK_PAUSE_SECONDS)
        else:
            return fd
    os.close(fd)
    raise TokiodError(f"another process records: it holds {path}")
