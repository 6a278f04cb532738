"""The stages as a trace in Chrome's trace-event format, which Perfetto and chrome://tracing open.

Each window and file is a nestable asynchronous event, because windows of one source overlap: the outer one is the window, those within are
its stages, each in the process that worked: an id that is local to its process keeps them there. A source is a thread. What is open has a
begin and no end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokiod.reports.stages import WRITER_STAGES
from tokiod.window import iso

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokiod.reports.stages import StagedWork, StageSpan

COLLECTORS, WRITER = 1, 2
PROCESSES = {COLLECTORS: "collectors", WRITER: "writer"}
Event = dict[str, Any]


def trace(works: list[StagedWork]) -> dict[str, Any]:
    """Return the trace as what JSON encodes. Times are UTC, in microseconds."""
    threads = {name: number for number, name in enumerate(sorted({work.name for work in works}), start=1)}
    events = [_metadata("process_name", process, 0, name) for process, name in PROCESSES.items()]
    events += [_metadata("thread_name", process, number, name) for process in PROCESSES for name, number in threads.items()]
    for number, work in enumerate(works, start=1):
        events += _work(work, number, threads[work.name])
    return {"displayTimeUnit": "ms", "traceEvents": events}


def _metadata(kind: str, process: int, thread: int, name: str) -> Event:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}


def _work(work: StagedWork, number: int, thread: int) -> Iterator[Event]:
    """Yield the events of a window or file: each stage ends when the next one begins."""
    home, name = COLLECTORS if work.kind == "window" else WRITER, f"{work.name} {iso(work.start)}"
    where: Event = {"cat": work.kind, "id2": {"local": hex(number)}, "tid": thread}
    about = {"state": work.state, "window": f"{iso(work.start)} - {iso(work.end)}", "bytes": work.nbytes}
    ends = [span.start for span in work.stages[1:]] + [_end(work.stages[-1])]
    yield {"ph": "b", "name": name, "pid": home, "ts": work.began * 1e6, **where, "args": about}
    for span, end in zip(work.stages, ends, strict=True):
        yield from _span(span, end, where | {"pid": WRITER if span.stage in WRITER_STAGES else home})
    if work.feed is not None:
        yield from _span(work.feed, _end(work.feed), where | {"pid": WRITER})
    if not work.stages[-1].open:
        yield {"ph": "e", "name": name, "pid": home, "ts": ends[-1] * 1e6, **where}


def _span(span: StageSpan, end: float, where: Event) -> Iterator[Event]:
    yield {"ph": "b", "name": span.stage, "ts": span.start * 1e6, **where}
    if not span.open:
        yield {"ph": "e", "name": span.stage, "ts": end * 1e6, **where}


def _end(span: StageSpan) -> float:
    return span.start + span.seconds
