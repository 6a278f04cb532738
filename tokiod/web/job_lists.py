"""Lists of the jobs with the largest rates in a span. Reading the job table takes a core for seconds, so one list at a time is read."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import msgspec

from tokiod.analysis.top import NoSuchOperation, NoSuchTarget, Top, top
from tokiod.job_columns import kind_for
from tokiod.jobs.rows import table_files
from tokiod.reader.span import Span
from tokiod.web.kept_answers import KeptAnswers
from tokiod.web.query import MAX_SPAN_SECONDS, span
from tokiod.web.refusal import (
    BUSY,
    NO_DATA,
    NO_JOB_TABLE,
    TOO_MANY_ROWS,
    UNKNOWN_OPERATION,
    UNKNOWN_TARGET,
    USERS_NOT_SHOWN,
    Refused,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping
    from pathlib import Path

    from tokiod.jobs.identity import Users
    from tokiod.jobs.span import Days

MAX_FILE_BYTES = 512 << 20
"""Of the files of a span that one answer is made of: some 20 million rows."""
KEPT_BYTES = 4 << 20
MINUTE = 60


class JobList(Top, frozen=True):
    """A list as `tokioctl top --json` prints it. users: what is shown of them: names, hashed, or no."""

    users: str = "no"


class JobLists:
    """The lists of one archive, for several threads. They are kept until a file changes that they are made of."""

    def __init__(self) -> None:
        self._kept, self._reading = KeptAnswers(KEPT_BYTES), threading.Lock()

    def of(self, days: Days, users: Users, given: Mapping[str, str], now: float) -> msgspec.Raw:
        """Return a JobList, encoded. The span is made of whole minutes, so that viewers of the present share it. Raises Refused."""
        if given["of"] == "user" and users == "no":
            raise Refused(USERS_NOT_SHOWN, "this site shows no users here: see [jobs] users_in", "of")
        wanted = _whole_minutes(span(given, now, MAX_SPAN_SECONDS), days)
        state = _state(days, wanted)
        key = repr((wanted, [given[name] for name in ("system", "by", "of", "target", "limit")], users, state))

        def made() -> bytes:
            if not self._reading.acquire(blocking=False):
                raise Refused(BUSY, "another list of jobs is being read; try again")
            try:
                return _encoded(days, wanted, given, users)
            finally:
                self._reading.release()

        return msgspec.Raw(_with_newest(self._kept.get(key, made), days.newest() or 0))


def _encoded(days: Days, wanted: Span, given: Mapping[str, str], users: Users) -> bytes:
    of: Any = given["of"]
    try:
        found = top(days, wanted, given["by"], users, of=of, limit=int(given["limit"]), targets=given["target"])
    except NoSuchOperation as error:
        raise Refused(UNKNOWN_OPERATION, str(error), "by") from None
    except NoSuchTarget as error:
        raise Refused(UNKNOWN_TARGET, str(error), "target") from None
    return msgspec.json.encode(JobList(**{name: getattr(found, name) for name in found.__struct_fields__}, users=users))


def _with_newest(kept: bytes, newest: int) -> bytes:
    """Return a list with the end of the newest window, which may have come since it was made."""
    found = msgspec.json.decode(kept, type=JobList)
    return kept if found.newest == newest else msgspec.json.encode(msgspec.structs.replace(found, newest=newest))


def _whole_minutes(wanted: Span, days: Days) -> Span:
    """Return the minutes of a span that the table has. Raises Refused."""
    if (newest := days.newest()) is None:
        raise Refused(
            NO_JOB_TABLE, f"{days.system} has no job table: a source of kind {kind_for(days.system)} fills it (docs/jobs.md)", "system"
        )
    start, end = wanted.start // MINUTE * MINUTE, min(-(-wanted.end // MINUTE) * MINUTE, newest)
    if start >= end or not days.of(start, end):
        raise Refused(NO_DATA, f"the job table of {days.system} has no window in {wanted}", "start")
    return Span(start, end)


def _state(days: Days, wanted: Span) -> Hashable:
    """Return what changes with each file that a list is made of. Raises Refused for files of the span that are too large."""
    # A window before the span that comes late is where a count begins. Of the days before it, the time of their directories shows one.
    near, size = set(days.of(wanted.start, wanted.end)), 0
    found: list[Hashable] = [(path, *_stamp(path)[1:]) for path in days.of(0, wanted.start) if path not in near]
    for file in (file for directory in sorted(near) for file in table_files(directory) if file.may_have(0, wanted.end)):
        nbytes, changed = _stamp(file.path)
        found.append((file.path.name, nbytes, changed))
        size += nbytes if file.may_have(wanted.start, wanted.end) else 0
    if size > MAX_FILE_BYTES:
        limit = f"at most {MAX_FILE_BYTES >> 20} MiB are read"
        raise Refused(
            TOO_MANY_ROWS, f"the files of the job table in {wanted} have {size >> 20} MiB; {limit}: ask for a shorter span", "end"
        )
    return tuple(found)


def _stamp(path: Path) -> tuple[int, int]:
    """Return the size of a file or directory and the time of its last change; zeros of one that was merged or removed since."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return 0, 0
    return found.st_size, found.st_mtime_ns
