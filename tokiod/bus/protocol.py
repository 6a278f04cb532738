"""Messages of the inner bus next to the windows: one frame of JSON each, distinguished by "type".

    collector -> writer   Hello                    identifies the process; repeated every second or so, so that silence means something
                          windows, piece by piece  tokiod.bus.wire, with a Piece
    writer -> collector   Welcome                  the epoch of this run of the writer; it knows no earlier pieces: send all windows now
                          Ack, Reject              a window is in the file, synced, and in the ledger; or it is not, and why
                          Beat                     a sign of life

Only an Ack counts. Other messages that are lost, repeated or late change nothing: that the ledger has lost windows and must be read again
is a number in each Welcome and Beat, because a message of its own could go to a connection that is being replaced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import msgspec

from tokiod.bus.header import Name  # noqa: TC001 - msgspec reads annotations
from tokiod.errors import Malformed, Refusal

if TYPE_CHECKING:
    from tokiod.bus.header import Frame, Piece

TABLES = 2
"""The version of the wire from which on windows hold rows of tables."""
VERSION = TABLES
VERSIONS = (1, VERSION)
"""This version of the wire and the one before, which processes of two versions of tokiod speak during an upgrade. It grows when a process
of the version before would misunderstand a message; fields that a process does not know are ignored."""


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """A collector process on a new connection. connection: counts up, so that the newest one is known however late another is read.

    version: of the wire. A writer that does not speak it is silent, so a collector offers its versions in turn. sender: bounded, because
    the writer keeps it for a while after the connection has ended.
    """

    sender: Name
    connection: int
    version: int = VERSION


class Welcome(msgspec.Struct, frozen=True, tag="welcome"):
    """The answer to the first Hello of a connection; a second Welcome means that the writer had forgotten the connection.

    reloads: as in Beat; version: of the wire, as the Hello offered it.
    """

    epoch: str
    reloads: int = 0
    version: int = 1


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
    def of(cls, epoch: str, piece: Piece, refusal: Refusal) -> Self:
        """Return the message that refuses the window of a piece."""
        when = refusal.when
        return cls(epoch, piece.source, piece.start, piece.end, piece.attempt, refusal.message, when != "never", when == "busy")

    @property
    def refusal(self) -> Refusal:
        """The refusal that the message carries."""
        return Refusal(self.message, "busy" if self.later else "retry" if self.retry else "never")


class Beat(msgspec.Struct, frozen=True, tag="beat"):
    """A sign of life. reloads: how often in this epoch the ledger has lost windows, which may have to be collected again."""

    epoch: str
    reloads: int = 0


FromWriter = Welcome | Ack | Reject | Beat

encode = msgspec.json.encode
_hello = msgspec.json.Decoder(Hello).decode
_from_writer: msgspec.json.Decoder[FromWriter] = msgspec.json.Decoder(FromWriter)


def decode_hello(frame: Frame) -> Hello:
    """Decode a message from a collector. Raises Malformed."""
    try:
        hello = _hello(frame)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed("control", str(error)) from None
    if hello.version not in VERSIONS:
        raise Malformed("version", f"a collector with version {hello.version}, expected {' or '.join(map(str, VERSIONS))}")
    return hello


def decode_from_writer(frame: Frame) -> FromWriter:
    """Decode a message from the writer. Raises Malformed."""
    try:
        return _from_writer.decode(frame)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed("control", str(error)) from None
