"""The process `tokiod web`: it opens its socket, serves until SIGTERM, and reads the configuration again at SIGHUP."""

from __future__ import annotations

import asyncio
import socket
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from tokiod.bus.curve import web_client_keys
from tokiod.bus.server_socket import SHARED_SOCKET_MODE
from tokiod.errors import NoPermission, TokiodError
from tokiod.ledger.published_copy import readable_ledger
from tokiod.reader.cells import use_one_thread
from tokiod.runtime.http_server import stop_accepting
from tokiod.runtime.unix_socket import is_served
from tokiod.web.events import follow
from tokiod.web.server import WebServer
from tokiod.web.views import Views

if TYPE_CHECKING:
    from tokiod.bus.curve import ClientKeys
    from tokiod.clock import Clock
    from tokiod.config.schema import Config
    from tokiod.runtime.service import Service
    from tokiod.web.events import Stream

log = structlog.get_logger()

BACKLOG = 1024
NOTIFY_SECONDS = 5.0


def run(service: Service[Config], clock: Clock) -> None:
    """Serve until SIGTERM or SIGINT. Raises ConfigError, TokiodError for an address that can't be opened or an archive without rights."""
    # Several answers are read at the same time anyway: threads of each would wait for the others' (a month of days 4.1 s instead of 3.7).
    use_one_thread()
    asyncio.run(_serve(service, clock))


async def _serve(service: Service[Config], clock: Clock) -> None:
    config, stopping, notifier = service.load(), asyncio.Event(), service.notifier
    _check_readable(config)
    keys = web_client_keys(config.web, config.secrets)
    server = WebServer(Views(config, clock), config.web.hosts)
    following = _Following(server.stream)
    service.on_signals(stopping.set, lambda: _reload(service, server, following))
    with opened(config.web.address) as listener:
        accepting = await asyncio.get_running_loop().create_server(server.server, sock=listener, backlog=BACKLOG)
        following.follow(config.feed.local_endpoint, keys)
        log.info("web.ready", address=config.web.address)
        notifier.ready()
        while not stopping.is_set():
            following.check()
            notifier.alive()
            with suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), NOTIFY_SECONDS)
        notifier.stopping()
        following.stop()
        await stop_accepting(accepting)
        accepting.close()
        server.close()
    log.info("web.stopped")


def _reload(service: Service[Config], server: WebServer, following: _Following) -> None:
    """Use another configuration, if it has no errors. The address stays."""
    result = "refused"
    with service.reloading():
        config = service.load()
        keys = web_client_keys(config.web, config.secrets)
        server.views.config, server.hosts = config, frozenset(config.web.hosts)
        following.follow(config.feed.local_endpoint, keys)
        result = "loaded"
    server.counts.reloads.labels(result).inc()


class _Following:
    """The task that follows the feed. After another endpoint or other keys it is a new one."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._feed: tuple[str, ClientKeys | None] | None = None
        self._task: asyncio.Task[None] | None = None

    def follow(self, endpoint: str, keys: ClientKeys | None) -> None:
        """Follow this feed, if it does not already."""
        if self._feed != (endpoint, keys):
            self.stop()
            self._feed = endpoint, keys
            self._task = asyncio.get_running_loop().create_task(follow(endpoint, keys, self._stream))

    def check(self) -> None:
        """Raise the error that ended the task, if one did."""
        if self._task is not None and self._task.done():
            self._task.result()

    def stop(self) -> None:
        """Follow nothing."""
        if self._task is not None:
            self._task.cancel()


def _check_readable(config: Config) -> None:
    """Raise NoPermission for a user who may not read the archive: each request would fail."""
    readable_ledger(config.archive)
    with suppress(FileNotFoundError):
        try:
            next(config.archive.root.iterdir(), None)
        except PermissionError:
            raise NoPermission(config.archive.root) from None


def opened(address: str) -> socket.socket:
    """Return a socket that is bound to an absolute path, or to ADDRESS:PORT. Raises TokiodError."""
    try:
        return _unix(Path(address)) if address.startswith("/") else _tcp(address)
    except OSError as error:
        raise TokiodError(f"can't listen on {address}: {error.strerror or error}; see [web] address") from None


def _unix(path: Path) -> socket.socket:
    """Take the place of the socket that an earlier process left. The umask lets no others connect before the mode is set."""
    with suppress(FileNotFoundError):
        if stat.S_ISSOCK(path.stat().st_mode):
            if is_served(path):
                raise TokiodError(f"another process listens on {path}; stop it first")
            path.unlink()
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(str(path))
        path.chmod(SHARED_SOCKET_MODE)
    except OSError:
        listener.close()
        raise
    return listener


def _tcp(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, int(port)))
    except OSError:
        listener.close()
        raise
    return listener
