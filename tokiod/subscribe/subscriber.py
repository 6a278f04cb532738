"""Follow what a daemon stores, and know what was missed.

    for event in Subscriber("ipc:///run/tokiod/feed", ["cscratch/datatargets/"]):
        match event:
            case Update(): ...    # cells, as they now are in the file
            case Gap(): ...       # cells to read from the file
            case Stalled(): ...   # the daemon is down, or has not stored data yet

`async for` does the same. With an archive, what was missed is read from its files and follows the Gap as Updates, so a program that
handles every Update has every cell, within the limits that tokiod.subscribe.catch_up states:

    Subscriber(endpoint, archive=Archive("/var/lib/tokiod/tts/%Y-%m-%d/{system}.hdf5", "America/Los_Angeles"))
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import zmq
import zmq.asyncio

from tokiod.bus import feed_message
from tokiod.errors import Malformed, TokiodError
from tokiod.subscribe.catch_up import Archive

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from tokiod.batch import Batch
    from tokiod.bus.curve import ClientKeys
    from tokiod.bus.header import Stored
    from tokiod.crossing.codec import Frame

__all__ = ["Archive", "Event", "Gap", "Reader", "Stalled", "Subscriber", "Update"]


@dataclass(frozen=True, slots=True, eq=False)
class Update:
    """Cells that are stored; with the value NaN, a cell is missing again. watermark: no cell is missing in the file before it.

    caught_up: messages with these cells were missed; they come as they were in the file when it was read, some of them for a second time.
    """

    system: str
    batch: Batch
    watermark: int
    caught_up: bool = False

    @property
    def dataset(self) -> str:
        """The dataset whose cells these are."""
        return self.batch.dataset


@dataclass(frozen=True, slots=True)
class Gap:
    """Messages of a dataset that were not received; the file has their cells.

    missed: how many; None, unknown, if the writer was restarted meanwhile.
    since: the last watermark received, None if this is the first; watermark: the one received now. New cells that were missed lie between
    the two; a gap of the archive that was healed meanwhile may lie before.
    """

    system: str
    dataset: str
    missed: int | None
    since: int | None
    watermark: int


@dataclass(frozen=True, slots=True)
class Stalled:
    """No message for `seconds`, not even a heartbeat: the daemon is down, or has not stored data of these topics yet."""

    seconds: float


Event = Update | Gap | Stalled


class Reader:
    """The state of a subscriber: the last number received per topic. Pure: frames in, events out."""

    def __init__(self) -> None:
        self.malformed = 0
        self._last: dict[tuple[str, str], Stored] = {}

    def read(self, frames: Sequence[Frame]) -> list[Gap | Update]:
        """Return the events of a message: none, a gap, an update, or a gap and then an update. A malformed message is counted."""
        try:
            header, batch = feed_message.decode(frames)
        except Malformed:
            self.malformed += 1
            return []
        stored, last = header.stored, self._last.get((header.system, header.dataset))
        if stored is None or (last is not None and stored.epoch == last.epoch and stored.sequence <= last.sequence):
            return []
        self._last[header.system, header.dataset] = stored
        events: list[Gap | Update] = []
        missed = _missed(last, stored, carries=batch is not None)
        if missed != 0:
            events.append(Gap(header.system, header.dataset, missed, last.watermark if last else None, stored.watermark))
        if batch is not None:
            events.append(Update(header.system, batch, stored.watermark))
        return events


class Follower:
    """A reader that catches up: frames in, events out, and in between it reads what was missed from the archive.

    since: UTC epoch seconds of the first cells of interest: at the first message of a dataset, everything from there on is read. None: what
    was stored before the first message is not read.
    """

    def __init__(self, reader: Reader, archive: Archive, since: int | None = None) -> None:
        self._reader = reader
        self._archive = archive
        self._since = since
        self._newest: dict[tuple[str, str], int] = {}
        self._unread: dict[tuple[str, str], tuple[int, int]] = {}

    def read(self, frames: Sequence[Frame]) -> Iterator[Gap | Update]:
        """Yield the events of a message; the cells of a Gap follow it, and an Update comes in any case.

        Raises TokiodError at the end for a file that can't be read; the next message of the dataset, a heartbeat too, reads it again.
        """
        error: TokiodError | None = None
        events = self._reader.read(frames)
        if not events:
            yield from self._catch_up(_topic(frames))
        for event in events:
            topic = event.system, event.dataset
            if isinstance(event, Gap):
                yield event
            self._note_missed(topic, self._missed_since(event, is_new=topic not in self._newest), event.watermark)
            self._newest.setdefault(topic, 0)
            try:
                yield from self._catch_up(topic)
            except TokiodError as caught:
                error = caught
            if isinstance(event, Update):
                yield self._note(event)
        if error is not None:
            raise error

    def _note_missed(self, topic: tuple[str, str], since: int | None, watermark: int) -> None:
        if since is not None:
            before, _ = self._unread.get(topic, (since, 0))
            self._unread[topic] = min(since, before), watermark

    def _catch_up(self, topic: tuple[str, str]) -> Iterator[Update]:
        """Read what was missed of a dataset. Raises TokiodError where a file can't be read: it stays to be read."""
        if topic in self._unread:
            since, watermark = self._unread[topic]
            for batch in self._archive.read(*topic, since, self._newest[topic], watermark):
                yield self._note(Update(topic[0], batch, watermark, caught_up=True))
            del self._unread[topic]

    def _missed_since(self, event: Gap | Update, *, is_new: bool) -> int | None:
        if is_new or isinstance(event, Update):
            return self._since if is_new else None
        # The watermark falls when a file is set aside.
        seen = event.watermark if event.since is None else min(event.since, event.watermark)
        return max(seen - self._archive.reach, self._since or 0)

    def _note(self, event: Update) -> Update:
        topic = event.system, event.dataset
        self._newest[topic] = max(self._newest[topic], int(event.batch.time.max(initial=0)))
        return event


