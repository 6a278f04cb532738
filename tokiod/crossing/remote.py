"""A collector whose windows another process collects. The poller, the retries and the ledger are here, as those of every source."""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Protocol, cast

from tokiod.collector import NotesStored
from tokiod.crossing import dialogue
from tokiod.errors import Transient

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokiod.clock import Clock
    from tokiod.collector import Collector, SourceConfig
    from tokiod.window import Window
    from tokiod.window_data import WindowData

_lanes = count(1)


class Peer(Protocol):
    """Another process. name: in sentences, "host zone-b"."""

    name: str

    async def ask(self, make: Callable[[int], dialogue.Collect | dialogue.Count]) -> WindowData | int | None:
        """Ask, and return the answer, as Asking.ask()."""
        ...

    def tell(self, message: dialogue.Stored | dialogue.Close) -> None:
        """Send what needs no answer."""
        ...


class RemoteCollector:
    """A lane of a source in another process.

    twin: the source's collector as it would be here. It is never asked; it knows what it can do. datasets: only these, None for all.
    clock: the daemon's.
    """

    def __init__(self, peer: Peer, config: SourceConfig, twin: Collector, clock: Clock, datasets: frozenset[str] | None = None) -> None:
        self.step = twin.step
        self.replayable = twin.replayable
        self.needs_sample_at_end = twin.needs_sample_at_end
        self._peer, self._config, self._clock = peer, config, clock
        self._datasets = None if datasets is None else tuple(sorted(datasets))
        self._lane = next(_lanes)

    async def collect(self, window: Window) -> WindowData:
        """Return what was collected of a window.

        Raises as its collector does; Transient while the process can't be asked, and for a window of a source without a past that was not
        the current one from the question to the answer.
        """
        asked_at, config = self._clock.time(), self._config
        make = partial(
            dialogue.Collect, source=config.name, lane=self._lane, start=window.start, end=window.end, seconds=config.seconds_for(window),
            kind=config.kind, system=config.system, datasets=self._datasets,
        )  # fmt: skip
        data = cast("WindowData", await self._peer.ask(make))
        self._check_is_current(window, asked_at)
        return data

    # The host's collector compares the window with the daemon's clock too, but knows that clock only as well as the way of the messages
    # allows, and before the first of them not at all. What it saw was seen between the question and the answer.
    def _check_is_current(self, window: Window, asked_at: float) -> None:
        if not self.replayable and not window.start <= asked_at <= self._clock.time() < window.end:
            raise Transient(
                f"{self._config.name} answered on {self._peer.name} while {window} was not the current window: "
                "what it saw may belong to another"
            )

    async def count(self, window: Window) -> int | None:
        """Return how many records the source has for a window, as it counts them."""
        seconds = self._config.seconds_for(window)
        make = partial(dialogue.Count, source=self._config.name, lane=self._lane, start=window.start, end=window.end, seconds=seconds)
        return cast("int | None", await self._peer.ask(make))

    async def close(self) -> None:
        """Have the process close its collector."""
        self._peer.tell(dialogue.Close(self._config.name, self._lane))


class NotingRemoteCollector(RemoteCollector):
    """One whose collector must know which of its windows are stored."""

    def note_stored(self, window: Window) -> None:
        """Pass on that a window is stored."""
        self._peer.tell(dialogue.Stored(self._config.name, self._lane, window.start, window.end))


def remote_collector(peer: Peer, config: SourceConfig, twin: Collector, clock: Clock, datasets: frozenset[str] | None) -> Collector:
    """Return a lane of a source in another process; see RemoteCollector."""
    made = NotingRemoteCollector if isinstance(twin, NotesStored) else RemoteCollector
    return cast("Collector", made(peer, config, twin, clock, datasets))
