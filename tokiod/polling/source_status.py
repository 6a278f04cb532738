"""The status of a polled source in the ledger, the log and the metrics. A status that can't be written stops nothing."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import structlog

from tokiod.dropped import Why
from tokiod.ledger.database import LedgerError
from tokiod.metrics import catalogue
from tokiod.runtime.log import Repeats
from tokiod.runtime.secrets import mask

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokiod.clock import Clock
    from tokiod.collector import SourceConfig
    from tokiod.ledger.ledger import Ledger
    from tokiod.polling.retry import Verdict
    from tokiod.window import Window
    from tokiod.window_data import Collected


class SourceStatus:
    """Reports the status of one source. trouble: why the source is down or empty; no text for one that runs."""

    def __init__(self, config: SourceConfig, ledger: Ledger, clock: Clock) -> None:
        self.trouble = ""
        self._state = "running"
        self._config = config
        self._ledger = ledger
        self._clock = clock
        self._repeats = Repeats(clock)
        self._why: set[str] = set()
        self._log = structlog.get_logger().bind(source=config.name)

    def write(self) -> None:
        """Write the state to the ledger, which may not know the source yet."""
        self._write(self._ledger.set_state, self._config.name, self._state, self.trouble, self._clock.time())

    @property
    def is_empty(self) -> bool:
        """Whether the source answers, and has had no record for a while."""
        return self._state == "empty"

    @property
    def why_down(self) -> str:
        """Why nothing is collected, empty while something is."""
        return "" if self._state == "running" else self.trouble

    def partial(self, reason: str) -> None:
        """Report that the source answers, and what a part of it lacks."""
        reason = mask(reason)
        if (self._state, self.trouble) != ("running", reason):
            if times := self._repeats(("partial", reason)):
                self._log.warning("source.partial", reason=reason, times=times)
            self._state, self.trouble = "running", reason
            self.write()

    def dropped(self, collected: Collected) -> None:
        """Record and log the first example of each reason why records are dropped."""
        counts = collected.meta.dropped
        new = {reason: Why(mask(one.example), one.remedy) for reason, one in collected.why.items() if reason not in self._why}
        if new and self._write(self._ledger.set_why, self._config.name, new):
            self._why.update(new)
            for reason, one in new.items():
                self._log.warning("records.dropped", reason=reason, example=one.example, remedy=one.remedy, records=counts.get(reason, 0))

    def up(self) -> None:
        """Report that the source answers."""
        if self.trouble:
            self._state, self.trouble = "running", ""
            self._log.info("source.up")
            self.write()

    def empty(self, reason: str) -> None:
        """Report that the source answers and has had no record for a while."""
        if self._state != "empty":
            self._log.warning("source.empty", reason=reason)
        self._state, self.trouble = "empty", reason
        self.write()

    def empty_window(self, window: Window) -> bool:
        """Record that the source answered a window without a record; return whether the ledger records it."""
        message = "the source had no record of it"
        return self._write(self._ledger.empty, self._config.name, window, message, self._clock.time())

    def stopped(self) -> None:
        """Report that the source is no longer polled."""
        self._state, self.trouble = "stopped", ""
        self.write()

    def failed(self, window: Window, error: Exception, verdict: Verdict, attempts: int) -> None:
        """Report why a window is not stored after so many attempts, and that the source is down, unless only the window was rejected."""
        self._record(window, error, verdict, attempts)
        if verdict.outcome != "rejected":
            self._down("fatal" if verdict.outcome == "fatal" else "waiting", self._text(error))

    def lost(self, span: Window, *, replayable: bool, is_empty: bool) -> bool:
        """Report that a span is lost; return whether the ledger records it. is_empty: the source was asked for it, and had no record."""
        if is_empty:
            reason, message = "Retention", f"the source had no record of it, and keeps none that is older than {self._config.retention} s"
        elif replayable:
            reason, message = self._config.why_lost
        else:
            reason, message = "Past", "the source can't be queried about the past" + (self.trouble and f", and it was down: {self.trouble}")
        if not self._write(self._ledger.lost, self._config.name, span, reason, message, self._clock.time()):
            return False
        if times := self._repeats((reason, message)):
            self._log.warning("window.lost", window=str(span), reason=message, times=times)
        catalogue.WINDOWS.inc(self._config.name, "lost", by=math.ceil(span.seconds / self._config.window))
        return True

    def expect(self, since: int) -> bool:
        """Report that no data of the source is expected before a time; return whether the ledger records it."""
        return self._write(self._ledger.register, self._config, since)

    def ledger_failed(self, error: LedgerError) -> None:
        """Log that the ledger can't be read or written at present."""
        if times := self._repeats(("ledger", str(error))):
            self._log.error("ledger.failed", error=str(error), times=times)

    def _down(self, state: str, reason: str) -> None:
        if self._state in {"running", "empty"}:
            self._log.warning("source.down", state=state, reason=reason)
        self._state, self.trouble = state, reason
        self.write()

    def _record(self, window: Window, error: Exception, verdict: Verdict, attempts: int) -> None:
        now, kind, text = self._clock.time(), type(error).__name__, self._text(error)
        next_try = now + max(verdict.source_wait, verdict.window_wait)
        state = "rejected" if verdict.outcome == "rejected" else "failed"
        self._write(self._ledger.failed, self._config.name, window, kind, text, attempts, next_try, now, state=state)
        if times := self._repeats((kind, text)):
            is_bug = verdict.outcome == "bug"
            log = self._log.error if is_bug else self._log.warning
            log("window.failed", window=str(window), error_class=kind, error=text, times=times, exc_info=error if is_bug else None)

    def _text(self, error: Exception) -> str:
        silent = f"no answer within {self._config.timeout} s" if isinstance(error, TimeoutError) else type(error).__name__
        # A server's message may contain tokiod's own password, and every user of the archive can read the ledger.
        return mask(str(error)) or silent

    def _write(self, method: Callable[..., object], *args: Any, **options: Any) -> bool:
        """Call a method of the ledger; log an error and return False where the ledger can't be written (a full disk)."""
        try:
            method(*args, **options)
        except LedgerError as error:
            self.ledger_failed(error)
            return False
        return True
