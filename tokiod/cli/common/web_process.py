"""`tokiod web` as the commands see it: a process of another user that answers over HTTP, on its socket or address."""

from __future__ import annotations

import errno
import re
import socket
import struct
from contextlib import suppress
from pathlib import Path

import msgspec

ANSWER_SECONDS = 2.0
_CREDENTIALS = "3i"
_LISTENING = "0A"
"""TCP_LISTEN in a row of /proc/net/tcp: number, local address, remote address, state, ..., inode."""


class WebState(msgspec.Struct, frozen=True):
    """A web process. pid: None over TCP, and of another PID namespace; health: as /healthz reports, "" without an answer of its own.

    viewers: clients that follow the events; feed: whether the feed sends messages; reloads: by result, since its start.
    """

    pid: int | None
    health: str = ""
    viewers: int = 0
    feed: bool = False
    reloads: dict[str, int] = {}

    @property
    def sentence(self) -> str:
        """The state in words."""
        if not self.health:
            return f"no answer within {ANSWER_SECONDS:g} s"
        feed = "follows the feed" if self.feed else "no messages from the feed"
        return f"{self.health}, {self.viewers} viewer{'' if self.viewers == 1 else 's'}, {feed}"


def ask_web(address: str) -> WebState | None:
    """Return the state of the process that listens on a socket or 127.0.0.1:PORT; None if none does, or this user may not ask it."""
    if address.startswith("/") and not _is_socket(Path(address)):
        return None
    try:
        pid = _pid(address)
    except OSError:
        return None
    try:
        health, metrics = _get(address, "/healthz"), _get(address, "/metrics")
    except OSError:
        return WebState(pid)
    found = dict(re.findall(r"^(tokiod_web_\S+) (\S+)$", metrics, re.MULTILINE))
    if not found:
        return WebState(pid)
    reloads = {result: int(float(found.get(f'tokiod_web_reloads_total{{result="{result}"}}', 0))) for result in ("loaded", "refused")}
    viewers, feed = float(found.get("tokiod_web_viewers", 0)), float(found.get("tokiod_web_feed_up", 0))
    return WebState(pid, health.strip(), int(viewers), bool(feed), reloads)


# The process itself can't be asked: another program at the address could name any process, which root would signal.
def listening_pid(address: str) -> int | None:
    """Return the process that listens on 127.0.0.1:PORT, as the kernel shows it; None if this user may not see it."""
    inodes = {row[9] for row in _tcp_rows(address) if row[1] == _row_address(address) and row[3] == _LISTENING}
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            if str(descriptor.readlink()).removeprefix("socket:[").removesuffix("]") in inodes:
                return int(descriptor.parts[2])
    return None


def _is_socket(path: Path) -> bool:
    with suppress(OSError):
        return path.is_socket()
    return False


def _connected(address: str) -> socket.socket:
    """Connect to the address. Raises OSError."""
    if not address.startswith("/"):
        host, _, port = address.rpartition(":")
        return socket.create_connection((host.strip("[]"), int(port)), ANSWER_SECONDS)
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(ANSWER_SECONDS)
    try:
        client.connect(address)
    except OSError:
        client.close()
        raise
    return client


def _pid(address: str) -> int | None:
    with _connected(address) as client:
        if client.family != socket.AF_UNIX:
            return None
        given = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize(_CREDENTIALS))
        pid, _, _ = struct.unpack(_CREDENTIALS, given)
        return int(pid) or None


def _tcp_rows(address: str) -> list[list[str]]:
    table = Path("/proc/net/tcp6" if "[" in address else "/proc/net/tcp")
    return [line.split() for line in table.read_text().splitlines()[1:]]


def _row_address(address: str) -> str:
    """Return ADDRESS:PORT as the kernel writes it: each 32 bits as a number of this machine, in hexadecimal digits."""
    host, _, port = address.rpartition(":")
    packed = socket.inet_pton(socket.AF_INET6 if "[" in address else socket.AF_INET, host.strip("[]"))
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{int(port):04X}"


def _get(address: str, path: str) -> str:
    """Return the body of an answer. Raises OSError, also for an answer that is not HTTP."""
    from http.client import HTTPConnection, HTTPException  # noqa: PLC0415 - 30 ms, as above

    connection = HTTPConnection("localhost", timeout=ANSWER_SECONDS)
    connection.sock = _connected(address)
    try:
        connection.request("GET", path)
        return connection.getresponse().read().decode()
    except HTTPException as error:
        raise OSError(errno.EPROTO, f"no answer of HTTP: {error}") from error
    finally:
        connection.close()
