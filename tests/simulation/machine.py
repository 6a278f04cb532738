"""A simulated machine: the writer's process and the collectors' process in one loop, with what starts them again, and the power."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

from tests.simulation.clock import WriterClock
from tests.simulation.disk import PRIVATE, DiskSickness, LateExecutor, LedgerDisk, MachineFiles, ProcessSqlite, is_injected
from tests.simulation.oracle import Wrong
from tests.support.faulty_files import SimulatedKill
from tokiod.errors import TokiodError
from tokiod.ledger.database import LedgerError
from tokiod.ledger.integrity import LedgerLost
from tokiod.polling import process as polling
from tokiod.runtime.service import Service
from tokiod.supervisor.child_process import RestartDelay
from tokiod.window import Calendar
from tokiod.writer import process as writing

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.simulation.clock import MachineClock
    from tests.simulation.journal import Journal
    from tests.simulation.loop import SimulatedLoop
    from tests.simulation.network import Network, NetworkConnector
    from tests.simulation.oracle import Acknowledged
    from tokiod.bus.receiver import Arrived
    from tokiod.collector import SavedCollector
    from tokiod.config.schema import Config
    from tokiod.polling.process import CollectorsProcess
    from tokiod.polling.watch.reader import Task
    from tokiod.window_data import WindowMeta
    from tokiod.writer.process import WriterProcess

START_SECONDS = 5.0
IDLE_TURN = 0.5
"""Seconds of the bus's time between two turns of a writer to which nothing is sent: it has more than enough to look after its files."""
JOB_SECONDS = 20.0
"""How long the rewrite of a file takes, at most, and a tenth of the time that a sealing takes."""


class Process:
    """What the two processes share: a process runs until it is killed or ends, and another one follows."""

    name = ""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.died = asyncio.Event()
        self.is_down = asyncio.Event()
        self.is_stopping = False
        self.on_start: Callable[[], object] = lambda: None
        self.starts = 0
        self.down_until = 0.0
        self.sqlite = ProcessSqlite(machine.ledger_disk, self.die)

    async def keep(self) -> None:
        """Run the process again and again."""
        machine = self.machine
        delay = RestartDelay()
        while True:
            # It may be gone again by the time that this runs.
            while not machine.has_power.is_set():
                await machine.has_power.wait()
            self.died.clear()
            self.is_down.clear()
            self.is_stopping = False
            self.sqlite = ProcessSqlite(machine.ledger_disk, self.die)
            self.starts += 1
            began = machine.loop.now
            machine.journal.note(f"{self.name} starts")
            self.on_start()
            try:
                await self.run()
            finally:
                self.sqlite.die()
                self.sqlite.close()
            machine.journal.note(f"{self.name} has ended")
            self.is_down.set()
            # The supervisor's, and the time that a process takes to start.
            restart = delay.after(machine.loop.now - began) + START_SECONDS * machine.rng.random()
            await asyncio.sleep(max(restart, self.down_until - machine.loop.now))

    async def run(self) -> None:
        """Run once."""
        raise NotImplementedError

    def die(self) -> None:
        """Let the process have no effect any more."""
        self.sqlite.die()
        self.died.set()

    def stop(self) -> None:
        """Ask it to stop."""
        self.is_stopping = True

    async def wait(self, seconds: float, *others: asyncio.Event) -> None:
        """Wait so long, or until the process dies or one of the events is set."""
        tasks = [asyncio.ensure_future(event.wait()) for event in (self.died, *others)]
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()


