"""Messages of the inner bus next to the windows: one frame of JSON each, distinguished by "type".

    collector -> writer   Hello                    identifies the process; repeated every second or so, so that silence means something
                          Part                     of a window; its frames follow, see tokiod.crossing.parts
    writer -> collector   Welcome                  the epoch of this run of the writer; it knows no earlier parts: send all windows now
                          Refused                  the collector is of another version
                          Ack, Reject              a window is in the file, synced, and in the ledger; or it is not, and why
                          Beat                     a sign of life

Only an Ack counts. Other messages that are lost, repeated or late change nothing: that the ledger has lost windows and must be read again
is a number in each Welcome and Beat, because a message of its own could go to a connection that is being replaced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import msgspec

from tokiod.batch import Count, Extent, Second  # noqa: TC001 - msgspec reads annotations
from tokiod.crossing.dialogue import VERSION
from tokiod.crossing.names import Name, check_names
from tokiod.errors import Malformed, Refusal
from tokiod.window import Window
from tokiod.window_data import WindowMeta

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tokiod.crossing.codec import Frame


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """A collector process on a new connection. connection: counts up, so that the newest one is known however late another is read.

    sender: bounded, because the writer keeps it for a while after the connection has ended.
    """

    sender: Name
    connection: int
    version: int = VERSION


class Part(msgspec.Struct, frozen=True, tag="part"):
    """A part of an attempt at a window of a source."""

    source: Name
    kind: Name
    system: Name
    start: Second
    end: Second
    extent: Extent
    attempt: Count
    part: Count
    parts: Count

    @classmethod
    def of(cls, meta: WindowMeta, attempt: int, part: int = 0, parts: int = 1) -> Self:
        """Return the part of a window. Raises Malformed for names that the writer would not take."""
        check_names(meta.source, meta.kind, meta.system)
        return cls(meta.source, meta.kind, meta.system, meta.window.start, meta.window.end, meta.extent, attempt, part, parts)

    def meta(self, records: int | None, dropped: Mapping[str, int]) -> WindowMeta:
        """Return the metadata of the window."""
        return WindowMeta(self.source, self.kind, self.system, Window(self.start, self.end), records, dropped, self.extent)


class Welcome(msgspec.Struct, frozen=True, tag="welcome"):
    """The answer to the first Hello of a connection; a second Welcome means that the writer had forgotten the connection.

    reloads: as in Beat.
    """

    epoch: str
    reloads: int = 0


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """A Hello is refused, for a reason in a sentence."""

    epoch: str
    reason: str


class Ack(msgspec.Struct, frozen=True, tag="ack"):
    """An attempt at a window is stored durably. cells: assigned; dropped: cells that were not, by reason."""

    epoch: str
    source: str
    start: int
    end: int
    attempt: int
    cells: int
    dropped: dict[str, int]


class Reject(msgspec.Struct, frozen=True, tag="reject"):
    """An attempt at a window is not stored. retry: whether the same window may be stored later; later: its file is just being created."""

    epoch: str
    source: str
    start: int
    end: int
    attempt: int
    message: str
    retry: bool
    later: bool = False

    @classmethod
    def of(cls, epoch: str, head: Part, refusal: Refusal) -> Self:
        """Return the message that refuses the window of a part."""
        when = refusal.when
        return cls(epoch, head.source, head.start, head.end, head.attempt, refusal.message, when != "never", when == "busy")

    @property
    def refusal(self) -> Refusal:
        """The refusal that the message carries."""
        return Refusal(self.message, "busy" if self.later else "retry" if self.retry else "never")


class Beat(msgspec.Struct, frozen=True, tag="beat"):
    """A sign of life. reloads: how often in this epoch the ledger has lost windows, which may have to be collected again."""

    epoch: str
    reloads: int = 0


FromCollector = Hello | Part
FromWriter = Welcome | Refused | Ack | Reject | Beat

encode = msgspec.json.encode
_from_collector: msgspec.json.Decoder[FromCollector] = msgspec.json.Decoder(FromCollector)
_from_writer: msgspec.json.Decoder[FromWriter] = msgspec.json.Decoder(FromWriter)


def decode_from_collector(frame: Frame) -> FromCollector:
    """Decode a message from a collector. Raises Malformed."""
    try:
        message = _from_collector.decode(frame)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed("control", str(error)) from None
    if isinstance(message, Part):
        check_names(message.source, message.kind, message.system)
    return message


def decode_from_writer(frame: Frame) -> FromWriter:
    """Decode a message from the writer. Raises Malformed."""
    try:
        return _from_writer.decode(frame)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed("control", str(error)) from None
