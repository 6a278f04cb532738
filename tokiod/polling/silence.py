"""Whether a source that answers has stopped to return records, and what that says of the windows that it answered without any."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tokiod.ledger.jobs import JobRequest
from tokiod.window import Window, iso

if TYPE_CHECKING:
    from tokiod.clock import Clock
    from tokiod.collector import SourceConfig
    from tokiod.ledger.ledger import Ledger
    from tokiod.window_data import Collected


EMPTY_IN_BACKFILL = "the source had no record of it when it was backfilled"
"""Why the ledger has a window as empty that a backfill collected."""


class EmptyWindow(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a window that a source answered without records. Times are in seconds.

    may_return: the source has a past and may not be silent for ever; premature: until its time has certainly passed; age: since its end;
    is_older: there are newer records; has_data: records came since the source was started; silence: of the source until now, 0 while its
    newest window has records; empty_after: the silence from which on the source counts as empty.
    """

    may_return: bool
    premature: float
    age: float
    is_older: bool
    has_data: bool
    silence: int
    empty_after: int


# An answer without records has two causes: nothing happened, or the query is for the wrong index, file system or host, and the records are
# somewhere else. Only what the source returns next can tell which. So once a source has returned nothing for `empty_after`, its empty
# windows are kept apart and are queried again when a window with records comes. Windows older than records that came since the source
# was started are beyond doubt. The first windows of a silence were stored before it was known to be one: a backfill queries them again.
# What a backfill found empty then is mostly out of the reach of polling, so another backfill queries it when the silence has ended.
# With a clock that is ahead there is a third cause: a source has no records of a time that has not come. So an empty window is kept apart,
# too, until its time has certainly passed, and a span after the present is no silence.
def decide(window: EmptyWindow) -> float | None:
    """Return seconds until a window is kept apart and queried again while the source stays silent; None for one that is stored as it is."""
    if not window.may_return:
        return None
    if window.premature:
        return window.premature
    is_doubtful = window.silence >= window.empty_after or (window.is_older and (window.silence or not window.has_data))
    # For late records: after as long as it is old.
    return max(window.empty_after, window.age) if is_doubtful else None


class Silence:
    """The silence of one polled source: the span until now without any record. Methods raise LedgerError.

    span: the silence, None while the newest window has records.
    """

    def __init__(self, config: SourceConfig, ledger: Ledger, clock: Clock, *, replayable: bool) -> None:
        self.span: Window | None = None
        self._config = config
        self._ledger = ledger
        self._clock = clock
        self._may_return = replayable and config.can_be_empty
        self._data_end: int | None = None
        self._has_data = False
        self._was_silent_before = False

    def load(self) -> None:
        """Read from the ledger how long the source has been silent."""
        known = self._ledger.data_end(self._config.name)
        self._data_end = known if self._data_end is None else max(self._data_end, known or 0)
        self.span = self._read_span()
        self._was_silent_before = not self._has_data and (self.span is not None or self._data_end is None)

    @property
    def is_long(self) -> bool:
        """Whether the source counts as empty."""
        return self.span is not None and self.span.seconds >= self._config.empty_seconds

    def note(self, collected: Collected) -> bool:
        """Note a collected window; return whether the newest window has records, so that all that was empty must be queried again."""
        window = collected.meta.window
        if collected.is_empty:
            self.span = self._read_span(window) if window.end > (self._data_end or 0) else self.span
            return False
        is_over = self.span is None or self.span.end <= window.end
        if is_over and (self.span is not None or not self._has_data):
            self._backfill_again()
        self._has_data = True
        self._data_end = max(self._data_end or 0, window.end)
        if self.span is not None and self.span.start < window.end:
            self._end_silence(self.span, window.end)
        self._was_silent_before &= self.span is not None
        return self.span is None

    def _read_span(self, window: Window | None = None) -> Window | None:
        return self._ledger.silence(self._config.name, self._data_end, int(self._clock.time()), window)

    def _end_silence(self, span: Window, until: int) -> None:
        """Have what is stored of a silence collected again: it was stored before the silence was known to be one."""
        ended = Window(span.start, min(until, span.end))
        if self._may_return and (self._was_silent_before or span.seconds >= self._config.empty_seconds):
            for part in self._ledger.stored(self._config.name, ended).within(ended.start, ended.end):
                self._ledger.jobs.add(JobRequest(self._config.name, part, force=True), self._clock.time())
        # Once the ledger has the jobs: where it fails, the next window with records ends the silence.
        self.span = Window(until, span.end) if until < span.end else None

    def _backfill_again(self) -> None:
        for one in self._ledger.unstored(self._config.name):
            if one.state == "empty" and one.error == EMPTY_IN_BACKFILL:
                self._ledger.jobs.add(JobRequest(self._config.name, one.window), self._clock.time())

    def verdict(self, collected: Collected, premature: float) -> float | None:
        """Return decide() of a noted window; None for one with records. premature: seconds until its time has certainly passed."""
        if not collected.is_empty:
            return None
        end, config = collected.meta.window.end, self._config
        return decide(EmptyWindow(
            may_return=self._may_return, premature=premature, age=self._clock.time() - end, is_older=end <= (self._data_end or 0),
            has_data=self._has_data, silence=0 if self.span is None else self.span.seconds, empty_after=config.empty_seconds,
        ))  # fmt: skip

    def reason(self) -> str:
        """Return what the status reports of an empty source."""
        return "" if self.span is None else empty_reason(self._config, self.span)


def empty_reason(config: SourceConfig, span: Window) -> str:
    """Return the sentence about a source that is empty since the start of a span."""
    windows = -(-span.seconds // config.window)
    check = f"; check {config.selection}" if config.selection else ""
    return f"up, but no record in the last {windows} windows, since {iso(span.start)}{check}"
