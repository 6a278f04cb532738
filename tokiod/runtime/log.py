"""Logging: events with dotted, stable names and key-values, to stderr; people on a terminal get lines, machines JSON.

Everything goes through the standard library's root logger, so that what libraries log looks the same and goes the same way.
Where stderr is systemd's journal, each line begins with its priority, sd-daemon(3), which the journal takes off.
Tracebacks never show locals, and no secret that this process has read (tokiod.runtime.secrets) leaves it in a log line.
"""

from __future__ import annotations

import logging
import os
import sys
from collections import OrderedDict
from functools import cache
from typing import TYPE_CHECKING

import structlog

from tokiod.runtime.secrets import mask

if TYPE_CHECKING:
    from collections.abc import Hashable
    from types import TracebackType

    from structlog.typing import Processor

    from tokiod.clock import Clock

get_logger = structlog.get_logger

_PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))


def setup(level: str = "info", *, json: bool = False) -> None:
    """Log events of a level and above to stderr, as JSON lines if asked to or if stderr is no terminal.

    level: debug, info, warning, error or critical. May be called again. Raises ValueError for another level.
    """
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        # By the root logger, not by the wrapper's class: a logger that was bound before keeps that, and the level may change.
        processors=[structlog.stdlib.filter_by_level, *shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter(foreign_pre_chain=shared, processors=_rendering(json=json or not sys.stderr.isatty())))
    root = logging.getLogger()
    root.handlers = [handler]
    set_level(level)
    sys.excepthook = _crashed


def set_level(level: str) -> None:
    """Log events of a level and above from now on. Raises ValueError for what is no level."""
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ValueError(f"{level!r} is no log level")
    logging.getLogger().setLevel(number)


class Repeats:
    """Says which of many equal events are worth a line: the first at once, then one per interval with the count since.

    A server that is down for a night fails ten thousand times in the same way. The line a person needs is the first; the others
    only say that it goes on, and how often. Keys are forgotten oldest first, so error texts that all differ cost no memory.

        if times := repeats(("window.failed", source, str(error))):
            log.warning("window.failed", source=source, error=str(error), times=times)
    """

    def __init__(self, clock: Clock, interval: float = 300.0, keys: int = 1000) -> None:
        self._clock = clock
        self._interval = interval
        self._keys = keys
        self._seen: OrderedDict[Hashable, tuple[float, int]] = OrderedDict()

    def __call__(self, key: Hashable) -> int:
        """Count an event; return how many there were since the last line, this one included, or 0 to stay silent."""
        now = self._clock.monotonic()
        due, silent = self._seen.pop(key, (now, 0))
        if now < due:
            self._seen[key] = (due, silent + 1)
            return 0
        self._seen[key] = (now + self._interval, 0)
        while len(self._seen) > self._keys:
            self._seen.popitem(last=False)
        return silent + 1

    def forget(self, key: Hashable) -> int:
        """End a series, so that the next of its kind is told at once; return how many were not told."""
        return self._seen.pop(key, (0.0, 0))[1]


class _Formatter(structlog.stdlib.ProcessorFormatter):
    """The last stop of every line, ours or a library's."""

    def format(self, record: logging.LogRecord) -> str:
        line = mask(super().format(record))
        return f"<{_priority(record.levelno)}>{line}" if _is_journal() else line


def _priority(level: int) -> int:
    """Return syslog's number of a level."""
    return next((number for least, number in _PRIORITIES if level >= least), 7)


@cache
def _is_journal() -> bool:
    """Whether stderr is the journal's own stream, see systemd.exec(5)."""
    try:
        status = os.fstat(2)
    except OSError:
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def _crashed(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Log what ends the process as everything else is logged: its text may hold a secret."""
    get_logger().critical("process.crashed", exc_info=(kind, error, trace))


def _rendering(*, json: bool) -> list[Processor]:
    strip: Processor = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    if json:
        return [strip, structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=repr)]
    lines = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback)
    return [strip, lines]