class Writer(Process):
    """The writer's process."""

    name = "writer"
    process: WriterProcess | None = None
    stopped_until = 0.0

    async def run(self) -> None:
        machine, process = self.machine, None
        files = machine.files
        if files.is_dead:
            files = machine.files = machine.set_up(files.revive())
        executor = LateExecutor(machine.loop, random.Random(machine.rng.random()), JOB_SECONDS, self.die)
        host = writing.Host(files, self.sqlite, executor, machine.network.bind, lambda: machine.loop.now / machine.scale)
        try:
            process = writing.WriterProcess(Service(machine.load), WriterClock(machine.clock, machine.window), host)
            self.process = process
            self._listen(process)
            machine.on_writer_started()
            await self._serve(process)
        except SimulatedKill:
            pass
        except (LedgerLost, SystemExit) as error:  # those with which a writer asks for its restart
            machine.journal.note(f"writer ends: {type(error).__name__} {error}")
        except (OSError, LedgerError, TokiodError) as error:
            machine.journal.note(f"writer crashes: {type(error).__name__} {error}")
            if not is_injected(error):
                raise
        finally:
            self.process = None
            # A process that stopped has closed everything itself.
            self.die()
            executor.close()
            files.die()
            if process is not None:
                with suppress(SimulatedKill, LedgerError, OSError):
                    process.close()

    async def _serve(self, process: WriterProcess) -> None:
        machine = self.machine
        server = machine.network.servers[machine.config.bus.endpoint]
        while True:
            if self.died.is_set():
                raise SimulatedKill("between turns")
            if (seconds := self.stopped_until - machine.loop.now) > 0:
                await self.wait(seconds)
                continue
            process.examine_ledger()
            process.turn(0)
            if self.is_stopping:
                process.turn(0)
                process.stop()
                process.close()
                return
            await self.wait(machine.scale * IDLE_TURN, server.readable)

    def _listen(self, process: WriterProcess) -> None:
        """Learn what is acknowledged."""
        receiver, known = process._receiver, self.machine.acknowledged
        ack, handle = receiver.ack, receiver.poll

        def acknowledge(arrived: Arrived, cells: int, dropped: dict[str, int]) -> None:
            known.note(arrived.collected)
            ack(arrived, cells, dropped)
            self.machine.note_acknowledged(arrived.collected.meta)

        def poll(timeout_ms: int) -> list[Arrived]:
            arrived = handle(timeout_ms)
            for one in arrived:
                known.note_sent(one.collected)
            return arrived

        receiver.ack, receiver.poll = acknowledge, poll  # type: ignore[method-assign]

    def die(self) -> None:
        super().die()
        self.machine.files.die()
        # One that ended before it was ready may have found what the one before it left behind, and reports it at another start.
        if self.process is not None:
            self.machine.writer_ended_at.clear()
        self.machine.writer_ended_at.append(self.machine.loop.now)
        if self.machine.power_fails_with_writer:
            self.machine.lose_power()
        elif seconds := self.machine.power_fails_after_kill:
            self.machine.power_fails_after_kill = 0.0
            self.machine.lose_power_in(seconds)
        elif self.machine.windows_after_kill:
            self.machine.windows_left, self.machine.windows_after_kill = self.machine.windows_after_kill, 0
            self.machine.windows_below = self.machine.files.syncing


class Collectors(Process):
    """The collectors' process."""

    name = "collectors"
    process: CollectorsProcess | None = None

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self._connectors: list[NetworkConnector] = []

    async def run(self) -> None:
        machine = self.machine
        seeds = random.Random(machine.rng.random())
        host = polling.Host(self._connector, machine.scale, self.sqlite, lambda: random.Random(seeds.random()), machine.reader)
        self.process = polling.CollectorsProcess(Service(machine.load), machine.clock, host)
        task = asyncio.ensure_future(self._run(self.process))
        stopping = asyncio.Event()
        self._stopping = stopping
        ended = asyncio.Event()
        task.add_done_callback(lambda _: ended.set())
        await self.wait(1e9, stopping, ended)
        was_killed, self.process = self.died.is_set(), None
        task.cancel()
        await asyncio.wait({task})
        for connector in self._connectors:
            connector.close()
        self._connectors.clear()
        if not was_killed and not task.cancelled() and (error := task.exception()) is not None and not self.died.is_set():
            machine.journal.note(f"collectors crash: {error!r}")
            raise error

    async def _run(self, process: CollectorsProcess) -> None:
        sending = asyncio.ensure_future(process._sender.run())
        try:
            await process.serve(await process.open())
        finally:
            process.close()
            sending.cancel()

    def _connector(self) -> NetworkConnector:
        connector = self.machine.network.connector()
        self._connectors.append(connector)
        return connector

    def die(self) -> None:
        super().die()
        for connector in self._connectors:
            connector.close()

    def stop(self) -> None:
        super().stop()
        if self.process is not None:
            self._stopping.set()


