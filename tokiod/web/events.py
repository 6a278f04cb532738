"""Server-sent events of what is stored: where pictures changed, without the cells. Pages fetch these from the API.

    event: hello     data {"feed": true}                          a client connected; feed: whether the daemon publishes
    event: changed   data {"system", "dataset", "span": [first, last]}    rows that changed, UTC epoch seconds of their left edges
                     span null: messages were missed, so any row of the dataset may have changed
    event: feed      data {"feed": false}                         the daemon publishes nothing any more, or does again
    event: reset     data {}                                      this client missed events: fetch everything again

An id is epoch:sequence of this process. A client that sends the last one as Last-Event-ID gets what it missed, or a reset where that is not
known any more. A client that does not read costs one entry for each dataset: the changes that wait for it are joined.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec

from tokiod.subscribe.subscriber import Gap, Stalled, Subscriber

if TYPE_CHECKING:
    from tokiod.bus.curve import ClientKeys
    from tokiod.subscribe.subscriber import Event

MAX_WAITING = 64
"""Datasets with changes that wait for a client; more become a reset."""
MAX_REMEMBERED = 1024
"""Changes that clients can catch up with."""
SILENCE_SECONDS = 10.0
HIGH_WATER = 200
HEARTBEAT = ": \n\n"


class Change(msgspec.Struct, frozen=True):
    """Rows of a dataset that changed. span: left edges of the first and the last one; None: any row may have changed."""

    system: str
    dataset: str
    span: tuple[int, int] | None

    def joined(self, later: Change) -> Change:
        """Return the change that covers this one and another one of the same dataset."""
        if self.span is None or later.span is None:
            return Change(self.system, self.dataset, None)
        return Change(self.system, self.dataset, (min(self.span[0], later.span[0]), max(self.span[1], later.span[1])))


class Viewer:
    """What waits for one client. system, dataset: of the changes that it follows; empty for all."""

    def __init__(self, system: str, dataset: str) -> None:
        self._system, self._dataset = system, dataset
        self._first: list[str] = []
        self._changes: dict[tuple[str, str], Change] = {}
        self._feed: bool | None = None
        self._is_reset, self._id = False, ""
        self._ready = asyncio.Event()

    def greet(self, identity: str, *, feed: bool) -> None:
        """Send the id from which on it can catch up, and whether the daemon publishes."""
        self._first.append(_event("hello", {"feed": feed}))
        self._id = identity
        self._ready.set()

    def offer(self, change: Change, identity: str) -> None:
        """Add a change, if it follows its dataset. identity: the id of the change."""
        if self._system not in {"", change.system} or self._dataset not in {"", change.dataset}:
            return
        key = change.system, change.dataset
        self._changes[key] = self._changes[key].joined(change) if key in self._changes else change
        self._id = identity
        if len(self._changes) > MAX_WAITING:
            self.reset(identity)
        self._ready.set()

    def reset(self, identity: str) -> None:
        """Have the client fetch everything again."""
        self._changes.clear()
        self._is_reset, self._id = True, identity
        self._ready.set()

    def set_feed(self, *, is_up: bool) -> None:
        """Report whether the daemon publishes."""
        self._feed = is_up
        self._ready.set()

    async def next(self, seconds: float) -> str:
        """Return what waits, or a heartbeat if nothing comes within so many seconds."""
        try:
            async with asyncio.timeout(seconds):
                await self._ready.wait()
        except TimeoutError:
            return HEARTBEAT
        self._ready.clear()
        events = [*self._first, *([] if self._feed is None else [_event("feed", {"feed": self._feed})])]
        events += [_event("reset", {})] if self._is_reset else []
        events += [_event("changed", change) for change in self._changes.values()]
        # Only the last one has an id. A client that has read a part of them gets all of them again.
        events[-1] = f"id: {self._id}\n{events[-1]}"
        self._first, self._changes, self._feed, self._is_reset = [], {}, None, False
        return "".join(events)


class Stream:
    """The changes of one run of this process, numbered, and those who follow them."""

    def __init__(self) -> None:
        self._epoch, self._sequence = secrets.token_hex(8), 0
        self._remembered: deque[tuple[int, Change]] = deque(maxlen=MAX_REMEMBERED)
        self._viewers: set[Viewer] = set()
        self.is_up = False

    def __len__(self) -> int:
        return len(self._viewers)

    def join(self, system: str, dataset: str, last_id: str) -> Viewer:
        """Return a new viewer. last_id: of the last event that its client has received, empty if it has received none."""
        viewer = Viewer(system, dataset)
        viewer.greet(self._identity(), feed=self.is_up)
        if last_id:
            self._catch_up(viewer, last_id)
        self._viewers.add(viewer)
        return viewer

    def leave(self, viewer: Viewer) -> None:
        """Forget a viewer."""
        self._viewers.discard(viewer)

    def publish(self, change: Change) -> None:
        """Offer a change to all viewers."""
        self._sequence += 1
        self._remembered.append((self._sequence, change))
        for viewer in self._viewers:
            viewer.offer(change, self._identity())

    def set_up(self, *, is_up: bool) -> None:
        """Report to all viewers whether the daemon publishes, where that has changed."""
        if is_up != self.is_up:
            self.is_up = is_up
            for viewer in self._viewers:
                viewer.set_feed(is_up=is_up)

    def _identity(self) -> str:
        return f"{self._epoch}:{self._sequence}"

    def _catch_up(self, viewer: Viewer, last_id: str) -> None:
        epoch, _, number = last_id.partition(":")
        last = int(number) if number.isascii() and number.isdigit() and len(number) < len(str(2**63)) else -1
        oldest = self._sequence - len(self._remembered)
        if epoch != self._epoch or not oldest <= last <= self._sequence:
            viewer.reset(self._identity())
            return
        for sequence, change in self._remembered:
            if sequence > last:
                viewer.offer(change, self._identity())


async def follow(endpoint: str, keys: ClientKeys | None, stream: Stream) -> None:
    """Publish what a feed sends, until the task is cancelled."""
    with Subscriber(endpoint, silence=SILENCE_SECONDS, high_water=HIGH_WATER, keys=keys) as subscriber:
        async for event in subscriber:
            stream.set_up(is_up=not isinstance(event, Stalled))
            if (change := _change(event)) is not None:
                stream.publish(change)


def _change(event: Event) -> Change | None:
    if isinstance(event, Stalled):
        return None
    if isinstance(event, Gap):
        return Change(event.system, event.dataset, None)
    if not len(event.batch.time):
        return None
    return Change(event.system, event.dataset, (int(event.batch.time.min()), int(event.batch.time.max())))


def _event(name: str, data: Any) -> str:
    return f"event: {name}\ndata: {msgspec.json.encode(data).decode()}\n\n"
