"""How a source that is polled does, as the ledger, the log and the metrics tell it. What can't be written there stops nothing."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import structlog

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


class SourceState:
    """Tells of one source. trouble: why it is down, where it is."""

    def __init__(self, config: SourceConfig, ledger: Ledger, clock: Clock) -> None:
        self.trouble = ""
        self._state = "running"
        self._config = config
        self._ledger = ledger
        self._clock = clock
        self._repeats = Repeats(clock)
        self._log = structlog.get_logger().bind(source=config.name)

    def tell(self) -> None:
        """Say how it does to the ledger, which may know nothing of it yet."""
        self._tell(self._ledger.set_state, self._config.name, self._state, self.trouble, self._clock.time())

    def up(self) -> None:
        """Say that it answers."""
        if self.trouble:
            self._state, self.trouble = "running", ""
            self._log.info("source.up")
            self.tell()

    def stopped(self) -> None:
        """Say that nobody polls it any more."""
        self._state, self.trouble = "stopped", ""
        self.tell()

    def failed(self, window: Window, error: Exception, verdict: Verdict, attempts: int) -> None:
        """Say why a window is not stored after so many attempts, and that the source is down, unless the window alone is at fault."""
        self._explain(window, error, verdict, attempts)
        if verdict.outcome != "rejected":
            self._down("fatal" if verdict.outcome == "fatal" else "waiting", self._text(error))

    def lost(self, span: Window, *, replayable: bool) -> bool:
        """Say that a span can't be had any more; whether the ledger could be told."""
        if replayable:
            reason, message = "Retention", f"older than the {self._config.retention} s that the source keeps"
        else:
            reason, message = "Past", "the source can't be asked about the past" + (self.trouble and f", and then: {self.trouble}")
        if not self._tell(self._ledger.lost, self._config.name, span, reason, message, self._clock.time()):
            return False
        if times := self._repeats((reason, message)):
            self._log.warning("window.lost", window=str(span), reason=message, times=times)
        catalogue.WINDOWS.inc(self._config.name, "lost", by=math.ceil(span.seconds / self._config.window))
        return True

    def expected(self, since: int) -> bool:
        """Say that nothing is expected of it before a time; whether the ledger could be told."""
        return self._tell(self._ledger.register, self._config, since)

    def ledger_failed(self, error: LedgerError) -> None:
        """Say that the ledger can't be had just now, in the log alone."""
        if times := self._repeats(("ledger", str(error))):
            self._log.error("ledger.failed", error=str(error), times=times)

    def _down(self, state: str, reason: str) -> None:
        if not self.trouble:
            self._log.warning("source.down", state=state, reason=reason)
        self._state, self.trouble = state, reason
        self.tell()

    def _explain(self, window: Window, error: Exception, verdict: Verdict, attempts: int) -> None:
        now, kind, text = self._clock.time(), type(error).__name__, self._text(error)
        next_try = now + max(verdict.source_wait, verdict.window_wait)
        state = "rejected" if verdict.outcome == "rejected" else "failed"
        self._tell(self._ledger.failed, self._config.name, window, kind, text, attempts, next_try, now, state=state)
        if times := self._repeats((kind, text)):
            is_bug = verdict.outcome == "bug"
            log = self._log.error if is_bug else self._log.warning
            log("window.failed", window=str(window), error_class=kind, error=text, times=times, exc_info=error if is_bug else None)

    def _text(self, error: Exception) -> str:
        silent = f"no answer within {self._config.timeout} s" if isinstance(error, TimeoutError) else type(error).__name__
        # A server may tell us our own password: what is said of it goes into the ledger, for everybody to read.
        return mask(str(error)) or silent

    def _tell(self, what: Callable[..., object], *args: Any, **options: Any) -> bool:
        """Write to the ledger what is good to know, if that can be; that it can't (a full disk) stops nothing."""
        try:
            what(*args, **options)
        except LedgerError as error:
            self.ledger_failed(error)
            return False
        return True
