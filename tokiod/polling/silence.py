"""Whether a source that answers has stopped to return records, and what that says of the windows that it answered without any."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokiod.ledger.jobs import JobRequest
from tokiod.window import Window, iso

if TYPE_CHECKING:
    from tokiod.clock import Clock
    from tokiod.collector import SourceConfig
    from tokiod.ledger.ledger import Ledger
    from tokiod.window_data import Collected


EMPTY_IN_BACKFILL = "the source had no record of it when it was backfilled"
"""Why the ledger has a window as empty that a backfill collected."""


# An answer without records has two causes: nothing happened, or the query is for the wrong index, file system or host, and the records are
# somewhere else. Only what the source returns next can tell which. So once a source has returned nothing for `empty_after`, its empty
# windows are kept apart and are queried again when a window with records comes. Windows older than records that came since the source
# was started are beyond doubt. The first windows of a silence were stored before it was known to be one: a backfill queries them again.
# What a backfill found empty then is mostly out of the reach of polling, so another backfill queries it when the silence has ended.
# With a clock that is ahead there is a third cause: a source has no records of a time that has not come. So an empty window is kept apart,
# too, until its time has certainly passed, and a span after the present is no silence.
class Silence:
    """The silence of one polled source: the span until now without any record. Methods raise LedgerError.

    span: the silence, None while the newest window has records.
    """

    def __init__(self, config: SourceConfig, ledger: Ledger, clock: Clock, *, replayable: bool) -> None:
        self.span: Window | None = None
        self._config = config
        self._ledger = ledger
        self._clock = clock
        self._replayable = replayable
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
        if self._replayable and self._config.can_be_empty and (self._was_silent_before or span.seconds >= self._config.empty_seconds):
            for part in self._ledger.stored(self._config.name, ended).within(ended.start, ended.end):
                self._ledger.jobs.add(JobRequest(self._config.name, part, force=True), self._clock.time())
        # Once the ledger has the jobs: where it fails, the next window with records ends the silence.
        self.span = Window(until, span.end) if until < span.end else None

    def _backfill_again(self) -> None:
        for one in self._ledger.unstored(self._config.name):
            if one.state == "empty" and one.error == EMPTY_IN_BACKFILL:
                self._ledger.jobs.add(JobRequest(self._config.name, one.window), self._clock.time())

    def doubts(self, collected: Collected, premature_seconds: float) -> bool:
        """Return whether a noted window without records may have some once the source returns any, or once its time has passed."""
        if not collected.is_empty or not self._replayable or not self._config.can_be_empty:
            return False
        is_past = collected.meta.window.end <= (self._data_end or 0)
        return premature_seconds > 0 or self.is_long or (is_past and (self.span is not None or not self._has_data))

    def retry_seconds(self, window: Window, premature_seconds: float) -> float:
        """Return seconds until an empty window is queried again while the source stays silent.

        That is when its time has certainly passed; then for late records, after as long as it is old.
        """
        return premature_seconds or max(self._config.empty_seconds, self._clock.time() - window.end)

    def reason(self) -> str:
        """Return what the status reports of an empty source."""
        return "" if self.span is None else empty_reason(self._config, self.span)


def empty_reason(config: SourceConfig, span: Window) -> str:
    """Return the sentence about a source that is empty since the start of a span."""
    windows = -(-span.seconds // config.window)
    check = f"; check {config.selection}" if config.selection else ""
    return f"up, but no record in the last {windows} windows, since {iso(span.start)}{check}"
