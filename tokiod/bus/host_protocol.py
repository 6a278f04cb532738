"""Messages between the writer's host and the other hosts: one frame of JSON each, distinguished by "type".

    host -> daemon   Hello        names the host and its process; on each connection until the Welcome
                     Alive        the answer to each Beat: a sign of life, and the host's clock
                     Answered     a window is collected; its pieces follow, each a message of tokiod.bus.wire
                     Counted, Failed   the answers to a Count, and to a request that failed
                     Goodbye      the host's process ends
    daemon -> host   Welcome, Refused  the answers to a Hello
                     Beat         a sign of life, and the daemon's clock
                     Collect, Count    ask for a window of a source
                     Stored, Cancel, Close   need no answer

The daemon asks and the host answers: a window that was not asked for has no effect. So a host can deliver only what the daemon asked its
own key for. Requests are numbered by the daemon; the number of a Collect is the `attempt` of its pieces.
A lane is one collector of a source on the host: live polling, each part of a backfill and recounts have one each, as on one machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from tokiod.bus.protocol import TABLES, VERSION, VERSIONS
from tokiod.dropped import Why  # noqa: TC001 - msgspec reads annotations
from tokiod.errors import Malformed
from tokiod.window_result import Outcome  # noqa: TC001 - msgspec reads annotations

if TYPE_CHECKING:
    from tokiod.bus.header import Frame

__all__ = ["TABLES", "VERSION", "VERSIONS"]

Short = Annotated[str, msgspec.Meta(max_length=200)]
Text = Annotated[str, msgspec.Meta(max_length=4000)]


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """A process of a host. session: of this process; tokiod: its version; sources: that its configuration gives it."""

    host: Short
    session: Short
    version: int
    tokiod: Short
    sources: tuple[Short, ...] = ()


class Alive(msgspec.Struct, frozen=True, tag="alive"):
    """The answer to a Beat. time: the host's clock, UTC epoch seconds; echo: the time of the Beat."""

    time: float
    echo: float


class Answered(msgspec.Struct, frozen=True, tag="answered"):
    """A window is collected. trouble, why: as in WindowData."""

    id: int
    trouble: Text = ""
    why: Annotated[dict[Text, Why], msgspec.Meta(max_length=200)] = {}


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


class Goodbye(msgspec.Struct, frozen=True, tag="goodbye"):
    """The process ends."""


class Welcome(msgspec.Struct, frozen=True, tag="welcome"):
    """A connection is accepted. version: of the wire that both speak; epoch: this run of the daemon, which knows no earlier lanes."""

    version: int
    epoch: str


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """A Hello is refused. versions: of the wire that the daemon speaks."""

    reason: str
    versions: tuple[int, ...]


class Beat(msgspec.Struct, frozen=True, tag="beat"):
    """A sign of life. time: the daemon's clock; echo, held: the time of the host's last Alive, and seconds since it came; None before."""

    time: float
    echo: float | None = None
    held: float = 0.0


class Collect(msgspec.Struct, frozen=True, tag="collect"):
    """Ask for a window. datasets: only these, None for all; seconds: time limit."""

    id: int
    source: str
    lane: int
    start: int
    end: int
    seconds: float
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


FromHost = Hello | Alive | Answered | Counted | Failed | Goodbye
ToHost = Welcome | Refused | Beat | Collect | Count | Stored | Cancel | Close
Answer = Answered | Counted | Failed

encode = msgspec.json.encode
_from_host: msgspec.json.Decoder[FromHost] = msgspec.json.Decoder(FromHost)
_to_host: msgspec.json.Decoder[ToHost] = msgspec.json.Decoder(ToHost)
_FAILURES = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def decode_from_host(frame: Frame) -> FromHost:
    """Decode a message of a host. Raises Malformed."""
    try:
        return _from_host.decode(frame)
    except _FAILURES as error:
        raise Malformed("control", str(error)) from None


def decode_to_host(frame: Frame) -> ToHost:
    """Decode a message of the daemon. Raises Malformed."""
    try:
        return _to_host.decode(frame)
    except _FAILURES as error:
        raise Malformed("control", str(error)) from None
