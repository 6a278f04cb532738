"""What a request may ask for, and the typed errors of one that may not.

    {"error": {"type": "span_too_long", "message": "...", "parameter": "end"}}

Limits are on the span, the width and the cells that an answer reads and contains, so that no request costs much more than a picture does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import msgspec

from tokiod.reader.errors import UnclearTime
from tokiod.reader.span import Span, epoch

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_SPAN_SECONDS = 31 * 86400 + 3600
"""Of one matrix: a month, with the hour of a clock change."""
MAX_GAPS_SPAN_SECONDS = 400 * 86400
MAX_WIDTH = 4096
MAX_CELLS = 4_000_000
"""Of one answer, of a byte and its flags each."""
MAX_READ_CELLS = 1 << 28
"""That one answer is made of: a month of 248 OSTs in steps of 5 s is half of it."""
MAX_PARAMETER_LENGTH = 200
_DATASET = re.compile(r"[a-z]+/[A-Za-z0-9_]+")


class ErrorBody(msgspec.Struct, frozen=True):
    """type: stable, for programs; parameter: that is wrong, or empty."""

    type: str
    message: str
    parameter: str = ""


class Refused(Exception):  # noqa: N818 - an answer, not a fault
    """A request gets an error as its answer. status: of HTTP; headers: further ones."""

    def __init__(self, status: int, body: ErrorBody, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(body.message)
        self.status, self.body, self.headers = status, body, dict(headers or {})


def refused(status: int, kind: str, message: str, parameter: str = "", **headers: str) -> Refused:
    """Return an error to raise. kind: the type; headers: with _ for -."""
    return Refused(status, ErrorBody(kind, message, parameter), {name.replace("_", "-"): value for name, value in headers.items()})


@dataclass(frozen=True, slots=True)
class MatrixQuery:
    """A dataset of a system over a span, in at most `width` pixels."""

    system: str
    dataset: str
    span: Span
    width: int

    @classmethod
    def parse(cls, query: Mapping[str, str], now: float) -> Self:
        """Check the parameters system, dataset, start, end (now), width (720), how (max). Raises Refused."""
        only(query, "system", "dataset", "start", "end", "width", "how")
        if query.get("how", "max") != "max":
            raise refused(400, "unknown_reduction", "how: the only reduction is max", "how")
        return cls(required(query, "system"), dataset(query), span(query, now, MAX_SPAN_SECONDS), number(query, "width", 720, MAX_WIDTH))


@dataclass(frozen=True, slots=True)
class LineQuery:
    """One column of what a matrix would show."""

    matrix: MatrixQuery
    column: str

    @classmethod
    def parse(cls, query: Mapping[str, str], now: float) -> Self:
        """Check the parameters of a matrix, and column. Raises Refused."""
        rest = {name: value for name, value in query.items() if name != "column"}
        only({"column": required(query, "column")}, "column")
        return cls(MatrixQuery.parse(rest, now), query["column"])


@dataclass(frozen=True, slots=True)
class GapsQuery:
    """The gaps in a span. source: of one source, empty for all."""

    source: str
    span: Span

    @classmethod
    def parse(cls, query: Mapping[str, str], now: float) -> Self:
        """Check the parameters source (all), start, end (now). Raises Refused."""
        only(query, "source", "start", "end")
        return cls(query.get("source", ""), span(query, now, MAX_GAPS_SPAN_SECONDS))


def only(query: Mapping[str, str], *names: str) -> None:
    """Refuse a parameter with another name, and a long one: a misspelt name would be ignored otherwise."""
    for name, value in query.items():
        if name not in names:
            known = ", ".join(names) or "none"
            raise refused(400, "unknown_parameter", f"unknown parameter; known: {known}", name[:MAX_PARAMETER_LENGTH])
        if len(value) > MAX_PARAMETER_LENGTH:
            raise refused(400, "bad_parameter", f"{name} has more than {MAX_PARAMETER_LENGTH} characters", name)


def required(query: Mapping[str, str], name: str) -> str:
    """Return a parameter that must not be empty."""
    if not query.get(name):
        raise refused(400, "missing_parameter", f"the parameter {name} is missing", name)
    return query[name]


def dataset(query: Mapping[str, str]) -> str:
    """Return the name of a dataset, such as datatargets/readbytes."""
    name = required(query, "dataset")
    if not _DATASET.fullmatch(name):
        raise refused(400, "bad_parameter", "dataset: expected a name such as datatargets/readbytes", "dataset")
    return name


def number(query: Mapping[str, str], name: str, default: int, most: int) -> int:
    """Return a whole number from 1 to `most`."""
    text = query.get(name, str(default))
    if not re.fullmatch(r"[0-9]{1,9}", text) or not 1 <= int(text) <= most:
        raise refused(400, "bad_parameter", f"{name}: expected a whole number from 1 to {most}", name)
    return int(text)


def span(query: Mapping[str, str], now: float, longest: int) -> Span:
    """Return [start, end): each in epoch seconds, ISO 8601 with a zone, "-3h" or "now"; end: now by default."""
    start, end = _time(required(query, "start"), "start", now), _time(query.get("end", "now"), "end", now)
    if start >= end:
        raise refused(400, "bad_parameter", "end: expected a time after start", "end")
    if end - start > longest:
        raise refused(400, "span_too_long", f"the span has {end - start} s; the longest is {longest} s", "end")
    return Span(start, end)


def _time(text: str, name: str, now: float) -> int:
    try:
        return epoch(int(text) if re.fullmatch(r"[0-9]{1,12}", text) else text, None, now=now)
    except UnclearTime as error:
        raise refused(400, "bad_parameter", f"{name}: {error}", name) from None
