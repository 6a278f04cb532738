"""Notifications of a process to its service manager: systemd's notify protocol, datagrams of KEY=VALUE lines.

    NOTIFY_SOCKET=/run/systemd/notify    a unit's main process to systemd
    TOKIOD_NOTIFY_FD=5                   a child to `tokiod run`: one end of a socket pair, so that no other process can send in its name
    WATCHDOG_USEC=30000000               a process that sends nothing for so long counts as hung

READY=1, STATUS=..., WATCHDOG=1, RELOADING=1 and STOPPING=1 are those of sd_notify(3). The package sdnotify can't send to a descriptor.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

ADDRESS, DESCRIPTOR, WATCHDOG, OWNER = "NOTIFY_SOCKET", "TOKIOD_NOTIFY_FD", "WATCHDOG_USEC", "WATCHDOG_PID"
MAX_MESSAGE_BYTES = 4096
MAX_INTERVAL_SECONDS = 10.0
"""From one report of progress to the next, of a process that has nothing to do."""


class Notifier(msgspec.Struct):
    """Sends notifications, if there is a channel. watchdog: seconds without one after which the process is killed; None: never."""

    channel: socket.socket | None = None
    watchdog: float | None = None

    @classmethod
    def take(cls, environment: MutableMapping[str, str]) -> Notifier:
        """Return the notifier that the environment names, and remove it from there, so that child processes can't notify."""
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

    @property
    def interval(self) -> float:
        """Seconds from one report of progress to the next: several fit into the watchdog's time."""
        return MAX_INTERVAL_SECONDS if self.watchdog is None else min(MAX_INTERVAL_SECONDS, self.watchdog / 3)

    def ready(self) -> None:
        """Report that the service is up, or has reloaded its configuration."""
        self._send(READY="1")

    def alive(self, status: str = "") -> None:
        """Report progress, and a status text."""
        self._send(WATCHDOG="1", **({"STATUS": " ".join(status.split())} if status else {}))

    def reloading(self) -> None:
        """Report that the configuration is being read again, until ready()."""
        self._send(RELOADING="1", MONOTONIC_USEC=str(time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000))

    def stopping(self) -> None:
        """Report that the service stops."""
        self._send(STOPPING="1")

    def close(self) -> None:
        """Close the channel."""
        if self.channel is not None:
            self.channel.close()

    # A full socket or a receiver that is gone must not block the process: the next notification follows soon.
    def _send(self, **fields: str) -> None:
        if self.channel is not None:
            with suppress(OSError):
                self.channel.send("\n".join(f"{key}={value}" for key, value in fields.items()).encode()[:MAX_MESSAGE_BYTES])


NO_NOTIFIER = Notifier()


def fields(message: bytes) -> Mapping[str, str]:
    """Return the keys and values of a message."""
    lines = message.decode(errors="replace").split("\n")
    return dict(line.split("=", 1) for line in lines if "=" in line)


def child_environment(descriptor: int, watchdog: float, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a child that sends its notifications to a descriptor that it inherits."""
    channel = {DESCRIPTOR: str(descriptor), WATCHDOG: str(int(watchdog * 1e6))}
    return {**{key: value for key, value in environment.items() if key not in {ADDRESS, OWNER}}, **channel}
