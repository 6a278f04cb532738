"""Units of work of the maintenance: one that fails is logged and comes again later, and never stops another."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import structlog

from tokiod.errors import TokiodError
from tokiod.metrics import catalogue
from tokiod.runtime.log import Repeats

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokiod.clock import Clock

log = structlog.get_logger()


class WorkUnits:
    """The one place where the exceptions of maintenance end. The next scan tries a unit again."""

    def __init__(self, clock: Clock) -> None:
        self._repeats = Repeats(clock)

    @contextmanager
    def unit(self, task: str) -> Iterator[None]:
        """Run the block; count any exception, and log it once in five minutes. task: what the block does, such as "seal PATH"."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - a damaged file may raise anything, and the writer must go on
            catalogue.MAINTENANCE_FAILURES.inc()
            reason = str(error) if isinstance(error, (OSError, TokiodError)) else f"{type(error).__name__}: {error}"
            if times := self._repeats((task, reason)):
                log.warning("maintenance.failed", task=task, path=getattr(error, "filename", None) or "", error=reason, times=times)
