"""The process `tokiod sink NAME`: it opens the sink, follows the change log until SIGTERM, and begins again after a failure.

Whatever a sink raises ends no process but is reported, waited for and tried again with a new sink: Transient and timeouts exponentially
later, Fatal long after, and at each reload. A sink that hangs in the event loop is ended by the service manager's watchdog.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
import shutil
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import structlog

from tokiod.archive.rights import PRIVATE_FILE_MODE, make_shared
from tokiod.change_sink import SinkSite
from tokiod.clock import SystemClock
from tokiod.config import plugins
from tokiod.errors import Fatal, TokiodError
from tokiod.forwarding.day_follower import DayFollower
from tokiod.forwarding.row_follower import RowFollower
from tokiod.forwarding.shown_state import ShownState
from tokiod.reports.sinks import configured_sink
from tokiod.runtime.backoff import FATAL_RETRY_SECONDS, MAX_SOURCE_WAIT_SECONDS, backoff, outcome_of
from tokiod.runtime.secrets import mask
from tokiod.tts.live.files import sweep

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tokiod.change_sink import SinkConfig
    from tokiod.clock import Clock
    from tokiod.config.schema import Config
    from tokiod.forwarding.follower import Follower
    from tokiod.runtime.service import Service

log = structlog.get_logger()

POLL_SECONDS = 0.5
"""Between two looks at the change log, of which the writer publishes a copy every few seconds."""
BEAT_SECONDS = 2.0
CLOSE_SECONDS = 5.0
LOCK_FILE = "lock"
REMOVED_EXIT_CODE = 3
"""The unit does not start a sink again that ended with it."""


def run(name: str, service: Service[Config], clock: Clock) -> None:
    """Run a sink until SIGTERM or SIGINT, or until a reload finds that it is no longer configured: exits with REMOVED_EXIT_CODE then.

    Raises ConfigError for a sink that is not configured, TokiodError for a state directory that can't be used, or that another process has.
    """
    config = service.load()
    section = configured_sink(config, name)
    directory = _state_directory(config, name)
    lock = _locked(directory, name)
    try:
        process = SinkProcess(config, section, directory, service, clock)
        asyncio.run(process.serve())
    finally:
        os.close(lock)
    if process.is_removed:
        raise SystemExit(REMOVED_EXIT_CODE)


class SinkProcess:
    """One sink. Its state directory exists and is locked."""

    def __init__(self, config: Config, section: SinkConfig, directory: Path, service: Service[Config], clock: Clock) -> None:
        self._config, self._section, self._directory = config, section, directory
        self._service, self._clock, self._notifier = service, clock, service.notifier
        self._shown = ShownState(directory, section.name, section.kind, clock, SystemClock())
        self._follower = self._made()
        self._rng = random.Random()  # noqa: S311 - jitter
        self._failures = 0
        self._makers: dict[str, Callable[[Any, SinkSite], Any]] = {}
        self._wake, self._is_stopping, self._is_reloaded = asyncio.Event(), False, False
        self.is_removed = False

    async def serve(self) -> None:
        """Follow the change log until a signal stops the process, or a reload removes the sink."""
        work: asyncio.Task[Any] = asyncio.current_task()  # type: ignore[assignment] # it runs in a task
        self._service.on_signals(lambda: self._stop(work), self._reload)
        beat = asyncio.create_task(self._beat())
        log.info("sink.ready", sink=self._section.name, kind=self._section.kind)
        self._shown.change("running")
        self._notifier.ready()
        try:
            while not self._is_stopping:
                await self._attempt()
        except asyncio.CancelledError:
            if not self._is_stopping:
                raise
        finally:
            beat.cancel()
            self._follower.close()
        self._end()

    async def _attempt(self) -> None:
        """Open a sink and use it until it fails, a reload, or a signal; after a failure, wait."""
        if self._is_reloaded:
            self._is_reloaded = False
            self._follower.close()
            self._follower = self._made()
        opened: Any = None
        error: BaseException | None = None
        try:
            opened = self._maker()(self._section, SinkSite(self._config.secret, self._directory))
            async with asyncio.timeout(self._section.timeout):
                await opened.open()
            await self._follow(opened)
        # Once it is to stop, or is removed, no failure is of interest: serve() ends as it does without one.
        except BaseException as caught:  # noqa: BLE001 - a sink is foreign code: all that it raises, a SystemExit too, stops nothing
            error = caught
        finally:
            if opened is not None:
                await self._close(opened)
        if error is not None and not self._is_stopping:
            await self._wait(self._report(error))

    def _maker(self) -> Callable[[Any, SinkSite], Any]:
        """Return what makes a sink. Raises ConfigError, Fatal without a package that the kind needs."""
        kind, needs = self._section.kind, self._section.needs
        if needs is not None and find_spec(needs[0]) is None:
            raise Fatal(f"the kind {kind} needs {needs[0]}: pip install 'tokiod[{needs[1]}]' into tokiod's environment")
        # A module of the package may have the name of the function, and takes its place once it is imported.
        if kind not in self._makers:
            self._makers[kind] = plugins.load_sink(kind).sink
        return self._makers[kind]

    async def _follow(self, opened: Any) -> None:
        while not self._is_reloaded:
            more = await self._follower.step(opened)
            if self._failures:
                log.info("sink.up", sink=self._section.name)
                self._failures = 0
                self._shown.change("running")
            if not more:
                await self._pause(POLL_SECONDS)

    async def _close(self, opened: Any) -> None:
        """Close a sink that may hang or fail in it."""
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await opened.close()
        except Exception:
            log.exception("sink.close_failed", sink=self._section.name)

    def _report(self, error: BaseException) -> float:
        """Report a failure; return the seconds of the clock to wait."""
        self._failures += 1
        outcome, text = outcome_of(error) if isinstance(error, Exception) else "bug", str(error) or type(error).__name__
        if outcome == "bug":
            text = f"fault of the sink: {type(error).__name__}: {error}"
            log.error("sink.broken", sink=self._section.name, error=text, exc_info=error)
        is_fatal, text = outcome == "fatal", mask(text)
        seconds = FATAL_RETRY_SECONDS if is_fatal else backoff(self._failures, MAX_SOURCE_WAIT_SECONDS, self._rng)
        if self._shown.now.reason != text:
            level = log.error if is_fatal else log.warning
            level("sink.fatal" if is_fatal else "sink.waiting", sink=self._section.name, reason=text)
        self._shown.change("fatal" if is_fatal else "waiting", text)
        return seconds

    async def _wait(self, seconds: float) -> None:
        """Wait for some seconds of the clock, or until a reload."""
        sleeping = asyncio.ensure_future(self._clock.sleep(seconds))
        woken = asyncio.ensure_future(self._wake.wait())
        try:
            await asyncio.wait({sleeping, woken}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._wake.clear()
            sleeping.cancel()
            woken.cancel()

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), seconds)
        self._wake.clear()

    async def _beat(self) -> None:
        """Report progress of the event loop."""
        while True:
            now = self._shown.now
            self._notifier.alive(f"{now.state}, {now.lag_windows} changes and {now.backlog} s of the archive to send")
            self._shown.write_if_due(is_changed=False)
            await asyncio.sleep(BEAT_SECONDS)

    def _stop(self, work: asyncio.Task[Any]) -> None:
        self._is_stopping = True
        self._notifier.stopping()
        work.cancel()

    def _reload(self) -> None:
        """Use another configuration, if it has no errors: with a new sink, from the same cursor."""
        with self._service.reloading():
            self._use(self._service.load())

    def _use(self, config: Config) -> None:
        section = next((one for one in config.sink if one.name == self._section.name), None)
        self._is_reloaded = True
        if section is None:
            self._is_stopping = self.is_removed = True
        else:
            self._config, self._section = config, section
        self._wake.set()

    def _made(self) -> Follower[Any]:
        make = DayFollower if self._section.takes == "days" else RowFollower
        return make(self._config, self._section, self._directory, self._clock, self._shown)

    def _end(self) -> None:
        if self.is_removed:
            shutil.rmtree(self._directory, ignore_errors=True)
            log.info("sink.removed", sink=self._section.name, path=str(self._directory))
        else:
            self._shown.change("stopped")
        log.info("sink.stopped", sink=self._section.name)


def _state_directory(config: Config, name: str) -> Path:
    """Make the state directory of a sink. Raises TokiodError."""
    directory = config.sink_state / name
    try:
        make_shared(directory.parent)
        make_shared(directory)
    except PermissionError:
        raise TokiodError(f"no permission to write to {directory}: run this as the user of the sinks, or see sink_state") from None
    except OSError as error:
        raise TokiodError(f"the state directory {directory} can't be used: {error.strerror}") from None
    return directory


def _locked(directory: Path, name: str) -> int:
    """Lock the state directory until the descriptor is closed, and remove what a killed process left there. Raises TokiodError."""
    try:
        fd = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE_MODE)
    except OSError as error:
        raise TokiodError(f"{directory / LOCK_FILE} can't be opened: {error.strerror}") from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        sweep(directory)
    except OSError as error:
        os.close(fd)
        if isinstance(error, BlockingIOError):
            raise TokiodError(f"another process runs the sink {name}; stop it first") from None
        raise TokiodError(f"the state directory {directory} can't be used: {error.strerror}") from None
    return fd
