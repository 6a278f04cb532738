"""Follow what a daemon stores, and know what was missed.

    for event in Subscriber("ipc:///run/tokiod/feed", ["cscratch/datatargets/"]):
        match event:
            case Update(): ...    # cells, as they now stand in the file
            case Gap(): ...       # read from the file what event says
            case Stalled(): ...   # nobody there, or nothing stored yet

`async for` does the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import zmq
import zmq.asyncio

from tokiod import sample
from tokiod.errors import Malformed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from tokiod.sample import Batch, Frame, Stored


@dataclass(frozen=True, slots=True, eq=False)
class Update:
    """Cells that are stored; a value of NaN became missing again. watermark: nothing is missing in the file before it."""

    system: str
    batch: Batch
    watermark: int

    @property
    def dataset(self) -> str:
        """The dataset whose cells these are."""
        return self.batch.dataset


@dataclass(frozen=True, slots=True)
class Gap:
    """Messages of a dataset that never came, and where to look for their cells: in the file.

    missed: how many; None if the writer was started anew meanwhile, so that nobody knows.
    since: the watermark that was last heard of, None if this is the first; watermark: the one heard of now. Live cells that were missed
    lie between the two; a gap of the archive that was healed meanwhile may lie before.
    """

    system: str
    dataset: str
    missed: int | None
    since: int | None
    watermark: int


@dataclass(frozen=True, slots=True)
class Stalled:
    """Nothing came for `seconds`, not even a heartbeat: the daemon is gone, or has stored nothing yet on these topics."""

    seconds: float


Event = Update | Gap | Stalled


class Reader:
    """What a subscriber knows: per topic the last number heard. Pure: frames in, events out."""

    def __init__(self) -> None:
        self.malformed = 0
        self._last: dict[tuple[str, str], Stored] = {}

    def read(self, frames: Sequence[Frame]) -> list[Event]:
        """Return what a message means: nothing, a gap, an update, or a gap and then an update. A malformed message is counted."""
        try:
            header, batch = sample.decode(frames)
        except Malformed:
            self.malformed += 1
            return []
        stored, last = header.stored, self._last.get((header.system, header.dataset))
        if stored is None or (last is not None and stored.epoch == last.epoch and stored.sequence <= last.sequence):
            return []
        self._last[header.system, header.dataset] = stored
        events: list[Event] = []
        missed = _missed(last, stored, carries=batch is not None)
        if missed != 0:
            events.append(Gap(header.system, header.dataset, missed, last.watermark if last else None, stored.watermark))
        if batch is not None:
            events.append(Update(header.system, batch, stored.watermark))
        return events


class Subscriber:
    """Iterate over what is stored, for ever, with `for` or `async for`; a context manager, or close() it.

    topics: prefixes of system/dataset, "" for all. silence: seconds after which a Stalled comes, and again after as many.
    high_water: messages that wait here for a slow reader; those beyond are lost and come as a Gap.
    A new subscriber first gets a Gap per dataset that has been published: its cells are in the file, up to the watermark.
    """

    def __init__(self, endpoint: str, topics: Sequence[str] = ("",), *, silence: float = 10.0, high_water: int = 1000) -> None:
        self.silence = silence
        self.reader = Reader()
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.SUB)
        self._socket.rcvhwm = high_water
        self._socket.linger = 0
        for topic in topics:
            self._socket.subscribe(topic)
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
                yield Stalled(self.silence)

    async def __aiter__(self) -> AsyncIterator[Event]:
        poller = zmq.asyncio.Poller()
        poller.register(self._socket, zmq.POLLIN)
        while True:
            if await poller.poll(int(self.silence * 1000)):
                for event in self._read():
                    yield event
            else:
                yield Stalled(self.silence)

    def _read(self) -> list[Event]:
        return self.reader.read([frame.buffer for frame in self._socket.recv_multipart(copy=False)])


def _missed(last: Stored | None, stored: Stored, *, carries: bool) -> int | None:
    if last is not None and last.epoch != stored.epoch:
        return None
    return stored.sequence - (last.sequence if last else 0) - carries
