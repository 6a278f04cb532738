"""The parameters of the API, each declared once: what may be asked is checked by the same declaration that the OpenAPI document shows.

Limits are on the span, the width and the cells that an answer reads and contains, so that no request costs much more than a picture does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokiod.reader.errors import UnclearTime
from tokiod.reader.span import Span, epoch
from tokiod.web.refusal import BAD_PARAMETER, MISSING_PARAMETER, SPAN_TOO_LONG, UNKNOWN_PARAMETER, Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_SPAN_SECONDS = 31 * 86400 + 3600
"""Of one matrix: a month, with the hour of a clock change."""
MAX_LEDGER_SPAN_SECONDS = 400 * 86400
MAX_WIDTH = 4096
MAX_CELLS = 4_000_000
"""Of one answer, of a byte and its flags each."""
MAX_READ_CELLS = 1 << 28
"""That one answer is made of: a month of 248 OSTs in steps of 5 s is half of it."""
MAX_PARAMETER_LENGTH = 200
_TIME = r"now|[0-9]{1,12}|-[0-9]{1,9}[smhdw]|[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:.]{5,15}(Z|[+-][0-9]{2}:?[0-9]{2})"
_NAME = r"[^\x00-\x1f\x7f]{1,200}"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a query.

    pattern: a regular expression of its whole value; expected: what that is, in words; default: None where the parameter is needed, ""
    where nothing is as good as a value; most: of a whole number that is at least 1, None for text; longest: characters of a text.
    """

    name: str
    meaning: str
    pattern: str
    expected: str
    example: str
    default: str | None = None
    most: int | None = None
    longest: int = MAX_PARAMETER_LENGTH

    def value(self, query: Mapping[str, str]) -> str:
        """Return the value, or the default. Raises Refused."""
        text = query.get(self.name, "") or self.default
        if text is None:
            raise Refused(MISSING_PARAMETER, f"the parameter {self.name} is missing", self.name)
        if text != self.default and not self._accepts(text):
            raise Refused(BAD_PARAMETER, f"{self.name}: expected {self.expected}", self.name)
        return text

    def _accepts(self, text: str) -> bool:
        fits = len(text) <= self.longest and re.fullmatch(self.pattern, text) is not None
        return fits and (self.most is None or 1 <= int(text) <= self.most)

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of its values."""
        if self.most is not None:
            number = {} if self.default is None else {"default": int(self.default)}
            return {"type": "integer", "minimum": 1, "maximum": self.most, **number}
        default = {} if not self.default else {"default": self.default}
        return {"type": "string", "pattern": f"^({self.pattern})$", "maxLength": self.longest, **default}


_WHEN = 'UTC epoch seconds, ISO 8601 with a zone, a time before now such as -3h, or "now"'
SYSTEM = Parameter("system", "A file system, as /api/v1/systems lists it.", _NAME, "the name of a system", "fs")
OF_SYSTEM = Parameter("system", "Of one file system; of all by default.", _NAME, "the name of a system", "fs", default="")
DATASET = Parameter(
    "dataset", "A dataset of the system.", "[a-z]+/[A-Za-z0-9_]+", "a name such as datatargets/readbytes", "datatargets/readbytes"
)
DATASETS = Parameter(
    "dataset",
    "A dataset of the system, or several with the same rows, whose cells are added.",
    f"{DATASET.pattern}(,{DATASET.pattern}){{0,19}}",
    "a name such as datatargets/readbytes, or up to 20 with commas between them",
    "mdtargets/opens,mdtargets/closes",
    longest=1000,
)
OF_DATASET = Parameter("dataset", "Of one dataset; of all by default.", DATASET.pattern, DATASET.expected, DATASET.example, default="")
START = Parameter("start", f"Begin of the span: {_WHEN}.", _TIME, _WHEN, "-3h")
END = Parameter("end", "End of the span, after its last row, as start.", _TIME, _WHEN, "now", default="now")
WIDTH = Parameter(
    "width",
    "At most so many pixels; a pixel is a whole number of rows.",
    "[0-9]{1,9}",
    f"a whole number from 1 to {MAX_WIDTH}",
    "720",
    "720",
    MAX_WIDTH,
)
HOW = Parameter("how", "How the rows of a pixel become one value.", "max", "max: it is the only reduction", "max", default="max")
COLUMN = Parameter(
    "column",
    "A target; by default all targets that have a value, row by row, as `across` says.",
    _NAME,
    "the name of a column",
    "OST0000",
    "",
)
ACROSS = Parameter(
    "across", "How the targets of a row become one value: their sum, or the largest of them.", "sum|max", "sum or max", "sum", default="sum"
)
SOURCE = Parameter("source", "Of one source; of all by default.", _NAME, "the name of a source", "lmt", default="")
SINCE = Parameter("start", f"Leave out what ended before: {_WHEN}.", _TIME, _WHEN, "-10m", default="-1h")
SLOWEST = Parameter(
    "slowest",
    "How many of the windows and files that took longest are in the answer; the table is about all.",
    "[0-9]{1,9}",
    "a whole number from 1 to 200",
    "20",
    "20",
    200,
)
BY = Parameter(
    "by",
    "What jobs are sorted by: bytes, read, write, metadata, or an operation as Lustre names it; of compute nodes cpu, memory, disk, read, "
    "write, or a figure such as page_faults. By default the first of these.",
    "[a-z_]{1,40}",
    "a word such as write or open",
    "write",
    "",
)
OF = Parameter("of", "A line for each job, or for each user where the site shows users.", "job|user", "job or user", "job", default="job")
TARGET = Parameter(
    "target", "Only what was done on this target, or on those that match a pattern.", _NAME, "a name or a pattern", "MDT0002", ""
)
LIMIT = Parameter("limit", "How many lines are in the answer.", "[0-9]{1,9}", "a whole number from 1 to 500", "50", "50", 500)

PICTURE = (SYSTEM, DATASET, START, END, WIDTH, HOW)
LINE = (SYSTEM, DATASETS, START, END, WIDTH, HOW, COLUMN, ACROSS)
GAPS = (SOURCE, START, END)
DAYS = (OF_SYSTEM, START, END)
STAGES = (SOURCE, SINCE, SLOWEST)
JOBS = (SYSTEM, START, END, BY, OF, TARGET, LIMIT)
EVENTS = (OF_SYSTEM, OF_DATASET)


@dataclass(frozen=True, slots=True)
class MatrixQuery:
    """A dataset of a system over a span, in at most `width` pixels."""

    system: str
    dataset: str
    span: Span
    width: int


def values(query: Mapping[str, str], allowed: tuple[Parameter, ...]) -> dict[str, str]:
    """Return the value of each allowed parameter. A misspelt one would be ignored, so others are refused. Raises Refused."""
    names = {one.name for one in allowed}
    given = [name for name, _ in query.items()]  # with a name that occurs twice
    for name in given:
        if name not in names:
            known = ", ".join(one.name for one in allowed) or "none"
            raise Refused(UNKNOWN_PARAMETER, f"unknown parameter; known: {known}", name[:MAX_PARAMETER_LENGTH])
        if given.count(name) > 1:
            raise Refused(BAD_PARAMETER, f"{name} is given twice", name)
    return {one.name: one.value(query) for one in allowed}


def picture(given: Mapping[str, str], now: float) -> MatrixQuery:
    """Return the query of the values of PICTURE. Raises Refused."""
    return MatrixQuery(given["system"], given["dataset"], span(given, now, MAX_SPAN_SECONDS), int(given["width"]))


def span(given: Mapping[str, str], now: float, longest: int) -> Span:
    """Return [start, end) of the values of START and END. Raises Refused."""
    start, end = _time(given, "start", now), _time(given, "end", now)
    if start >= end:
        raise Refused(BAD_PARAMETER, "end: expected a time after start", "end")
    if end - start > longest:
        raise Refused(SPAN_TOO_LONG, f"the span has {end - start} s; the longest is {longest} s", "end")
    return Span(start, end)


def since(given: Mapping[str, str], now: float) -> int:
    """Return the UTC epoch second of the value of SINCE. Raises Refused."""
    return _time(given, SINCE.name, now)


def _time(given: Mapping[str, str], name: str, now: float) -> int:
    text = given[name]
    try:
        return epoch(int(text) if text.isdigit() else text, None, now=now)
    except UnclearTime as error:
        raise Refused(BAD_PARAMETER, f"{name}: {error}", name) from None
