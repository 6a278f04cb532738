"""The messages of agents, decoded and checked: any client with a key may send anything. tokiod.agent.wire describes them."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec

from tokiod.agent import wire

VERSIONS = (wire.VERSION - 1, wire.VERSION)
"""Of the wire, that this hub understands."""

Name = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9_.-]*\Z", max_length=wire.MAX_NODE_CHARACTERS)]
Session = Annotated[str, msgspec.Meta(pattern=r"\A[!-~]+\Z", max_length=wire.MAX_SESSION_CHARACTERS)]
Text = Annotated[str, msgspec.Meta(max_length=200)]
JobName = Annotated[str, msgspec.Meta(pattern=r"\A[^\x00-\x1f\x7f]+\Z", max_length=wire.MAX_JOB_CHARACTERS)]
Second = Annotated[int, msgspec.Meta(ge=0, lt=2**40)]
MAX_METRICS = 1000
UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding raises for a frame of any bytes; msgspec has no error of its own for a text that is not UTF-8."""


class Hello(msgspec.Struct, tag="hello", frozen=True):
    """An agent greets; see tokiod.agent.wire."""

    node: Name
    session: Session
    tokiod: Text
    step: Annotated[int, msgspec.Meta(ge=1, le=86400)]
    since: Second
    metrics: Annotated[tuple[tuple[Text, Text, Text], ...], msgspec.Meta(max_length=MAX_METRICS)]
    job_metrics: Annotated[tuple[tuple[Text, Text, Text], ...], msgspec.Meta(max_length=MAX_METRICS)] = ()


class JobRow(msgspec.Struct, array_like=True, frozen=True):
    """A job of a row."""

    job: JobName
    begin: float | None
    time: float
    has_ended: bool
    values: Annotated[list[float | None], msgspec.Meta(max_length=MAX_METRICS)]


class Row(msgspec.Struct, tag="row", frozen=True):
    """An agent answers for one row."""

    node: Name
    session: Session
    start: Second
    time: float
    ahead: float
    values: Annotated[list[float | None], msgspec.Meta(max_length=MAX_METRICS)] | None = None
    dropped: Annotated[dict[Text, Annotated[int, msgspec.Meta(ge=0)]], msgspec.Meta(max_length=200)] = {}
    jobs: Annotated[tuple[JobRow, ...], msgspec.Meta(max_length=wire.MAX_JOBS)] = ()
    examples: Annotated[dict[Text, Text], msgspec.Meta(max_length=200)] = {}


_version = msgspec.json.Decoder(tuple[int, msgspec.Raw])
_message = msgspec.json.Decoder(Hello | Row)


_PART = re.compile(rb"part (\d{1,2}) (\d{1,2})\n")


class Parts:
    """Joins the parts of a node's messages, as tokiod.agent.wire cuts them."""

    def __init__(self) -> None:
        self._joined: list[bytes] = []
        self._of = 0

    def joined(self, frame: bytes) -> bytes | None:
        """Return a message, None while parts of it are to come. Raises ValueError for a part that does not follow the one before."""
        if (found := _PART.match(frame)) is None:
            self._joined = []
            return frame
        number, of = int(found[1]), int(found[2])
        if number == 0:
            self._joined, self._of = [], of
        if number != len(self._joined) or of != self._of or not number < of <= wire.MAX_PARTS:
            self._joined = []
            raise ValueError(f"part {number} of {of}, expected part {len(self._joined)} of {self._of}")
        self._joined.append(frame[found.end() :])
        if number + 1 < of:
            return None
        whole, self._joined = b"".join(self._joined), []
        return whole


def decode(frame: bytes) -> tuple[int, Hello | Row | None]:
    """Return the version of a message, and the message; None for one of an unknown version. Raises UNDECODABLE."""
    version, raw = _version.decode(frame)
    return version, _message.decode(raw) if version in VERSIONS else None


def ask(version: int, start: int, end: int, time: float, within: float) -> bytes:
    """Encode the request for the rows of [start, end), answered within so many seconds."""
    return msgspec.json.encode([version, {"type": "ask", "start": start, "end": end, "time": time, "within": within}])


def refuse(version: int, reason: str) -> bytes:
    """Encode why an agent gets no windows."""
    return msgspec.json.encode([version, {"type": "refuse", "reason": reason}])
