"""What a process tells whoever keeps it running: systemd's notify protocol, datagrams of KEY=VALUE lines.

    NOTIFY_SOCKET=/run/systemd/notify    a unit's main process to systemd
    TOKIOD_NOTIFY_FD=5                   a child to `tokiod run`: one end of a socket pair, so that nobody else can speak for it
    WATCHDOG_USEC=30000000               whoever says nothing for so long counts as hung

READY=1, STATUS=..., WATCHDOG=1, RELOADING=1, STOPPING=1 mean what they mean in sd_notify(3). Not the package sdnotify: it knows no
descriptors, and these are thirty lines.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

ADDRESS, DESCRIPTOR, WATCHDOG, OWNER = "NOTIFY_SOCKET", "TOKIOD_NOTIFY_FD", "WATCHDOG_USEC", "WATCHDOG_PID"
LONGEST = 4096
"""Bytes of a message."""


@dataclass(slots=True)
class Notifier:
    """Tells whoever listens; nobody, where none does. watchdog: seconds without a word after which they lose patience, None: never."""

    channel: socket.socket | None = None
    watchdog: float | None = None

    @classmethod
    def take(cls, environment: MutableMapping[str, str]) -> Notifier:
        """Return the one that the environment tells of, and take it out of there: this process's children are not to speak for it."""
        address, descriptor = environment.pop(ADDRESS, ""), environment.pop(DESCRIPTOR, "")
        limit, owner = environment.pop(WATCHDOG, ""), environment.pop(OWNER, "")
        watchdog = int(limit) / 1e6 if limit.isdigit() and owner in {"", str(os.getpid())} else None
        if descriptor.isdigit():
            channel = socket.socket(fileno=int(descriptor))
            channel.set_inheritable(False)
        elif address[:1] in {"/", "@"}:
            channel = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            with suppress(OSError):
                channel.connect("\0" + address[1:] if address[0] == "@" else address)
        else:
            return cls(None, watchdog)
        channel.setblocking(False)
        return cls(channel, watchdog)

    def ready(self) -> None:
        """Say that the service is up, or has reloaded its configuration."""
        self._tell(READY="1")

    def alive(self, status: str = "") -> None:
        """Say that there is progress, and in a sentence how it goes."""
        self._tell(WATCHDOG="1", **({"STATUS": " ".join(status.split())} if status else {}))

    def reloading(self) -> None:
        """Say that the configuration is being read again; ready() ends it."""
        self._tell(RELOADING="1", MONOTONIC_USEC=str(time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000))

    def stopping(self) -> None:
        """Say that the service ends."""
        self._tell(STOPPING="1")

    def close(self) -> None:
        """Say nothing any more."""
        if self.channel is not None:
            self.channel.close()

    # A full socket or a listener that is gone must not hold up anything: the next word comes soon.
    def _tell(self, **fields: str) -> None:
        if self.channel is not None:
            with suppress(OSError):
                self.channel.send("\n".join(f"{key}={value}" for key, value in fields.items()).encode()[:LONGEST])


NOBODY = Notifier()


def fields(message: bytes) -> Mapping[str, str]:
    """Return what a message says."""
    lines = message.decode(errors="replace").split("\n")
    return dict(line.split("=", 1) for line in lines if "=" in line)


def child_environment(descriptor: int, watchdog: float, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a child that tells its progress to a descriptor that it inherits."""
    told = {DESCRIPTOR: str(descriptor), WATCHDOG: str(int(watchdog * 1e6))}
    return {**{key: value for key, value in environment.items() if key not in {ADDRESS, OWNER}}, **told}
