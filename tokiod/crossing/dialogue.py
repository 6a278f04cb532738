"""The messages with which one process asks another for windows: one frame of JSON, distinguished by "type"; the arrays of Data follow it.

    asks      Collect, Count         for a window of a source, and how many records it has
              Cancel, Stored, Close  need no answer
    answers   Data                   a part of a window, see tokiod.crossing.parts
              Counted, Failed

Only what was asked for has an effect. Requests are numbered by the process that asks. A lane is one collector of a source: live polling,
each part of a backfill, and recounts have one each.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from tokiod.batch import Count as Number  # noqa: TC001 - msgspec reads annotations
from tokiod.window_result import Outcome  # noqa: TC001 - as above

VERSION = 3
"""Of the dialogue and of the encoding of windows. Processes of two versions don't understand each other."""

MAX_TEXT = 4000
Text = Annotated[str, msgspec.Meta(max_length=MAX_TEXT)]


class Collect(msgspec.Struct, frozen=True, tag="collect"):
    """Ask for a window. kind, system: of the source; datasets: only these, None for all; seconds: time limit."""

    id: int
    source: str
    lane: int
    start: int
    end: int
    seconds: float
    kind: str
    system: str
    datasets: tuple[str, ...] | None = None


class Count(msgspec.Struct, frozen=True, tag="count"):
    """Ask how many records a source has for a window."""

    id: int
    source: str
    lane: int
    start: int
    end: int
    seconds: float


class Stored(msgspec.Struct, frozen=True, tag="stored"):
    """A window of a lane is stored."""

    source: str
    lane: int
    start: int
    end: int


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """The answer to a request is no longer wanted."""

    id: int


class Close(msgspec.Struct, frozen=True, tag="close"):
    """A lane ends."""

    source: str
    lane: int


class Data(msgspec.Struct, frozen=True, tag="data"):
    """A part of a window that was asked for; its frames follow."""

    attempt: ClassVar[int] = 1

    id: int
    part: Number
    parts: Number


class Counted(msgspec.Struct, frozen=True, tag="counted"):
    """How many records a source has for a window, None where it can't count."""

    id: int
    records: int | None


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """A request failed. outcome: the kind of failure, as tokiod.runtime.backoff names it; ended_at: as in Transient."""

    id: int
    outcome: Outcome
    message: Text
    ended_at: int | None = None


Asked = Collect | Count | Cancel | Stored | Close
Answer = Data | Counted | Failed

encode = msgspec.json.encode
