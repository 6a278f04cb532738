"""The messages between agents and their hub: JSON, [version, message]. One that is longer than MAX_PART_BYTES comes in parts.

    hello   agent   {"type": "hello", "node", "session", "tokiod", "step", "since", "metrics": [[name, unit, kind], ...]}
                    "job_metrics": the same for jobs
    row     agent   {"type": "row", "node", "session", "start", "time", "ahead", "values": [...] or null, "dropped": {reason: count}}
                    "jobs": [[job, begin or null, time, has ended, [values]], ...], "examples": {reason: what was dropped} or none
    ask     hub     {"type": "ask", "start", "end", "time", "within"}
    refuse  hub     {"type": "refuse", "reason"}

Times are UTC epoch seconds, of the sender's clock. `values` has one number or null for each metric of the hello, null
as a whole where the agent has no such row. `ahead` is the agent's time when the ask arrived, minus the hub's in the ask. `jobs` has the
jobs of the row, with one number or null for each of the job metrics: the last value of a counter since `begin` (null where that is
unknown), the largest of a gauge in the row; `time` is that of the last sample.

A part is `part NUMBER OF` in ASCII and a newline, then its bytes; the parts of a message follow each other, from 0 on. So the hub takes
little from a connection whose key it does not know yet, and cuts what a key may cost.

The version grows when a reader of the older one would misunderstand. A reader ignores fields that it does not know. The hub knows the
current version and the one before, and answers in that of the agent's hello.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokiod.agent.sensor import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any, Union

    from tokiod.agent.metric import Metric, Value

    JobRow = tuple[str, Union[float, None], float, bool, list[Union[Value, None]]]

VERSION = 1
MAX_PART_BYTES = 60_000
MAX_FRAME_BYTES = 64 << 10
"""Of a message or a part of one, encrypted, on the wire."""
MAX_PARTS = 35
"""Of a message: 2 MB. The hello of 170 metrics has 6 KB, a row 3 KB, and 0.3 KB for each job."""
MAX_JOBS = 2000
"""Of a row."""
MAX_NODE_CHARACTERS, MAX_SESSION_CHARACTERS, MAX_JOB_CHARACTERS = 128, 64, 160


@dataclass(frozen=True)
class Ask:
    """The hub asks for the rows that begin in [start, end). `within`: seconds over which answers are spread; `time`: the hub's."""

    start: int
    end: int
    time: float
    within: float


@dataclass(frozen=True)
class Refused:
    """The hub gives this agent no windows, for this reason."""

    reason: str


def hello(  # noqa: PLR0913, PLR0917 - the fields of the message
    node: str, session: str, tokiod: str, step: int, since: int, metrics: Iterable[Metric], job_metrics: Iterable[Metric] = ()
) -> bytes:
    """Return the first message of a connection. since: the start of the oldest row in memory."""
    declared = {
        name: [[metric.name, metric.unit, metric.kind] for metric in of]
        for name, of in (("metrics", metrics), ("job_metrics", job_metrics))
    }
    return _encode({"type": "hello", "node": node, "session": session, "tokiod": tokiod, "step": step, "since": since, **declared})


def row(  # noqa: PLR0913, PLR0917 - the fields of the message
    node: str, session: str, start: int, time: float, ahead: float, values: Sequence[Value | None] | None, dropped: Mapping[str, int],
    jobs: Sequence[JobRow] = (), examples: Mapping[str, str] | None = None,
) -> bytes:  # fmt: skip
    """Return the answer for one row; without values where the agent has no such row. jobs: at most MAX_JOBS."""
    message = {"type": "row", "node": node, "session": session, "start": start, "time": time, "ahead": ahead, "values": values}
    return _encode({**message, "dropped": dict(dropped), "jobs": jobs, **({"examples": dict(examples)} if examples else {})})


def parts(message: bytes) -> list[bytes]:
    """Return a message as the frames that are sent."""
    if len(message) <= MAX_PART_BYTES:
        return [message]
    cut = [message[at : at + MAX_PART_BYTES] for at in range(0, len(message), MAX_PART_BYTES)]
    return [b"part %d %d\n" % (number, len(cut)) + one for number, one in enumerate(cut)]


def from_hub(message: bytes) -> Ask | Refused:
    """Decode a message of the hub. Raise ValueError for one that is malformed or of another version."""
    try:
        version, fields = json.loads(message)
        if version != VERSION:
            raise ValueError(f"the hub speaks version {version!r}, this agent version {VERSION}")
        if fields["type"] == "refuse":
            return Refused(clean(str(fields["reason"])))
        if fields["type"] != "ask":
            raise ValueError(f"unknown message {fields['type']!r}")
        return Ask(int(fields["start"]), int(fields["end"]), float(fields["time"]), float(fields["within"]))
    except (TypeError, KeyError, RecursionError, OverflowError) as error:
        raise ValueError(f"malformed message: {type(error).__name__}: {error}") from None


def _encode(message: Mapping[str, Any]) -> bytes:
    return json.dumps([VERSION, message], separators=(",", ":"), allow_nan=False).encode()
