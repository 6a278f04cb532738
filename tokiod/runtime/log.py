"""Logging: events with dotted, stable names and key-values, to stderr.

In systemd's journal an event is a message with fields (tokiod.runtime.journal), on a terminal a sentence, elsewhere a line of JSON.
All events go through the standard library's root logger, so events of libraries have the same form.
Tracebacks never show locals, and log lines never contain a secret that this process has read (tokiod.runtime.secrets).
"""

from __future__ import annotations

import logging
import os
import sys
from collections import OrderedDict
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Literal

import structlog

from tokiod.runtime.journal import JournalHandler, priority
from tokiod.runtime.log_sentences import SENTENCES, sentence
from tokiod.runtime.secrets import mask

if TYPE_CHECKING:
    from collections.abc import Hashable
    from types import TracebackType

    from structlog.typing import EventDict, Processor

    from tokiod.clock import Clock

get_logger = structlog.get_logger

_COLOURS = {"warning": 33, "error": 31, "critical": 31}
"""SGR codes of levels on a terminal."""

Form = Literal["text", "json"]


def setup(level: str = "info", form: Form | None = None) -> None:
    """Log events of a level and above to stderr. form: None for what fits the place: sentences for people, JSON for programs.

    level: debug, info, warning, error or critical. May be called again. Raises ValueError for another level.
    """
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        # Filtered by the root logger, not by the wrapper class: a logger that is already bound keeps its class, and the level may change.
        processors=[structlog.stdlib.filter_by_level, *shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
    )
    is_journal = _is_journal()
    handler = JournalHandler(sys.stderr) if is_journal and form is None else logging.StreamHandler(sys.stderr)
    chosen = form or ("text" if is_journal or sys.stderr.isatty() else "json")
    handler.setFormatter(_Formatter(foreign_pre_chain=shared, processors=_rendering(chosen, has_time=not is_journal)))
    logging.captureWarnings(capture=True)
    root = logging.getLogger()
    root.handlers = [handler]
    set_level(level)
    sys.excepthook = _log_crash


def set_level(level: str) -> None:
    """Log events of a level and above from now on. Raises ValueError for an unknown level."""
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ValueError(f"{level!r} is not a log level")
    logging.getLogger().setLevel(number)


class Repeats:
    """Limits repeated events: the first one is logged at once, then one per interval with the count since.

    A server that is down for a night fails ten thousand times in the same way. The oldest keys are forgotten first, so error texts that
    all differ need a bounded amount of memory.

        if times := repeats(("window.failed", source, str(error))):
            log.warning("window.failed", source=source, error=str(error), times=times)
    """

    def __init__(self, clock: Clock, interval: float = 300.0, keys: int = 1000) -> None:
        self._clock = clock
        self._interval = interval
        self._keys = keys
        self._seen: OrderedDict[Hashable, tuple[float, int]] = OrderedDict()

    def __call__(self, key: Hashable) -> int:
        """Count an event; return the number since the last line, including this one, or 0 for an event that must not be logged."""
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
        """End a series, so that the next event of its kind is logged at once; return the number that was not logged."""
        return self._seen.pop(key, (0.0, 0))[1]


class _Formatter(structlog.stdlib.ProcessorFormatter):
    """Masks secrets in every line, of tokiod and of libraries."""

    def format(self, record: logging.LogRecord) -> str:
        line = mask(super().format(record))
        return f"<{priority(record.levelno)}>{line}" if _is_journal() else line


@cache
def _is_journal() -> bool:
    """Whether stderr is the journal's own stream, see systemd.exec(5)."""
    try:
        status = os.fstat(2)
    except OSError:
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def _log_crash(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Log an exception that ends the process like all other events: its text may contain a secret."""
    get_logger().critical("process.crashed", exc_info=(kind, error, trace))


def _rendering(form: Form, *, has_time: bool) -> list[Processor]:
    strip: Processor = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    if form == "json":
        return [strip, structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=repr)]
    return [strip, partial(_line, colours=sys.stderr.isatty() and not os.environ.get("NO_COLOR"), has_time=has_time)]


def _line(_logger: Any, _method: str, event: EventDict, *, colours: bool, has_time: bool) -> str:
    """Return an event as a sentence, with its name, and with its traceback below it."""
    name, level, time = str(event.pop("event", "")), str(event.pop("level", "")), str(event.pop("timestamp", ""))
    exc_info = event.pop("exc_info", None)
    text = sentence(name, event)
    text += f" [{name}]" if name in SENTENCES else "".join(f" {key}={value}" for key, value in event.items())
    text = _escaped(text)
    if has_time:
        shown = f"\x1b[{_COLOURS[level]}m{level:<8}\x1b[0m" if colours and level in _COLOURS else f"{level:<8}"
        text = f"{time[:19]}Z {shown} {text}"
    return text + ("\n" + _traceback(exc_info) if exc_info else "")


def _escaped(text: str) -> str:
    """Return a text without characters that control a terminal or begin a line: servers and files can choose parts of it."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape", "surrogatepass").decode() for one in text)


def _traceback(exc_info: Any) -> str:
    found = {"exc_info": exc_info}
    text = str(structlog.processors.format_exc_info(None, "", found).get("exception", ""))
    return "\n".join(map(_escaped, text.rstrip().split("\n")))
