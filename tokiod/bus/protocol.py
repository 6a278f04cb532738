"""What the two ends of the inner bus say beside the windows themselves: one frame of JSON, told apart by "type".

    collector -> writer   Hello                    who I am; said again every second or so, so that silence means something
                          windows, piece by piece  tokiod.batch, with a Piece
    writer -> collector   Welcome                  the epoch of this run of the writer; whatever came before is forgotten, send it now
                          Ack, Reject              a window is in the file, synced, and in the ledger; or it is not, and why
                          Beat                     I am alive
                          Reload                   what the ledger says has changed: read it again

Only an Ack counts. Whatever else is lost, repeated or late changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import msgspec

from tokiod.errors import Malformed, Refusal

if TYPE_CHECKING:
    from tokiod.bus.wire import Frame, Piece

VERSION = 1


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """A collector process on a fresh connection. connection: counts up, so that the newest one is known however late another is read."""

    sender: str
    connection: int
    version: int = VERSION


class Welcome(msgspec.Struct, frozen=True, tag="welcome"):
    """The answer to the first Hello of a connection; a second Welcome says that the writer had given the connection up."""

    epoch: str


class Ack(msgspec.Struct, frozen=True, tag="ack"):
    """An attempt at a window is stored for good. cells: assigned; dropped: cells that were not, by reason."""

    epoch: str
    source: str
    start: int
    end: int
    attempt: int
    cells: int
    dropped: dict[str, int]


class Reject(msgspec.Struct, frozen=True, tag="reject"):
    """An attempt at a window is not stored. retry: whether the same window may be stored later; later: its file is just being made."""

    epoch: str
    source: str
    start: int
    end: int
    attempt: int
    message: str
    retry: bool
    later: bool = False

    @classmethod
    def of(cls, epoch: str, piece: Piece, refusal: Refusal) -> Self:
        """Return the message that refuses the window of a piece."""
        when = refusal.when
        return cls(epoch, piece.source, piece.start, piece.end, piece.attempt, refusal.message, when != "never", when == "busy")

    @property
    def refusal(self) -> Refusal:
        """The refusal that the message carries."""
        return Refusal(self.message, "busy" if self.later else "retry" if self.retry else "never")


class Beat(msgspec.Struct, frozen=True, tag="beat"):
    """A sign of life."""

    epoch: str


class Reload(msgspec.Struct, frozen=True, tag="reload"):
    """The ledger holds less than it did: windows may have to be collected again."""

    epoch: str


FromWriter = Welcome | Ack | Reject | Beat | Reload

encode = msgspec.json.encode
_hello = msgspec.json.Decoder(Hello).decode
_from_writer: msgspec.json.Decoder[FromWriter] = msgspec.json.Decoder(FromWriter)


def decode_hello(frame: Frame) -> Hello:
    """Read what a collector says. Raises Malformed."""
    try:
        hello = _hello(frame)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed("control", str(error)) from None
    if hello.version != VERSION:
        raise Malformed("version", f"a collector that speaks version {hello.version}, expected {VERSION}")
    return hello


def decode_from_writer(frame: Frame) -> FromWriter:
    """Read what the writer says. Raises Malformed."""
    try:
        return _from_writer.decode(frame)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed("control", str(error)) from None
