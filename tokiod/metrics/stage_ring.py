"""A ring of the stages that a process has recorded, in a file that outlives the process and that others read while it is written.

    head     4 KiB        magic, version, number of slots; the boot's id; the wall clock in ns at a monotonic time in ns; CRC-32
    names    60 KiB       names of sources and systems, appended: length (u16), CRC-32 (u32), UTF-8
    slots    65,536 x 64  number, start, end, window, amount, name, attempt, stage, outcome; CRC-32 of these

An event is one store of 64 bytes into mapped memory. Each slot has its own checksum instead of a sequence lock: a reader never waits, sees
a half-written event as no event, on every kind of processor, and so does the reader of a file whose process was killed at that instant.
Times are ns of the machine's monotonic clock, which all processes of one boot share. After a reboot the file shows the boot before, until
the daemon starts again.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self, get_args
from zlib import crc32

import msgspec

from tokiod.archive.rights import PRIVATE_FILE_MODE
from tokiod.errors import TokiodError

if TYPE_CHECKING:
    from collections.abc import Iterable

Stage = Literal[
    "due", "ask", "fetch", "parse", "submit", "bus", "apply", "sync", "ledger", "feed", "make", "grow", "reopen", "seal", "convert"
]
STAGES: tuple[Stage, ...] = get_args(Stage)
"""In the file a stage is its place here: new ones are appended."""
Outcome = Literal["open", "done", "failed"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)

SLOTS = 65_536
HEAD_BYTES, NAMES_END = 4096, 65_536
NO_NAME = 0xFFFF
"""The place of a name for which the table has no room."""
LOCK_TRIES, LOCK_PAUSE_SECONDS = 20, 0.1
"""How often the lock of the file is tried: a predecessor that is being killed holds it for a moment."""
_MAGIC, _VERSION = b"tokiod stages\n\0\0", 1
_HEAD, _BODY, _NAME, _CRC = struct.Struct("<16sII36s4xqq"), struct.Struct("<QqqqqIIHBB8x"), struct.Struct("<HI"), struct.Struct("<I")
SLOT_BYTES = _BODY.size + _CRC.size
FILE_BYTES = NAMES_END + SLOTS * SLOT_BYTES
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_PAUSE = threading.Event()


class Event(msgspec.Struct, frozen=True):
    """A stage of a unit of work.

    number: in the order in which events began; start, end: ns of the monotonic clock, end 0 while it is open; name: a source, of a file its
    system; window_start, window_seconds: UTC epoch seconds, of a file its day; amount: records, cells or bytes.
    """

    number: int
    start: int
    end: int
    window_start: int
    window_seconds: int
    amount: int
    name: str
    attempt: int
    stage: Stage
    outcome: Outcome


class Recording(msgspec.Struct, frozen=True):
    """What a ring holds. events: by number; damaged: slots of which the checksum is wrong.

    boot: the id of the boot that the monotonic clock belongs to; wall, monotonic: both clocks at one instant, in ns.
    """

    boot: str
    wall: int
    monotonic: int
    events: list[Event]
    damaged: int


class StageRing:
    """The ring of this process."""

    def __init__(self, path: Path) -> None:
        """Open the file, or make it again if it is of another boot or damaged. Raises OSError, and TokiodError if it is taken."""
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE_MODE)
        try:
            _lock(self._fd, path)
            # A write into a mapped page for which the disk has no space ends the process with SIGBUS.
            os.posix_fallocate(self._fd, 0, FILE_BYTES)
            self._map = mmap.mmap(self._fd, FILE_BYTES)
        except BaseException:
            os.close(self._fd)
            raise
        last = 0
        if (head := _read_head(self._map)) is None or head[0] != boot_id():
            self._map[:] = bytes(FILE_BYTES)
        else:
            last = max(_valid_numbers(self._map), default=0)
        self._last = last
        names, self._names_end = _read_names(self._map)
        self._names = {name: place for place, name in enumerate(names)}
        self.renew_anchor()

    def renew_anchor(self) -> None:
        """Record what the wall clock shows now: after it was set, too."""
        head = _HEAD.pack(_MAGIC, _VERSION, SLOTS, boot_id().encode(), time.time_ns(), time.monotonic_ns())
        self._map[: len(head) + _CRC.size] = head + _CRC.pack(crc32(head))

    def place_of(self, name: str) -> int:
        """Return the place of a name in the table, which it is appended to. Where the table is full, the place is that of no name."""
        if (place := self._names.get(name)) is None:
            place = self._append(name)
        return place

    def next_number(self) -> int:
        """Return the number of the next event."""
        self._last += 1
        return self._last

    def is_overwritten(self, number: int) -> bool:
        """Return whether a later event has taken the slot of an event."""
        return self._last - number >= SLOTS

    def put(  # noqa: PLR0913, PLR0917 - the fields of a slot
        self,
        number: int,
        start: int,
        end: int,
        window_start: int,
        window_seconds: int,
        amount: int,
        name: int,
        attempt: int,
        stage: int,
        outcome: int,
    ) -> None:
        """Write an event into its slot."""
        body = _BODY.pack(number, start, end, window_start, amount, window_seconds, attempt, name, stage, outcome)
        place = NAMES_END + number % SLOTS * SLOT_BYTES
        self._map[place : place + SLOT_BYTES] = body + _CRC.pack(crc32(body))

    def close(self) -> None:
        """Unmap the file and release its lock."""
        self._map.close()
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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
    content = path.read_bytes()
    if (head := _read_head(content)) is None:
        return None
    boot, wall, monotonic = head
    names, _ = _read_names(content)
    events, damaged = [], 0
    for place in range(NAMES_END, len(content) - SLOT_BYTES + 1, SLOT_BYTES):
        if (slot := _read_slot(content, place)) is not None:
            events.append(_event(slot, names))
        elif any(content[place : place + SLOT_BYTES]):
            damaged += 1
    return Recording(boot, wall, monotonic, sorted(events, key=lambda event: event.number), damaged)


def _event(slot: tuple[int, ...], names: list[str]) -> Event:
    number, start, end, window_start, amount, window_seconds, attempt, name, stage, outcome = slot
    known = names[name] if name < len(names) else "?"
    return Event(number, start, end, window_start, window_seconds, amount, known, attempt, STAGES[stage], OUTCOMES[outcome])


def _read_head(content: bytes | mmap.mmap) -> tuple[str, int, int] | None:
    head = content[: _HEAD.size]
    if len(content) < NAMES_END or _CRC.unpack(content[_HEAD.size : _HEAD.size + _CRC.size])[0] != crc32(head):
        return None
    magic, version, slots, boot, wall, monotonic = _HEAD.unpack(head)
    return (boot.decode(), wall, monotonic) if (magic, version, slots) == (_MAGIC, _VERSION, SLOTS) else None


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


def _read_slot(content: bytes | mmap.mmap, place: int) -> tuple[int, ...] | None:
    """Return the fields of a slot, None for one without a whole event."""
    body = content[place : place + _BODY.size]
    end = place + SLOT_BYTES
    return _BODY.unpack(body) if content[end - _CRC.size : end] == _CRC.pack(crc32(body)) else None


def _valid_numbers(content: mmap.mmap) -> Iterable[int]:
    for place in range(NAMES_END, FILE_BYTES, SLOT_BYTES):
        if (slot := _read_slot(content, place)) is not None:
            yield slot[0]


def _lock(fd: int, path: Path) -> None:
    for _ in range(LOCK_TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _PAUSE.wait(LOCK_PAUSE_SECONDS)
        else:
            return
    raise TokiodError(f"another process records in {path}")
