"""Messages with fields for systemd's journal, by its native protocol: one datagram of KEY=value lines.

`journalctl --unit tokiod TOKIOD_EVENT=window.failed TOKIOD_SOURCE=cscratch-lmt` finds them by field.
See https://systemd.io/JOURNAL_NATIVE_PROTOCOL/.
"""

from __future__ import annotations

import logging
import re
import socket
import struct
from typing import Any

from tokiod.runtime.secrets import mask

JOURNAL_SOCKET = "/run/systemd/journal/socket"
IDENTIFIER = "tokiod"
_PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
_OWN = {"event", "level", "timestamp", "exc_info"}


def priority(level: int) -> int:
    """Return the syslog priority of a level."""
    return next((number for least, number in _PRIORITIES if level >= least), 7)


class JournalHandler(logging.StreamHandler[Any]):
    """Sends each event to the journal; what the journal does not take, such as a very long message, goes to stderr, which it reads too."""

    def emit(self, record: logging.LogRecord) -> None:
        """Send one event."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as journal:
                journal.setblocking(False)
                journal.sendto(self._datagram(record), JOURNAL_SOCKET)
        except OSError:
            super().emit(record)
        except Exception:  # noqa: BLE001 - as in each handler of logging: an event that can't be formatted must not end its process
            self.handleError(record)

    def _datagram(self, record: logging.LogRecord) -> bytes:
        message = self.format(record).removeprefix(f"<{priority(record.levelno)}>")
        fields = record.msg if isinstance(record.msg, dict) else {"event": record.name}
        pairs = [("MESSAGE", message), ("PRIORITY", priority(record.levelno)), ("SYSLOG_IDENTIFIER", IDENTIFIER)]
        pairs += [("TOKIOD_EVENT", fields.get("event", ""))]
        pairs += [(f"TOKIOD_{_key(name)}", value) for name, value in fields.items() if name not in _OWN and not name.startswith("_")]
        return b"".join(_encoded(key, mask(str(value))) for key, value in pairs)


def _key(name: str) -> str:
    return re.sub(r"[^A-Z0-9_]", "_", name.upper())


def _encoded(key: str, value: str) -> bytes:
    data = value.encode("utf-8", "backslashreplace")
    if b"\n" in data:
        return key.encode() + b"\n" + struct.pack("<Q", len(data)) + data + b"\n"
    return key.encode() + b"=" + data + b"\n"