class Machine:
    """The machine. window: of the sources, in seconds; scale: seconds of the bus's time are so many of the site's, which costs fewer
    heartbeats a day.

    on_writer_started: called after each start. reader: the collector of a watched file. damaged: the inodes of the files that another
    program damaged. failures: the operations on files that failed, with their time of the loop; set_aside_at: in the same time, when a
    file was last set aside, which the next commit reports. writer_ended_at: when the writer ended since it was ready.
    """

    def __init__(
        self,
        loop: SimulatedLoop,
        clock: MachineClock,
        network: Network,
        config: Config,
        journal: Journal,
        acknowledged: Acknowledged,
        rng: random.Random,
        window: int,
        on_writer_started: Callable[[], None],
        reader: Callable[[Task], SavedCollector],
    ) -> None:
        self.loop, self.clock, self.network, self.config, self.journal = loop, clock, network, config, journal
        self.acknowledged, self.rng, self.window, self.on_writer_started = acknowledged, rng, window, on_writer_started
        self.scale = max(20.0, min(900.0, window / 4))
        self.reader = reader
        self.counts: Counter[str] = Counter()
        self.ledger_disk = LedgerDisk(config.archive.ledger)
        self.has_power = asyncio.Event()
        self.has_power.set()
        self.power_fails_with_writer = False
        self.power_fails_after_kill = 0.0
        self.windows_after_kill = self.windows_left = 0
        self.windows_below: Path | None = None
        self._power_losses: list[asyncio.TimerHandle] = []
        self.damaged: set[tuple[Path, int]] = set()
        self._held: dict[str, bytes] = {}
        self._recovering: asyncio.Task[None] | None = None
        self.sickness = DiskSickness(loop, random.Random(rng.random()))
        self.failures: list[tuple[float, str]] = []
        self.set_aside_at: dict[Path, float] = {}
        self.writer_ended_at: list[float] = []
        self.files = MachineFiles(config.archive.root, other=PRIVATE)
        self.writer = Writer(self)
        self.collectors = Collectors(self)
        self.set_up(self.files)

    def set_up(self, files: MachineFiles) -> MachineFiles:
        """Connect file operations with the machine."""
        return files.setup(self.clock, self.sickness, self.writer.die, self._note_failure, self._note_aside)

    def _note_failure(self, operation: str) -> None:
        self.failures.append((self.loop.now, operation))

    def _note_aside(self, path: Path) -> None:
        self.set_aside_at[path] = self.loop.now

    def load(self) -> Config:
        """Return the configuration."""
        return self.config

    def note_acknowledged(self, stored: WindowMeta) -> None:
        """Let the power fail soon if so many windows have been acknowledged since the kill that an event planned.

        After a kill before a directory was synced, only windows in its files count: one of these has a name that is not durable.
        """
        day = Calendar(self.config.timezone).day(stored.window.start)
        if self.windows_left and self.windows_below in {None, self.config.archive.file(day, stored.system).parent}:
            self.windows_left -= 1
            if not self.windows_left:
                self.lose_power_in(self.rng.random() * 10.0)

    def is_damaged(self, path: Path) -> bool:
        """Return whether a file was damaged by another program and not replaced since."""
        return path.exists() and (path, path.stat().st_ino) in self.damaged

    def lose_power_in(self, seconds: float) -> None:
        """Lose power after so long, unless faults end before that."""
        self._power_losses.append(self.loop.call_later(seconds, self.lose_power))

    def lose_power(self) -> None:
        """Stop everything at once, and come back with what the disk held."""
        self.power_fails_with_writer = False
        if not self.has_power.is_set():
            return
        self.has_power.clear()
        self.counts["power loss"] += 1
        self.journal.note("power fails")
        self._held = self.ledger_disk.hold()
        self.writer.die()
        self.collectors.die()
        self._recovering = asyncio.ensure_future(self._recover())
        self._recovering.add_done_callback(_recovered)

    async def _recover(self) -> None:
        await self.writer.is_down.wait()
        await self.collectors.is_down.wait()
        # A damaged file that was removed may come back.
        inodes = self.files.power_loss(self.rng.randrange(2**32))
        self.damaged = {(path, path.stat().st_ino) for path, inode in inodes.items() if (path, inode) in self.damaged}
        lost = self.ledger_disk.lose_power(self._held, self.rng)
        self.counts["transactions lost"] += lost
        self.files = self.set_up(MachineFiles(self.config.archive.root, other=PRIVATE))
        self.files.touch_all()
        self.journal.note(f"power is back; {lost} transactions of the ledger are lost")
        self.has_power.set()

    def clear_faults(self) -> None:
        """Let nothing fail from now on."""
        self.power_fails_with_writer, self.power_fails_after_kill = False, 0.0
        self.windows_after_kill = self.windows_left = 0
        for planned in self._power_losses:
            planned.cancel()
        self.files.clear_faults()
        self.writer.sqlite.clear_faults()
        self.collectors.sqlite.clear_faults()
        self.writer.stopped_until = 0.0
        self.network.frozen_until = 0.0


def _recovered(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        raise Wrong(f"the simulated disk could not be recovered: {error!r}") from error


__all__ = ["Machine", "Wrong"]
