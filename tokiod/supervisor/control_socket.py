"""Requests to a running daemon over its Unix socket: one JSON line in, one JSON line back. File permissions decide who may connect.

{"command": "ping"}      {"answer": "pong", "pid": 17, "ready": true, ...}
{"command": "reload"}    {"answer": "reloaded", "added": [], ...}  or  {"answer": "refused", "faults": ["tokiod.toml:14: ..."]}
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import msgspec
import structlog

from tokiod.errors import TokiodError
from tokiod.published.hosts import HostState  # noqa: TC001 - msgspec reads annotations
from tokiod.runtime.unix_socket import is_served

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
    from pathlib import Path

MAX_LINE_BYTES = 2**20
REQUEST_SECONDS = 5.0
"""Seconds that a client has to send its request."""
MAX_CLIENTS = 256
"""Connections at the same time; others are closed at once."""
_CREDENTIALS = struct.Struct("3i")
SEPARATE_UNITS = "Separate units have no control socket; use systemctl status, systemctl reload tokiod-writer tokiod-collectors tokiod-feed"

log = structlog.get_logger()


class MayNotAsk(TokiodError):  # noqa: N818 - says what is the case
    """This user may not send requests to the daemon at a socket, and can't see whether there is one."""


class Ping(msgspec.Struct, tag_field="command", tag="ping", frozen=True):
    """Request the state of the daemon."""


class Reload(msgspec.Struct, tag_field="command", tag="reload", frozen=True):
    """Request that the daemon reads its configuration again."""


class Process(msgspec.Struct, frozen=True):
    """One process. silent_for: seconds since its last report of progress; status: its last report; restarts: after deaths."""

    name: str
    pid: int | None
    ready: bool
    alive: bool
    silent_for: float
    restarts: int
    status: str


class Pong(msgspec.Struct, tag_field="answer", tag="pong", frozen=True):
    """A daemon. ready: it collects and stores; alive: all its processes make progress; seconds: since it started; hosts: added by ping."""

    pid: int
    version: str
    ready: bool
    alive: bool
    seconds: float
    processes: list[Process]
    hosts: list[HostState] = []


class Reloaded(msgspec.Struct, tag_field="answer", tag="reloaded", frozen=True):
    """What a new configuration changed.

    added, removed, changed, unchanged: names of sources. restarted: all processes, because of another key. keys: those outside of sources
    that changed, such as archive.path. warnings: what the administrator should know.
    """

    added: list[str] = []
    removed: list[str] = []
    changed: list[str] = []
    unchanged: list[str] = []
    restarted: bool = False
    keys: list[str] = []
    warnings: list[str] = []


class Refused(msgspec.Struct, tag_field="answer", tag="refused", frozen=True):
    """Nothing was changed; the reasons, line by line."""

    faults: list[str]


Request = Ping | Reload
Answer = Pong | Reloaded | Refused


@asynccontextmanager
async def serve_control(path: Path, answer: Callable[[Request], Awaitable[Answer]]) -> AsyncIterator[None]:
    """Answer requests at a Unix socket that only its owner can open. Raises OSError, also if another daemon serves it."""
    with suppress(PermissionError):
        if is_served(path):
            raise FileExistsError(f"another daemon answers at {path}")

    clients: set[asyncio.StreamWriter] = set()

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(clients) >= MAX_CLIENTS:
            writer.close()
            return
        clients.add(writer)
        try:
            with suppress(OSError, TimeoutError, ValueError):
                async with asyncio.timeout(REQUEST_SECONDS):
                    line = await reader.readline()
                writer.write(msgspec.json.encode(await _respond(line, _client(writer), answer)) + b"\n")
                await writer.drain()
        finally:
            clients.discard(writer)
            writer.close()

    async with await asyncio.start_unix_server(converse, sock=_bound(path), limit=MAX_LINE_BYTES):
        yield
    with suppress(OSError):
        path.unlink()  # noqa: ASYNC240 - one call, at the end of a process


async def _respond(line: bytes, client: Mapping[str, int], answer: Callable[[Request], Awaitable[Answer]]) -> Answer:
    try:
        request = msgspec.json.decode(line, type=Request)
    except (msgspec.DecodeError, RecursionError) as error:
        return Refused([f"malformed request: {error}"])
    if isinstance(request, Reload):
        log.info("reload.requested", **client)
    return await answer(request)


def _client(writer: asyncio.StreamWriter) -> dict[str, int]:
    """Return the process and the user at the other end, as the kernel recorded them."""
    credentials = writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(credentials)
    return {"pid": pid, "uid": uid}


def ask(path: Path, request: Request, seconds: float) -> Answer:
    """Send a request to the daemon at a socket. Raises MayNotAsk, and TokiodError where no answer arrives within so many seconds."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.settimeout(seconds)
        try:
            caller.connect(str(path))
            caller.sendall(msgspec.json.encode(request) + b"\n")
            with caller.makefile("rb") as lines:
                answer: Answer = msgspec.json.decode(lines.readline(MAX_LINE_BYTES), type=Answer)
                return answer
        except (FileNotFoundError, ConnectionRefusedError):
            raise TokiodError(f"no daemon answers at {path}: is it running with this configuration? {SEPARATE_UNITS}") from None
        except PermissionError:
            raise MayNotAsk(f"no permission to connect to {path}: only root and the daemon's user have it") from None
        except TimeoutError:
            raise TokiodError(f"the daemon at {path} did not answer within {seconds:.0f} s") from None
        except (OSError, msgspec.DecodeError) as error:
            raise TokiodError(f"the request to the daemon at {path} failed: {error}") from None


def _bound(path: Path) -> socket.socket:
    """Return a bound socket with mode 0600. The umask is the whole process's: nothing may be awaited while it is changed."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        if path.is_socket():
            path.unlink()
        listener.bind(str(path))
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(mask)
    return listener
