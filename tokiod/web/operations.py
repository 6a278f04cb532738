"""What the API answers: for each path its parameters, its answer and its typed errors, for the server and for the OpenAPI document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokiod.web import query, refusal
from tokiod.web.job_lists import JobList
from tokiod.web.lines import Line, Point
from tokiod.web.recorded_stages import StageList
from tokiod.web.views import DayList, GapList, Systems, Views

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokiod.web.query import Parameter
    from tokiod.web.refusal import ErrorType
    from tokiod.web.views import Parameters

JSON_TYPE, EVENTS_TYPE, TEXT_TYPE = "application/json", "text/event-stream", "text/plain"
MATRIX_TYPE = "application/vnd.tokiod.matrix"

EVERYWHERE = (refusal.UNKNOWN_PARAMETER, refusal.BAD_PARAMETER, refusal.FORBIDDEN_HOST, refusal.METHOD_NOT_ALLOWED, refusal.INTERNAL_ERROR)
_READ = (refusal.TOO_MANY_REQUESTS, refusal.BUSY, refusal.ARCHIVE_UNREADABLE)
_SPAN = (*_READ, refusal.MISSING_PARAMETER, refusal.SPAN_TOO_LONG)
_PICTURE = (
    *_SPAN, refusal.UNKNOWN_SYSTEM, refusal.UNKNOWN_DATASET, refusal.NO_DATA, refusal.STEP_CHANGED, refusal.TOO_MANY_CELLS,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Operation:
    """A path. name: in programs that are generated from the document; answer: the type of a JSON answer, None for bytes and text.

    view: what makes a JSON answer, None where the server does; is_limited: whether each client may send only so many requests; has_tag:
    whether answers have an ETag.
    """

    path: str
    name: str
    summary: str
    parameters: tuple[Parameter, ...] = ()
    errors: tuple[ErrorType, ...] = ()
    answer: Any = None
    view: Callable[[Views, Parameters], Any] | None = None
    content_type: str = JSON_TYPE
    is_limited: bool = True
    has_tag: bool = False

    @property
    def all_errors(self) -> tuple[ErrorType, ...]:
        """The errors of this path and those of every path."""
        return (*EVERYWHERE, *self.errors)


OPERATIONS = (
    Operation(
        "/api/v1/systems", "systems", "The systems with their datasets, and the status of each source.",
        (), _READ, Systems, lambda views, _: views.systems(),
    ),
    Operation(
        "/api/v1/matrix", "matrix", "A picture of a dataset: two bytes per pixel and target, by the grammar in docs/web.md.",
        query.PICTURE, _PICTURE, content_type=MATRIX_TYPE, has_tag=True,
    ),
    Operation(
        "/api/v1/line", "line", "The largest value of one target, or of all of them together, in each pixel.",
        query.LINE, (*_PICTURE, refusal.UNKNOWN_COLUMN), Line, Views.line,
    ),
    Operation(
        "/api/v1/points", "points", "The same as a list of points with times in milliseconds, for Grafana and other charts.",
        query.LINE, (*_PICTURE, refusal.UNKNOWN_COLUMN), list[Point], Views.points,
    ),
    Operation(
        "/api/v1/gaps", "gaps", "What is due and not stored, and why, at most 10,000 gaps.",
        query.GAPS, (*_SPAN, refusal.UNKNOWN_SOURCE), GapList, Views.gaps,
    ),
    Operation(
        "/api/v1/days", "days", "The days of the site, and how much of each is stored, source by source.",
        query.DAYS, (*_SPAN, refusal.UNKNOWN_SYSTEM), DayList, Views.days,
    ),
    Operation(
        "/api/v1/stages", "stages", "Where the time of windows and rewritten files went, as in `tokioctl stages --json`.",
        query.STAGES, (*_READ, refusal.UNKNOWN_SOURCE), StageList, Views.stages,
    ),
    Operation(
        "/api/v1/jobs", "jobs", "The jobs or users with the largest rates in a span, from the job table, as in `tokioctl top --json`.",
        query.JOBS,
        (
            *_SPAN, refusal.UNKNOWN_SYSTEM, refusal.NO_JOB_TABLE, refusal.NO_DATA, refusal.UNKNOWN_OPERATION, refusal.UNKNOWN_TARGET,
            refusal.TOO_MANY_ROWS, refusal.USERS_NOT_SHOWN,
        ),
        JobList, Views.jobs,
    ),
    Operation(
        "/api/v1/events", "events", "Server-sent events of what is stored, without the cells, by the table in docs/web.md.",
        query.EVENTS, (refusal.TOO_MANY_REQUESTS, refusal.TOO_MANY_STREAMS, refusal.TOO_MANY_VIEWERS), content_type=EVENTS_TYPE,
    ),
    Operation("/api/v1/openapi.json", "document", "This document.", answer=dict[str, Any], is_limited=False),
    Operation(
        "/healthz", "health", 'Whether the archive can be read: "alive", or "degraded: " and the reason.',
        errors=(refusal.BUSY,), content_type=TEXT_TYPE, is_limited=False,
    ),
    Operation("/metrics", "metrics", "The metrics of this process, for Prometheus.", content_type=TEXT_TYPE, is_limited=False),
)  # fmt: skip