class Subscriber:
    """Iterate over what is stored, without end, with `for` or `async for`; a context manager, or close() it.

    topics: prefixes of system/dataset, "" for all. silence: seconds without a message after which a Stalled comes, and again after as many.
    high_water: messages that wait here for a slow reader; those beyond are lost and become a Gap.
    A new subscriber first gets a Gap per dataset of which something is stored: its cells are in the file, up to the watermark.
    archive: from which missed cells are read, see Follower; since: from when on, also what was stored before this subscriber connected.
    Reading takes time, in which messages wait here; those that are lost meanwhile are the next Gap.
    keys: if the feed requires them: ClientKeys.read(public key of the feed, own secret key), see tokiod.bus.curve.
    Iterating raises TokiodError for a file that exists and can't be read; iterating again continues, and the next message of the dataset
    reads the file again.
    """

    def __init__(  # noqa: PLR0913 - each with a default, by name
        self,
        endpoint: str,
        topics: Sequence[str] = ("",),
        *,
        silence: float = 10.0,
        high_water: int = 1000,
        archive: Archive | None = None,
        since: int | None = None,
        keys: ClientKeys | None = None,
    ) -> None:
        self.silence = silence
        self._endpoint = endpoint
        self._is_keyed = keys is not None
        self.reader = Reader()
        self._follower = None if archive is None else Follower(self.reader, archive, since)
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.SUB)
        self._socket.rcvhwm = high_water
        self._socket.linger = 0
        for topic in topics:
            self._socket.subscribe(topic)
        self._socket.ipv6 = "[" in endpoint
        if keys is not None:
            keys.secure(self._socket)
        self._socket.connect(endpoint)

    def close(self) -> None:
        """Unsubscribe and disconnect."""
        self._context.destroy(linger=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Event]:
        while True:
            if self._socket.poll(int(self.silence * 1000)):
                yield from self._read()
            else:
                yield self._stalled()

    async def __aiter__(self) -> AsyncIterator[Event]:
        poller = zmq.asyncio.Poller()
        poller.register(self._socket, zmq.POLLIN)
        while True:
            if await poller.poll(int(self.silence * 1000)):
                events = self._read()
                # Files are read outside the loop.
                while event := next(events, None) if self._follower is None else await asyncio.to_thread(next, events, None):
                    yield event
            else:
                yield self._stalled()

    def _stalled(self) -> Stalled:
        """Reconnect, with keys: libzmq never retries a server that has refused a key, which may be allowed later."""
        if self._is_keyed:
            with suppress(zmq.ZMQError):
                self._socket.disconnect(self._endpoint)
            self._socket.connect(self._endpoint)
        return Stalled(self.silence)

    def _read(self) -> Iterator[Gap | Update]:
        frames = [frame.buffer for frame in self._socket.recv_multipart(copy=False)]
        return iter(self.reader.read(frames)) if self._follower is None else self._follower.read(frames)


def _topic(frames: Sequence[Frame]) -> tuple[str, str]:
    """Return system and dataset of a message, which may be malformed."""
    system, _, dataset = bytes(frames[0]).decode(errors="replace").partition("/") if frames else ("", "", "")
    return system, dataset


def _missed(last: Stored | None, stored: Stored, *, carries: bool) -> int | None:
    if last is not None and last.epoch != stored.epoch:
        return None
    return stored.sequence - (last.sequence if last else 0) - carries
