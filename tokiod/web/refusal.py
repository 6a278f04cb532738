"""The typed errors of the API: what is refused, with which status of HTTP, and what it means.

    {"error": {"type": "span_too_long", "message": "...", "parameter": "end"}}

Types are stable: programs may depend on them. Messages are for people and may change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class ErrorType:
    """status: of HTTP; meaning: a sentence for the documents; retry_after: seconds after which a client may try again."""

    name: str
    status: int
    meaning: str
    retry_after: int | None = None


MISSING_PARAMETER = ErrorType("missing_parameter", 400, "A parameter that is needed is missing or empty.")
UNKNOWN_PARAMETER = ErrorType("unknown_parameter", 400, "There is no parameter of this name.")
BAD_PARAMETER = ErrorType("bad_parameter", 400, "A parameter has a value that it can't have, or is given twice.")
SPAN_TOO_LONG = ErrorType("span_too_long", 400, "The time from start to end is longer than an answer may cover.")
TOO_MANY_CELLS = ErrorType("too_many_cells", 400, "The answer would have, or be made of, more cells than one answer may.")
TOO_MANY_ROWS = ErrorType("too_many_rows", 400, "The answer would be made of more rows of the job table than one answer may.")
STEP_CHANGED = ErrorType("step_changed", 400, "The files of the span have different steps.")
FORBIDDEN_HOST = ErrorType("forbidden_host", 403, "The Host header names a server that is not in [web] hosts.")
USERS_NOT_SHOWN = ErrorType("users_not_shown", 403, "The site shows no users here: see [jobs] users_in.")
NOT_FOUND = ErrorType("not_found", 404, "Nothing is served under this path.")
UNKNOWN_SYSTEM = ErrorType("unknown_system", 404, "The configuration has no system of this name.")
UNKNOWN_DATASET = ErrorType("unknown_dataset", 404, "No file of the span has this dataset.")
UNKNOWN_COLUMN = ErrorType("unknown_column", 404, "The dataset has no such column in the span.")
UNKNOWN_SOURCE = ErrorType("unknown_source", 404, "The configuration has no source of this name that is asked for windows.")
UNKNOWN_OPERATION = ErrorType("unknown_operation", 404, "Jobs have no counts of this operation in the span.")
UNKNOWN_TARGET = ErrorType("unknown_target", 404, "No target of the job table matches in the span.")
NO_JOB_TABLE = ErrorType("no_job_table", 404, "The archive has no job table of the system.")
NO_DATA = ErrorType("no_data", 404, "The archive has no file with rows in the span.")
METHOD_NOT_ALLOWED = ErrorType("method_not_allowed", 405, "Only GET is allowed.")
TOO_MANY_REQUESTS = ErrorType("too_many_requests", 429, "This client sends more requests than one client may.", retry_after=1)
TOO_MANY_STREAMS = ErrorType("too_many_streams", 429, "This client follows the events on as many connections as one may.", retry_after=15)
INTERNAL_ERROR = ErrorType("internal_error", 500, "A fault of tokiod web; its log has more.")
BUSY = ErrorType("busy", 503, "Too many requests of all clients wait already.", retry_after=1)
TOO_MANY_VIEWERS = ErrorType("too_many_viewers", 503, "Too many clients follow the events already.", retry_after=60)
ARCHIVE_UNREADABLE = ErrorType("archive_unreadable", 503, "The ledger or a file can't be read.")

OF_LIMITS = (TOO_MANY_REQUESTS, TOO_MANY_STREAMS, BUSY, TOO_MANY_VIEWERS)
"""What is refused because of other requests: the same request is answered later."""


class ErrorBody(msgspec.Struct, frozen=True):
    """An error. type: stable, for programs; message: a sentence; parameter: that is wrong, or empty."""

    type: str
    message: str
    parameter: str = ""


class ErrorAnswer(msgspec.Struct, frozen=True):
    """The body of every answer whose status is not 200 or 304."""

    error: ErrorBody


class Refused(Exception):  # noqa: N818 - an answer, not a fault
    """A request gets an error as its answer. parameter: that is wrong, or empty; headers: further ones, with _ for -."""

    def __init__(self, kind: ErrorType, message: str, parameter: str = "", **headers: str) -> None:
        super().__init__(message)
        self.kind, self.answer = kind, ErrorAnswer(ErrorBody(kind.name, message, parameter))
        again = {} if kind.retry_after is None else {"Retry-After": str(kind.retry_after)}
        self.headers: Mapping[str, str] = again | {name.replace("_", "-"): value for name, value in headers.items()}
