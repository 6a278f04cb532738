"""A simulated site and a daemon that archives it, with real processes, in one directory. The demo and the torture test use it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tokiod.config import load as configuration
from tokiod.errors import TokiodError
from tokiod.jobs.span import Days
from tokiod.ledger.ledger import Ledger, LedgerNotReady
from tokiod.reader.archive import open_archive
from tokiod.runtime.process_setup import python_command
from tokiod.simulator.compare import Comparison, compare
from tokiod.simulator.jobs.expected import Polls, compare_jobs
from tokiod.simulator.jobs.one_load import compare_load
from tokiod.simulator.jobs.work import Work
from tokiod.simulator.sources import JOBS, LMT, Source, accepts, free_port, told
from tokiod.window import Window

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from tokiod.clock import SimulatedClock
    from tokiod.config.schema import Config
    from tokiod.simulator.jobs.one_load import Agreement
    from tokiod.simulator.site import Site

CONFIG = """\
timezone = "{timezone}"
[archive]
path = "{directory}/tts/%Y-%m-%d/{{system}}.hdf5"
[bus]
endpoint = "ipc://{directory}/bus"
[feed]
endpoint = "ipc://{directory}/feed"
"""

SOURCE = """\
[[source]]
name = "{name}"
system = "{system}"
window = "{window}s"
retention = "{retention}s"
"""

Process = Literal["supervisor", "writer", "collectors", "feed"]


@dataclass(slots=True)
class Scene:
    """The processes of a simulated site's sources and of the daemon. They write only below `directory`."""

    directory: Path
    site: Site
    clock: SimulatedClock
    window: int = 60
    retention: int = 86400
    sources: tuple[Source, ...] = (LMT,)
    log_level: str | None = "info"
    command_timeout: int = 25
    ports: dict[str, int] = field(default_factory=dict)
    _simulators: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _daemon: subprocess.Popen[bytes] | None = None
    _web: subprocess.Popen[bytes] | None = None
    _config: Config | None = field(default=None)

    @property
    def config_path(self) -> Path:
        """The daemon's configuration."""
        return self.directory / "tokiod.toml"

    @property
    def log(self) -> Path:
        """The file with stderr of the daemon and the simulator."""
        return self.directory / "log"

    @property
    def config(self) -> Config:
        """The daemon's configuration as structs."""
        if self._config is None:
            self._config = configuration.load(self.config_path)
        return self._config

    def prepare(self) -> None:
        """Write the configuration and the site."""
        self.directory.mkdir(parents=True, exist_ok=True)
        text = CONFIG.format(directory=self.directory, timezone=self.site.timezone)
        for source in self.sources:
            retention = min(self.retention, source.retention)
            text += SOURCE.format(name=source.name, system=source.system, window=self.window, retention=retention)
            own = told(self.site, self.command_timeout)
            text += source.config.format(directory=self.directory, port=self._port(source), **own)
        self.config_path.write_text(text)
        self.site.save(self.directory / "site.json")

    def start_simulator(self) -> None:
        """Start the sources and wait until they answer."""
        for source in self.sources:
            self._simulators[source.name] = self._simulator(source)
        for source in self.sources:
            self._await(source)

    def start_daemon(self) -> None:
        """Start `tokiod run`."""
        options = ["--config", str(self.config_path), "--clock", str(self.clock)]
        options += ["--log-level", self.log_level] if self.log_level else []
        self._daemon = self._start("tokiod.cli.tokiod", "run", *ending_with_us(), *options)

    def start_web(self) -> str:
        """Start `tokiod web` on a port of this machine alone, and wait until it answers; return the address of its page."""
        address = ("127.0.0.1", free_port())
        with self.config_path.open("a") as config:
            config.write(f'[web]\naddress = "{address[0]}:{address[1]}"\n')
        self._config = None
        options = ["--config", str(self.config_path), "--clock", str(self.clock)]
        self._web = process = self._start("tokiod.cli.tokiod", "web", *ending_with_us(), *options)
        wait_for(lambda: process.poll() is not None or accepts(address), 60, f"tokiod web does not answer; see {self.log}")
        return f"http://{address[0]}:{address[1]}/"

    def stop_daemon(self) -> int:
        """Stop the daemon and return its exit code."""
        return _stop(self._daemon)

    @property
    def has_ended(self) -> bool:
        """Return whether the daemon is down."""
        return self._daemon is None or self._daemon.poll() is not None

    def close(self) -> None:
        """Stop everything."""
        for process in (self._web, self._daemon, *self._simulators.values()):
            _stop(process)

    def pid(self, process: Process) -> int | None:
        """Return the process id of a process of the daemon, None while it does not run."""
        if self.has_ended or process == "supervisor":
            return None if self.has_ended else self.processes()[0]
        return next((pid for pid in self.processes()[1:] if process.encode() in _command(pid).split(b"\0")), None)

    def processes(self) -> list[int]:
        """Return the daemon's processes, the supervisor first."""
        if self._daemon is None:
            return []
        children = Path(f"/proc/{self._daemon.pid}/task/{self._daemon.pid}/children").read_text().split()
        return [self._daemon.pid, *map(int, children)]

    def kill(self, process: Process) -> bool:
        """SIGKILL a process of the daemon. Return False if it does not run."""
        pid = self.pid(process)
        if pid is None:
            return False
        os.kill(pid, signal.SIGKILL)
        return True

    def stored(self, source: Source = LMT) -> list[Window]:
        """Return the stored windows of a source according to the ledger, oldest first."""
        if not self.config.archive.ledger.exists():
            return []
        try:
            with Ledger.open_readonly(self.config.archive.ledger) as ledger:
                return [Window(start, end) for start, end in ledger.stored(source.name)]
        except LedgerNotReady:
            return []

    def complete_to(self, start: int, end: int) -> bool:
        """Return whether [start, end) is stored of every replayable source, and some window of each other source."""
        return self.left_to_store(start, end) == 0

    def left_to_store(self, start: int, end: int) -> int:
        """Return the seconds of [start, end) that are not stored, over all replayable sources; of another source 1 while it has none."""
        left = 0
        for source in self.sources:
            stored = self.stored(source)
            if source.replayable:
                left += end - start - sum(max(0, min(window.end, end) - max(window.start, start)) for window in stored)
            else:
                left += not stored
        return left

    def files(self, source: Source | None = None) -> list[Path]:
        """Return the archive's files, of one source or of all."""
        systems = dict.fromkeys(one.system for one in self.sources if source in (None, one) and not one.fills_table)
        return sorted(path for system in systems for path in (self.directory / "tts").rglob(f"{system}.hdf5"))

    def compare(
        self,
        *,
        determined: bool = False,
        only: Collection[Path] | None = None,
        stored: Callable[[Source], Iterable[Window]] | None = None,
        parts: Callable[[Source], Iterable[Window]] = lambda _source: (),
    ) -> Comparison:
        """Compare all files, or `only` some, with the site. Set `determined` while the daemon runs (see the `expected` modules).

        stored: which windows of a source must be there, those of the ledger if not given. parts: other windows of a source without a past,
        of which any cells may be there: the right ones.
        """
        result = Comparison()
        for source in self.sources:
            if source.fills_table:
                result += Comparison() if only is not None else self.compare_jobs(source, stored)
                continue
            torn = () if source.replayable else tuple(parts(source))
            windows = [*(stored or self.stored)(source), *torn]
            answers = source.answers(self.site, windows)
            files = [path for path in self.files(source) if only is None or path in only]
            dead = () if source.replayable else (*self.dead(source), *torn, *(windows if source.is_patchy else ()))
            result = sum((compare(path, answers, determined=determined, dead=dead) for path in files), result)
        return result

    def compare_jobs(self, source: Source, stored: Callable[[Source], Iterable[Window]] | None = None) -> Comparison:
        """Compare the job table with the site. stored: as of compare()."""
        directories = sorted((self.config.archive.jobs / source.system).glob("*-*-*"))
        return compare_jobs(Work(self.site), directories, Polls([*(stored or self.stored)(source)], self.dead(source)))

    def compare_load(self) -> Agreement | None:
        """Compare what jobs did by the job table with what LMT counted of their targets; None where the two have no time in common."""
        both = [self.stored(source) for source in (LMT, JOBS) if source in self.sources]
        start = max([self.site.epoch, *(windows[0].start for windows in both if windows)])
        end = min((windows[-1].end if windows else 0 for windows in both), default=0)
        if len(both) < 2 or start >= end:  # noqa: PLR2004 - LMT and jobs
            return None
        with open_archive(LMT.system, start, end, config=self.config_path) as archive:
            return compare_load(Work(self.site), Days((self.config.archive.jobs,), JOBS.system), archive)

    def dead(self, source: Source) -> Sequence[Window]:  # noqa: ARG002 - scenes that kill sources know
        """Return when a source did not run."""
        return ()

    def _simulator(self, source: Source) -> subprocess.Popen[bytes]:
        own = [argument.format(directory=self.directory, port=self._port(source)) for argument in source.arguments]
        options = ["--clock", str(self.clock), "--site", str(self.directory / "site.json")]
        return self._start("tokiod.simulator", *ending_with_us(), *own, *options)

    def _await(self, source: Source) -> None:
        wait_for(partial(source.ready, self.directory, self._port(source)), 60, f"nothing from {source.name}; see {self.log}")

    def _port(self, source: Source) -> int:
        return self.ports.setdefault(source.name, free_port())

    def _start(self, module: str, *arguments: str) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                python_command(module, *arguments), stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )


def ending_with_us() -> list[str]:
    """Return the option of a process that is to end with this one, also where an interrupt comes between its start and our note of it."""
    return ["--parent", str(os.getpid())]


def wait_for(condition: Callable[[], bool], seconds: float, message: str) -> None:
    """Wait for a condition, in real time. Raises TokiodError with the message after the time limit."""
    deadline = time.monotonic() + seconds
    while True:
        begun = time.monotonic()
        if condition():
            return
        if (now := time.monotonic()) > deadline:
            raise TokiodError(message)
        # A condition that reads ledgers or logs takes at most a fifth of a core from what it waits for.
        time.sleep(max(0.05, 4 * (now - begun)))


def _stop(process: subprocess.Popen[bytes] | None) -> int:
    if process is None:
        return 0
    process.terminate()
    try:
        return process.wait(40)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
