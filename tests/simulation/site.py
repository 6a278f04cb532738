"""A seed played: the site, its machine, its operators, and what must be true meanwhile and in the end."""

from __future__ import annotations

import asyncio
import datetime as dt
import errno
import io
import math
import os
import random
import secrets
import shutil
import signal
import sqlite3
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import structlog

import collectors
from tests.simulation import folders, momentary, nodes
from tests.simulation.clock import MachineClock
from tests.simulation.folders import FolderSource
from tests.simulation.hub import CLASS, HUBS, HubMachine
from tests.simulation.jobs import NAME, NAMES, SERVERS, JobServers
from tests.simulation.journal import Journal
from tests.simulation.loop import SimulatedLoop
from tests.simulation.machine import Machine
from tests.simulation.momentary import MomentarySource
from tests.simulation.network import Network
from tests.simulation.nodes import Nodes
from tests.simulation.oracle import FOREVER, Acknowledged, Wrong, check_end, check_now, check_sealed, days, read
from tests.simulation.sources import COUNTER, FULLNESS, GAUGE, SOURCES, Source
from tests.simulation.subscriber import SlowSubscriber
from tests.support.followed_archive import Cells, FollowedArchive
from tokiod.archive.seal_marker import mark, marked_files
from tokiod.bus import feed, sender
from tokiod.bus.receiver import SILENCE_SECONDS
from tokiod.config import plugins
from tokiod.config.schema import Config
from tokiod.config.sections import ArchiveConfig, BusConfig, HubConfig
from tokiod.config.watched_folder import watched
from tokiod.errors import TokiodError
from tokiod.jobs import table as job_table
from tokiod.ledger import changes
from tokiod.ledger.database import LedgerError
from tokiod.ledger.jobs import JobRequest
from tokiod.ledger.ledger import Ledger
from tokiod.polling.watch.folder import QUIET_SECONDS
from tokiod.ranges import Ranges
from tokiod.reports.verify.scratch_archive import VerifiedSource
from tokiod.reports.verify.verify import Verification, Verified
from tokiod.tts.layout import form_of, open_for_reading
from tokiod.units import Duration
from tokiod.window import Calendar, Window, bulk_length, iso
from tokiod.writer import file_scan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, MutableMapping
    from contextlib import AbstractContextManager

    from tests.simulation.plan import Event, Plan
    from tokiod.collector import SavedCollector, SourceConfig
    from tokiod.polling.watch.reader import Task
    from tokiod.window_data import Collected

KINDS = str(Path(__file__).parent / "kinds")
MEMORY = Path("/dev/shm")
OTHER = "of-other-programs"
"""A directory in which the archive's template, a date of three parts, finds files."""
OPERATIONS = ("create", "pwrite", "fdatasync", "fsync", "rename", "fsync_directory", "unlink", "make_directory", "allocate", "open")
MAX_FRAME_BYTES = 96
"""Of the bus, where there are no jobs."""
MERGE_WINDOWS = 4
"""Of the job table, which are merged at once."""
NEWEST_CHANGES, MERGED_CHANGES, MAX_FOLLOWED = 3, 6, 20
"""Of the change log: rows that are not merged yet, and those that are merged at once; how many a sink takes between two events."""
MAX_CHECKS, SUMS_OF_CHECKS = 12, 4
"""In how many of them, and at the end, sums are compared: one in so many."""
SETTLE_CHECK_SECONDS = 900.0
SETTLE_DAYS = 3
MAX_DOWN_WINDOWS = 1.5
"""How long an operator stops the writer, in windows."""
MAX_ROWS: dict[str, int | None] = {"stored": None, "job": 400, "backfilled": 0, "seam": 0, "received": None, "begun": 0, "stamp": 1}
"""Of the ledger's tables, at rest; None: a few for each source."""
COPY_AGE_SECONDS = 7200.0
"""A copy of the ledger that is younger passes for the ledger, as docs say."""
MAX_SECONDS, MAX_REAL_SECONDS = 300.0, 3600.0
"""Of the processor, and of real time on a busy machine, for a seed: the longest take twenty."""


class Endless(KeyboardInterrupt):
    """A seed does not end: the traceback says where it was. An interrupt, because asyncio catches everything else."""


@dataclass
class Outcome:
    """What became of a seed. wrong: empty if all was right; days: of site time."""

    plan: Plan
    wrong: str
    digest: str
    days: float
    seconds: float
    counts: Counter[str]
    lines: list[str] = field(repr=False)


def play(plan: Plan) -> Outcome:
    """Play a plan in a directory of its own."""
    collectors.__path__.append(KINDS)
    directory = Path(tempfile.mkdtemp(prefix="tokiod-simulation-", dir=MEMORY if MEMORY.is_dir() else None))
    begun, loop = time.process_time(), SimulatedLoop()
    # Private copies of watched files are made here: other processes play other sites, whose sources have the same names.
    tempfile.tempdir = str(directory / "tmp")
    (directory / "tmp").mkdir()
    asyncio.set_event_loop(loop)
    loop.set_exception_handler(loop.keep_failure)
    # The kernel tells a lease's holder by this signal that another program wants the file.
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    # Again and again, so that what ends the parts in the end is ended too.
    signal.signal(signal.SIGPROF, _end)
    signal.signal(signal.SIGALRM, _end)
    signal.setitimer(signal.ITIMER_PROF, MAX_SECONDS, 10.0)
    signal.setitimer(signal.ITIMER_REAL, MAX_REAL_SECONDS, 10.0)
    before, wrong = structlog.get_config(), ""
    set_back = _small_limits(plan)
    site = Site(plan, directory, loop)
    structlog.configure(processors=[site.journal.processor], wrapper_class=structlog.BoundLogger, cache_logger_on_first_use=False)
    try:
        loop.run_until_complete(site.run())
    except Wrong as error:
        wrong = str(error)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and not isinstance(error, Endless):
            raise
        wrong = "".join(traceback.format_exception(error))
    finally:
        with suppress(BaseException):
            site.machine.writer.die()
            site.machine.collectors.die()
            for folder in site.folders:
                folder.release()
            if site.nodes is not None:
                site.nodes.close()
            for task in asyncio.all_tasks(loop):
                task.cancel()
            loop.run_until_complete(asyncio.sleep(20))
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        structlog.configure(**before)
        set_back()
        collectors.__path__.remove(KINDS)
        loop.close()
        SOURCES.clear()
        SERVERS.clear()
        HUBS.clear()
        tempfile.tempdir = None
        shutil.rmtree(directory)
    site.journal.note(f"outcome {wrong.splitlines()[-1] if wrong else 'right'}")
    counts = site.counts + site.machine.counts + site.network.counts
    days = loop.now / 86400
    return Outcome(
        plan, wrong.replace(str(directory), ""), site.journal.digest(), days, time.process_time() - begun, counts, site.journal.lines
    )


def _small_limits(plan: Plan) -> Callable[[], None]:
    """Set the product's limits as small as the site is, so that they are reached, and its randomness; return what sets them back.

    These archives have a few files, not hundreds, and windows of a few cells; those of jobs have more.
    """
    before = file_scan.FILES_PER_TURN, feed.MAX_FRAME_BYTES, feed.MAX_PIECE_CELLS, sender.PART_BYTES
    merged, opened = job_table.MERGE_WINDOWS, job_table.opened
    log = changes.NEWEST_ROWS, changes.MERGED_ROWS
    secret, keys = secrets.token_hex, random.Random(f"keys/{plan.seed}")

    def set_to(files: int, frame_bytes: int, cells: int, part_bytes: int) -> None:
        file_scan.FILES_PER_TURN, feed.MAX_FRAME_BYTES, feed.MAX_PIECE_CELLS, sender.PART_BYTES = files, frame_bytes, cells, part_bytes
        feed._column_groups.cache_clear()

    def set_back() -> None:
        set_to(*before)
        secrets.token_hex = secret
        job_table.MERGE_WINDOWS, job_table.opened = merged, opened
        changes.NEWEST_ROWS, changes.MERGED_ROWS = log

    small = MAX_FRAME_BYTES, MAX_FRAME_BYTES // 8, MAX_FRAME_BYTES
    set_to(1, *(before[1:] if plan.has_jobs or plan.has_nodes else small))
    job_table.MERGE_WINDOWS = MERGE_WINDOWS
    changes.NEWEST_ROWS, changes.MERGED_ROWS = NEWEST_CHANGES, MERGED_CHANGES
    # The key of job ids is part of what the log says of a job.
    secrets.token_hex = lambda nbytes=None: keys.randbytes(nbytes or 32).hex()
    return set_back


def _end(_signal: int, _frame: object) -> None:
    raise Endless(f"the seed did not end within {MAX_SECONDS:.0f} s of the processor, or {MAX_REAL_SECONDS:.0f} s")


@cache
def _former_file(start: int) -> bytes:
    """Return a file of a former system; sites of many seeds have the same ones."""
    content = io.BytesIO()
    with h5py.File(content, "w") as file:
        file.attrs["start"] = start
    return content.getvalue()


class Site:
    """A site."""

    def __init__(self, plan: Plan, directory: Path, loop: SimulatedLoop) -> None:
        self.plan = plan
        self.calendar = Calendar(plan.zone)
        self.directory = directory
        self.counts: Counter[str] = Counter()
        self.rng = random.Random(f"site/{plan.seed}")
        self.tick = min(600.0, plan.window / 5)
        self.clock = MachineClock(loop, float(plan.begin), self.tick)
        self.journal = Journal(directory, self.clock)
        self.loop = loop
        self.network = Network(loop, random.Random(f"network/{plan.seed}"), 2.0, sender.PART_BYTES)
        self.acknowledged = Acknowledged()
        self.sources = {source.name: source for number in range(plan.systems) for source in self._sources(number)}
        SOURCES.clear()
        self.momentary = [self._momentary()] if plan.has_momentary else []
        SOURCES.update({one.name: one for one in (*self.sources.values(), *self.momentary)})
        self._add_former_files()
        (directory / "run").mkdir(0o700)
        self.folders = [self._folder()] if plan.has_folder else []
        self.jobs = JobServers(self.clock, "fs0", plan.seed, plan.begin, plan.window, self.calendar) if plan.has_jobs else None
        SERVERS.update({} if self.jobs is None else {NAME: self.jobs})
        self.nodes: Nodes | None = None
        self._unreadable_until = 0.0
        job_table.opened = partial(self._opened, job_table.opened)
        self.acknowledged.on_rows = self._note_rows
        self.all_sources: dict[str, Source] = {**self.sources, **{one.name: one for one in self.folders}}
        self.config = self._config()
        rng = random.Random(f"machine/{plan.seed}")
        self.machine = Machine(
            loop,
            self.clock,
            self.network,
            self.config,
            self.journal,
            self.acknowledged,
            rng,
            plan.window,
            self._writer_started,
            self._reader,
        )
        if plan.has_nodes:
            chance = random.Random(f"hub/{plan.seed}")
            HUBS[nodes.NAME] = hub = HubMachine(loop, self.clock, chance, self.config.hub, self.machine.has_power)
            self.nodes = Nodes(loop, self.clock, hub, directory, self.calendar, plan.seed)
        chance = random.Random(f"subscriber/{plan.seed}")
        self.subscriber = SlowSubscriber(self.config, self.all_sources, loop, self.clock, chance, self.counts)
        self.acknowledged.on_sent = self.subscriber.note_sent
        everything = Window(min(one.origin for one in self.all_sources.values()), plan.end + SETTLE_DAYS * 86400)
        self._chance_of_sink = random.Random(f"sink/{plan.seed}")
        system = self._chance_of_sink.choice(sorted({one.system for one in self.config.source}))
        self.followed = FollowedArchive(self._cells_in, [system], everything)
        self.journal.on_event |= {
            "file.set_aside": self._file_set_aside,
            "file.gone": self._file_gone,
            "file.collected": self._file_collected,
            "file.older": self._folder_unsettled,
            "ledger.rebuilt": self._folder_unsettled,
            "ledger.file_skipped": self._file_skipped,
        }
        self.machine.collectors.on_start = self._collectors_started
        self._put_after_start: random.Random | None = None
        self._touched: set[Path] = set()
        self._checks = 0
        self._failure: BaseException | None = None
        self._corrected: list[tuple[Source, int]] = []
        self._ledgers: list[tuple[float, bytes]] = []
        self._has_lost_ledger = False
        self._rebuilt_before: int | None = None
        self._skipped: set[Path] = set()

    # ---- the site

    def _sources(self, number: int) -> list[Source]:
        plan, rng = self.plan, random.Random(f"sources/{self.plan.seed}/{number}")
        fills = [(COUNTER, GAUGE)] if rng.random() < 0.6 else [(COUNTER,), (FULLNESS,)]
        found = []
        for index, datasets in enumerate(fills):
            source = Source(
                name=f"fs{number}-{index}",
                system=f"fs{number}",
                datasets=datasets,
                calendar=self.calendar,
                origin=plan.first_midnight if plan.old_midnight is None else plan.old_midnight,
                live=plan.first_midnight,
                old=self._old_day,
                end=plan.end,
                step=plan.step,
                reports_progress=rng.random() < 0.5,
                lag=rng.choice((0.0, 60.0)),
                seed=f"source/{plan.seed}",
                max_step=plan.max_step if COUNTER in datasets else 0.0,
            )
            source.fill(plan.columns, plan.faults)
            for row in range(source.rows):
                if row >= source.row(source.live) and rng.random() < 0.3 * plan.faults:
                    source.late[row] = source.origin + (row + 1) * source.step + rng.random() * self._recount[-1] * 0.8
            found.append(source)
        return found

    def _folder(self) -> FolderSource:
        """Return a source of a system of its own, whose files come into a watched folder."""
        plan, directory = self.plan, self.directory / "incoming"
        directory.mkdir()
        midnight = plan.first_midnight
        source = FolderSource(
            folders.NAME, "spool", (COUNTER,), self.calendar, midnight, midnight, None, plan.end, plan.step,
            reports_progress=False, lag=0.0, seed=f"source/{plan.seed}", directory=directory,
        )  # fmt: skip
        source.fill(plan.columns, plan.faults)
        return source

    @property
    def _folder_retention(self) -> int | None:
        """Return a short retention of the watched folder, in seconds, where no day of it can be lost; None: that of the other sources."""
        rng = random.Random(f"folder/retention/{self.plan.seed}")
        is_any_lost = any(event.kind in {"operation fails", "disk sick"} for event in self.plan.events)
        return None if is_any_lost or rng.random() < 0.6 else rng.choice(folders.SHORT_RETENTIONS)

    def _momentary(self) -> MomentarySource:
        """Return a source of a system of its own, of which only the present can be had."""
        plan, midnight = self.plan, self.plan.first_midnight
        window = next((one for one in momentary.WINDOWS if one <= plan.window), momentary.WINDOWS[-1])
        source = MomentarySource(
            momentary.NAME, "now", momentary.DATASETS, self.calendar, midnight, midnight, None, plan.end + SETTLE_DAYS * 86400, window,
            reports_progress=False, lag=0.0, seed=f"source/{plan.seed}",
        )  # fmt: skip
        source.fill(plan.columns, plan.faults)
        return source

    def _reader(self, task: Task) -> SavedCollector:
        return self.folders[0].reader(task, self.clock)

    def _add_former_files(self) -> None:
        """Let every second archive have many files of a former system: windows arrive before all of them are looked at."""
        other = self.directory / "tts" / OTHER
        other.mkdir(parents=True)
        for number in range(random.Random(f"former/{self.plan.seed}").choice((0, 40))):
            (other / f"former-{number}.hdf5").write_bytes(_former_file(self.plan.first_midnight - 86400 * number))

    @property
    def _old_day(self) -> Window | None:
        if self.plan.old_midnight is None:
            return None
        day = self.calendar.day(self.plan.old_midnight)
        return Window(day.start, day.end)

    @property
    def _recount(self) -> tuple[int, ...]:
        return 1800, 7200

    def _config(self) -> Config:
        plan, kind = self.plan, plugins.load("simulated")
        # After the end, a stopped writer may take its longest to start, and half a day passes until a missing file is noticed.
        retention = Duration(plan.end - plan.first_midnight + 43200 + int(MAX_DOWN_WINDOWS * plan.window))
        sources = tuple(
            kind.Config(
                name=source.name,
                kind="simulated",
                system=source.system,
                window=Duration(plan.window),
                settle=Duration(30),
                retention=retention,
                timeout=Duration(600),
                recount=tuple(map(Duration, self._recount)),
                heal_rate=0.0,
                fills=source.datasets,
                seconds=source.step,
                max_step=source.max_step,
            )
            for source in self.sources.values()
        )
        watched_folders = tuple(
            watched(kind.Saved)(
                name=one.name,
                kind="simulated",
                system=one.system,
                watch=str(one.directory),
                scan=Duration(plan.window),
                retention=retention if self._folder_retention is None else Duration(self._folder_retention),
                seconds=one.step,
            )
            for one in self.folders
        )
        jobs = () if self.jobs is None else (self._jobs_source(self.jobs, retention),)
        present = tuple(
            plugins.load("simulated_now").Config(
                name=one.name,
                kind="simulated_now",
                system=one.system,
                window=Duration(one.step),
                retention=retention,
                timeout=Duration(600),
                fills=one.datasets,
                seconds=one.step,
            )
            for one in self.momentary
        )
        archive = ArchiveConfig(path=f"{self.directory}/tts/%Y-%m-%d/{{system}}.hdf5", seal_after=Duration(self.rng.choice((6, 48)) * 3600))
        return Config(
            timezone=plan.zone,
            archive=archive,
            bus=BusConfig(endpoint=f"ipc://{self.directory}/run/bus"),
            source=sources + watched_folders + jobs + present + ((self._nodes_source(),) if plan.has_nodes else ()),
            hub=HubConfig(endpoint="tcp://127.0.0.1:5561", secret_key_file="hub", clients="clients", classes={CLASS: ("*",)}),
        )

    def _jobs_source(self, jobs: JobServers, retention: Duration) -> SourceConfig:
        window, limit = Duration(jobs.window), Duration(600)
        return plugins.load("simulated_jobs").Config(
            name=NAME, kind="simulated_jobs", system=jobs.system, window=window, retention=retention, timeout=limit, servers=("oss1",),
            jobid_name=("%j:%u:%H", "%e.%u"), cleanup_interval=Duration(jobs.work.cleanup),
        )  # fmt: skip

    def _nodes_source(self) -> SourceConfig:
        kind = plugins.load("simulated_nodes")
        return kind.Config(
            name=nodes.NAME, kind="simulated_nodes", system=nodes.SYSTEM, window=Duration(nodes.WINDOW), metrics=nodes.METRICS,
            recount=(Duration(nodes.RECOUNT),),
        )  # fmt: skip

    def _note_rows(self, collected: Collected) -> None:
        of = self.nodes if collected.meta.source == nodes.NAME else self.jobs
        if of is not None:
            of.note(collected)

    # ---- time

    async def run(self) -> None:
        """Let all happen, then wait until nothing changes any more, and compare."""
        plan = self.plan
        self.journal.note(f"seed {plan.seed}: {plan.hours:.1f} hours from {iso(plan.begin)} in {plan.zone}, {len(self.sources)} sources")
        keeping = [asyncio.ensure_future(self._guard(one.keep())) for one in (self.machine.writer, self.machine.collectors)]
        keeping += [asyncio.ensure_future(self._guard(one)) for one in (() if self.nodes is None else self.nodes.run())]
        for event in plan.events:
            await self._sleep_until(event.at)
            # Nobody can do anything on a machine without power.
            await self.machine.has_power.wait()
            self.journal.note(f"event {event}")
            self._copy_ledger()
            self._follow()
            self.counts[event.kind] += self._happen(event)
        await self._sleep_until(plan.end - plan.begin)
        await self._settle()
        for task in keeping:
            task.cancel()

    async def _guard(self, coroutine: object) -> None:
        try:
            await coroutine  # type: ignore[misc]
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - the main task raises it
            self._failure = error

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self.loop.failure is not None:
            raise self.loop.failure
        if self.journal.faults:
            raise Wrong(f"a fault in tokiod: {self.journal.faults[0]}")

    async def _sleep_until(self, at: float) -> None:
        while (seconds := at - self.loop.now) > 0:
            await asyncio.sleep(min(seconds, 3600.0))
            self._raise_failure()

    # ---- what happens

    def _happen(self, event: Event) -> bool:
        """Let an event happen; return whether it could."""
        rng = random.Random(event.number)
        return bool(getattr(self, "_" + event.kind.replace(" ", "_"))(rng))

    def _kill_writer(self, _rng: random.Random) -> bool:
        self.machine.writer.die()
        return True

    def _kill_writer_at_an_operation(self, rng: random.Random) -> bool:
        self.machine.files.kill_at(rng.choice((rng.randint(1, 60), rng.randint(1, 400))))
        if rng.random() < 0.3:
            self.machine.power_fails_after_kill = rng.uniform(1.0, 600.0)
        return True

    def _kill_writer_at_a_kind_of_operation(self, rng: random.Random) -> bool:
        """Kill the writer at an operation that happens rarely, too, and let the power fail once it has stored some windows again."""
        self.machine.files.kill(rng.choice(OPERATIONS), rng.randint(1, 3))
        if rng.random() < 0.7:
            self.machine.windows_after_kill = rng.randint(1, 4)
        return True

    def _kill_writer_before_a_name_is_durable(self, rng: random.Random) -> bool:
        """Kill the writer between the next rename and the sync of its directory; the power fails when windows are in that file."""
        self.machine.files.kills_undurable = True
        self.machine.windows_after_kill = rng.randint(1, 3)
        return True

    def _disk_sick(self, rng: random.Random) -> bool:
        sickness = self.machine.sickness
        sickness.until = self.loop.now + rng.choice((60.0, 600.0, 1.0 * self.plan.window))
        sickness.chance, sickness.code = rng.choice((0.02, 0.1, 0.3)), rng.choice((errno.EIO, errno.ENOSPC, errno.ESTALE))
        return True

    def _kill_writer_at_a_statement(self, rng: random.Random) -> bool:
        self.machine.writer.sqlite.kill_at(rng.randint(1, 200))
        return True

    def _kill_collectors(self, _rng: random.Random) -> bool:
        self.machine.collectors.die()
        return True

    def _kill_collectors_at_a_statement(self, rng: random.Random) -> bool:
        self.machine.collectors.sqlite.kill_at(rng.randint(1, 300))
        return True

    def _power_loss(self, _rng: random.Random) -> bool:
        self.machine.lose_power()
        return True

    def _power_loss_at_an_operation(self, rng: random.Random) -> bool:
        self.machine.power_fails_with_writer = True
        return self._kill_writer_at_an_operation(rng)

    def _operation_fails(self, rng: random.Random) -> bool:
        code = rng.choice((errno.EIO, errno.ENOSPC, errno.ESTALE))
        operation = rng.choice(("", "", "fdatasync", "fsync", "fsync_directory", "rename", "pwrite", "open", "stat"))
        for _ in range(rng.choice((1, 1, 3))):
            if operation:
                self.machine.files.fail(operation, rng.randint(1, 12), code)
                if operation == "fdatasync" and rng.random() < 0.5:  # what follows from a failed sync may fail as well
                    self.machine.files.fail("fsync_directory", rng.randint(1, 3), code)
            else:
                self.machine.files.fail_at(rng.randint(1, 200), code)
        return True

    def _statement_fails(self, rng: random.Random) -> bool:
        process = rng.choice((self.machine.writer, self.machine.collectors))
        process.sqlite.fail_at(rng.randint(1, 300), rng.choice((sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL)))
        return True

    def _disconnection(self, _rng: random.Random) -> bool:
        self.network.break_connections()
        return True

    def _network_frozen(self, rng: random.Random) -> bool:
        self.network.freeze(self.machine.scale * rng.choice((0.5, 2, 10)))
        return True

    def _writer_stopped_for_a_while(self, rng: random.Random) -> bool:
        self.machine.writer.stopped_until = self.loop.now + self.machine.scale * rng.choice((0.5, 2, 20))
        return True

    def _clock_jump(self, rng: random.Random) -> bool:
        seconds = rng.choice((5, -5, 600, -600, 86400, -7200, 30 * 86400, 3 * 365 * 86400))
        self.clock.ahead += seconds
        self.loop.call_later(rng.choice((120, 1200)), self._put_clock_right)
        return True

    def _put_clock_right(self) -> None:
        self.clock.ahead = 0.0

    def _source_sick(self, rng: random.Random) -> bool:
        source = rng.choice(list(self.sources.values()))
        now = self.clock.true_time()
        for one in self.momentary:
            one.sick.append((now, now + rng.choice((300, 3600)), "fails half"))
        source.sick.append((now, now + rng.choice((300, 3600, 6 * 3600)), rng.choice(("fails", "fails half", "hangs"))))
        if self.jobs is not None:
            self.jobs.sick.append(source.sick[-1])
        return True

    def _server_clock_jump(self, rng: random.Random) -> bool:
        """Let the clock of a server of the jobs jump for a while, at a site whose own clock is right."""
        if self.jobs is None or any(event.kind == "clock jump" for event in self.plan.events):
            return False
        now, ahead = self.clock.true_time(), rng.choice((7, -7, 600, -600, 7200, -7200))
        self.jobs.jumps.append((now, now + rng.choice((600, 3600, 4 * 3600)), ahead, rng.choice(NAMES)))
        return True

    def _server_silent(self, rng: random.Random) -> bool:
        """Let one server of the jobs not answer for a while."""
        if self.jobs is not None:
            now = self.clock.true_time()
            self.jobs.silent.append((now, now + rng.choice((1, 4, 8)) * self.jobs.window, rng.choice(NAMES)))
        return self.jobs is not None

    def _node_clock_jump(self, rng: random.Random) -> bool:
        """Let the clock of a node jump for a while, by so little that the hub bears it, or by more."""
        if self.nodes is not None:
            self.nodes.set_clock(rng.choice(self.nodes.all), rng.choice((1.5, -1.5, 30, 600, -600, 86400)), rng.choice((120, 1200)))
        return self.nodes is not None

    def _node_restart(self, rng: random.Random) -> bool:
        if self.nodes is not None:
            rng.choice(self.nodes.all).boot()
        return self.nodes is not None

    def _agent_restart(self, rng: random.Random) -> bool:
        if self.nodes is not None:
            rng.choice(self.nodes.all).restart_agent()
        return self.nodes is not None

    def _kill_hub(self, _rng: random.Random) -> bool:
        if self.nodes is not None:
            self.nodes.hub.die()
        return self.nodes is not None

    def _detach_disk(self, rng: random.Random) -> bool:
        """Detach a disk from a node on which jobs run, or attach it again."""
        if self.nodes is not None:
            rng.choice(self.nodes.all).kernel.attach(nodes.DISKS[1])
        return self.nodes is not None

    def _job_table_unreadable(self, rng: random.Random) -> bool:
        """Let the writer fail to read what it has stored of jobs, for a while in which a node that has restarted is asked again."""
        self._unreadable_until = self.loop.now + rng.choice((60.0, 1200.0, 2.0 * self.plan.window))
        if self.nodes is not None:
            rng.choice(self.nodes.all).boot()
            end = self.calendar.window(int(self.clock.true_time() - 2 * self.tick), nodes.WINDOW).start
            self._request(nodes.NAME, Window(end - nodes.WINDOW, end), force=True)
        return True

    @contextmanager
    def _opened(self, opened: Callable[[Path], AbstractContextManager[Any]], path: Path) -> Iterator[Any]:
        if self.loop.now < self._unreadable_until:
            raise OSError(errno.EIO, "the disk can't be read", str(path))
        with opened(path) as found:
            yield found

    def _seal(self, rng: random.Random) -> bool:
        """Request that a day is sealed, as `tokioctl seal` does: often the one that has just ended, rarely today, which windows reopen."""
        today = str(self.calendar.day(int(self.clock.true_time())).date)
        files = [path for path in self._live_files() if path.parent.name < today or rng.random() < 0.1]
        if files:
            path = rng.choice([*files, files[-1]])
            self.journal.note(f"file {path}")
            mark(path)
        return bool(files)

    def _remove_file(self, rng: random.Random) -> bool:
        """Let an operator delete a file, often while no writer runs, and often the one that is being filled.

        A service that an operator stops is down for longer than a restart takes; the windows of that time arrive at once afterwards.
        """
        if rng.random() < 0.8:
            self.machine.writer.down_until = self.loop.now + rng.choice((0.0, MAX_DOWN_WINDOWS, MAX_DOWN_WINDOWS)) * self.plan.window
            self.machine.writer.die()
        if rng.random() < 0.5 or not (files := self._destructible_files()):
            return self._with_file(rng, self._remove)
        path = max(files, key=lambda path: path.stat().st_mtime_ns)
        self.journal.note(f"file {path}")
        self._remove(path)
        return True

    def _damage_file(self, rng: random.Random) -> bool:
        """Let another program truncate a file, or overwrite its beginning."""
        return self._with_file(rng, lambda path: self._damage(path, rng))

    def _damage(self, path: Path, rng: random.Random) -> None:
        self._expect_nothing_of(path)
        self._touched.add(path)
        inode, size = path.stat().st_ino, path.stat().st_size
        if rng.random() < 0.5:
            os.truncate(path, size // 2)
        else:
            with path.open("r+b") as file:
                file.write(b"\xff" * 512)
        self.machine.damaged.add((path, inode))

    def _foreign_file(self, rng: random.Random) -> bool:
        """Let another program put a file of its own where the archive's files are."""
        path = self.config.archive.root / OTHER / f"{rng.choice(sorted(self.sources))}.hdf5"
        path.parent.mkdir(exist_ok=True)
        with h5py.File(path, "w") as file:
            file.attrs["start"] = rng.choice(("noon", math.nan, 1e300, -1))
        return True

    def _remove_damaged(self) -> None:
        """Remove what an operator finds damaged in the end: files that were not replaced since."""
        shutil.rmtree(self.config.archive.root / OTHER, ignore_errors=True)
        for path in sorted({path for path, _ in self.machine.damaged if self.machine.is_damaged(path)}):
            self._remove(path)

    def _remove(self, path: Path) -> None:
        path.unlink()
        self._touched.add(path)
        self._expect_nothing_of(path)

    def _expect_nothing_of(self, path: Path) -> None:
        """Expect no acknowledged sample in a file that is destroyed, until it is collected again."""
        day = self.calendar.day_of_date(dt.date.fromisoformat(path.parent.name))
        names = [source.name for source in (*self.all_sources.values(), *self.momentary) if source.system == path.stem]
        self.acknowledged.forget(names, Window(day.start, day.end))

    def _with_file(self, rng: random.Random, action: Callable[[Path], object]) -> bool:
        if not (files := self._destructible_files()):
            return False
        path = rng.choice([*files, files[-1], files[-1]])
        self.journal.note(f"file {path}")
        action(path)
        return True

    def _remove_ledger(self, rng: random.Random) -> bool:
        """Let an operator delete the ledger, or its directory; late records that it knew of are collected again by force in the end."""
        self._corrected += [(source, row) for source in self.sources.values() for row in source.late]
        self._has_lost_ledger = True
        self._folder_unsettled()
        self._rebuilt_before = self.journal.events["ledger.rebuilt"]
        self._skipped.clear()
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self.config.archive.ledger}{suffix}").unlink(missing_ok=True)
        if rng.random() < 0.4:
            # It may be gone already: the writer was down since it was removed.
            shutil.rmtree(self.config.archive.ledger.parent, ignore_errors=True)
            if rng.random() < 0.5:
                self._reload(rng)
        return True

    def _older_ledger(self, rng: random.Random) -> bool:
        """Let an operator put a copy of the ledger back that was made some hours ago."""
        copies = [copy for at, copy in self._ledgers if at < self.loop.now - COPY_AGE_SECONDS]
        if not copies:
            return False
        self._remove_ledger(rng)
        self._rebuilt_before = None
        self.config.archive.ledger.parent.mkdir(exist_ok=True)
        self.config.archive.ledger.write_bytes(copies[-1])
        return True

    def _copy_ledger(self) -> None:
        """Keep a copy of the ledger, as a backup of the archive does."""
        with suppress(sqlite3.Error), closing(sqlite3.connect(f"{self.config.archive.ledger.as_uri()}?mode=ro", uri=True)) as ledger:
            self._ledgers = [*self._ledgers[-5:], (self.loop.now, ledger.serialize())]

    def _follow(self) -> None:
        """Let a sink take some changes of the log, and their cells from the files."""
        with suppress(TokiodError, LedgerError), Ledger.open_readonly(self.config.archive.ledger, checked=False) as ledger:
            self.followed.follow(ledger, self._chance_of_sink.randint(1, MAX_FOLLOWED))

    def _cells_in(self, system: str, window: Window) -> Cells:
        """Return the cells of a system's files in a window; none of a file that another program damaged."""
        found: Cells = {}
        for day in days(self.calendar, window.start, window.end):
            path = self.config.archive.file(day, system)
            held = None if self.machine.is_damaged(path) else read(path)
            for column, cells in () if held is None else held.cells.items():
                found |= {(*column, time): cell for time, cell in cells.items() if window.start <= time < window.end}
        return found

    def _files(self) -> list[Path]:
        return sorted(path for path in self.config.archive.files() if path.parent.name != OTHER)

    def _live_files(self) -> list[Path]:
        first = str(self.calendar.day(self.plan.first_midnight).date)
        return [path for path in self._files() if path.parent.name >= first]

    def _destructible_files(self) -> list[Path]:
        """Return the live files that would be filled again."""
        kept = {folder.system for folder in self.folders if self._folder_retention is not None}
        return [path for path in self._live_files() if path.stem not in kept]

    def _reopen(self, rng: random.Random) -> bool:
        return self._add_job(rng, force=True)

    def _backfill(self, rng: random.Random) -> bool:
        return self._add_job(rng, force=rng.random() < 0.5)

    def _backfill_an_old_day(self, rng: random.Random) -> bool:
        """Backfill a day that polling does not reach, and mostly kill the collectors meanwhile."""
        source = rng.choice(list(self.sources.values()))
        if source.old is None:
            return False
        source.is_old_wanted |= self._request(source.name, source.old, force=False)
        if rng.random() < 0.7:
            # The last two queries are for the samples before and after the day.
            last = source.old.seconds // bulk_length(self.plan.window) + 2
            source.kill_at_query, source.kill = rng.choice((rng.randint(1, last), last - 1, last)), self.machine.collectors.die
        return source.is_old_wanted

    def _add_job(self, rng: random.Random, *, force: bool) -> bool:
        source = rng.choice(list(self.sources.values()))
        if (closed := self._closed(source)) <= source.live:
            return False
        length = rng.choice((1, 3, 10)) * self.plan.window
        start = self.calendar.window(rng.randrange(source.live, closed), self.plan.window).start
        return self._request(source.name, Window(start, min(start + length, closed)), force=force)

    def _closed(self, source: Source) -> int:
        """Return the end of the newest window that is over: operators ask for no other."""
        now = int(self.clock.true_time() - 2 * self.tick - source.lag)
        return min(self.calendar.window(now, self.plan.window).start, source.end)

    def _request(self, source: str, span: Window, *, force: bool) -> bool:
        """Add a job, as `tokioctl backfill` does; return whether the ledger could be written."""
        try:
            with Ledger.open_existing(self.config.archive.ledger) as ledger:
                ledger.jobs.add(JobRequest(source, span, force=force), self.clock.time())
        except Exception as error:  # noqa: BLE001 - the ledger is not there yet
            self.journal.note(f"no job: {type(error).__name__}")
            return False
        return True

    def _correction(self, rng: random.Random) -> bool:
        """Let a source correct a row that it held before, and an operator collect it again."""
        source = rng.choice(list(self.sources.values()))
        now = self.clock.true_time()
        last = source.row(self._closed(source)) - 1
        if last < source.row(source.live):
            return False
        row = rng.randint(max(source.row(source.live), last - 50), last)
        somewhen = rng.randint(source.row(source.live), last)
        midnight = source.row(self.calendar.day(source.origin + somewhen * source.step).start)
        if rng.random() < 0.5 and midnight > source.row(source.live):
            row = midnight - rng.choice((0, 1, 1, 2))  # the other day's counters continue from it
        for dataset, columns in source.samples.items():
            for name, column in columns.items():
                if row in column:
                    value = max(0, column[row] + rng.choice((-5, -1, 1, 3)))
                    source.corrections.setdefault((dataset, name, row), []).append((now, value))
        self._corrected.append((source, row))
        self._collect_corrected(source, row)
        return True

    def _collect_corrected(self, source: Source, row: int) -> None:
        start = source.origin + row * source.step
        window = self.calendar.window(start, self.plan.window)
        self._request(source.name, Window(window.start, min(window.end, source.end)), force=True)

    def _put_file(self, rng: random.Random) -> bool:
        """Let a program put a file into the watched folder, and sometimes kill the collectors while they collect it."""
        if rng.random() < 0.2:
            self.folders[0].kill_at_query, self.folders[0].kill = rng.randint(1, 3), self.machine.collectors.die
        return self.folders[0].put(rng, self.clock.true_time())

    def _put_file_slowly(self, rng: random.Random) -> bool:
        return self.folders[0].put_slowly(rng, self.clock.true_time(), self.loop.call_later)

    def _put_held_file(self, rng: random.Random) -> bool:
        return self.folders[0].put_held(rng, self.clock.true_time())

    def _put_malformed_file(self, rng: random.Random) -> bool:
        self.folders[0].put_malformed(rng, self.clock.true_time())
        return True

    def _put_corrected_file(self, rng: random.Random) -> bool:
        return self.folders[0].put_corrected(rng, self.clock.true_time())

    def _put_file_at_a_start(self, rng: random.Random) -> bool:
        """Restart the collectors, and let a program put a file into the watched folder while they look at it."""
        self._put_after_start = rng
        rng.choice((self.machine.collectors.die, self.machine.collectors.stop))()
        return True

    def _restart(self, rng: random.Random) -> bool:
        rng.choice((self.machine.writer, self.machine.collectors)).stop()
        return True

    def _reload(self, _rng: random.Random) -> bool:
        if self.machine.collectors.process is not None and self.machine.writer.process is not None:
            self.machine.collectors.process.request_reload()
            self.machine.writer.process.reload()
            return True
        return False

    # ---- what must be true

    def _writer_started(self) -> None:
        self.subscriber.connect(self.network.servers[self.config.feed_inner])
        self._check_rebuilt()
        self._checks += 1
        if self.machine.writer.starts > 1 and self._checks <= MAX_CHECKS:
            self._check()

    def _collectors_started(self) -> None:
        for folder in self.folders:
            with suppress(TokiodError, LedgerError), Ledger.open_readonly(self.config.archive.ledger, checked=False) as ledger:
                folder.settle(ledger)
        if (rng := self._put_after_start) is not None:
            self._put_after_start = None
            self.loop.call_later(rng.random() * QUIET_SECONDS, lambda: self.folders[0].put(rng, self.clock.true_time()))

    def _folder_unsettled(self, _event: object = None) -> None:
        for folder in self.folders:
            folder.settled.clear()

    def _file_skipped(self, event: MutableMapping[str, Any]) -> None:
        if event["error"].startswith("[Errno"):  # the disk's, not one of HDF5 about the content
            self._skipped.add(Path(event["path"]))

    def _file_collected(self, event: MutableMapping[str, Any]) -> None:
        if any(Path(event["path"]) in folder.settled for folder in self.folders):
            self.journal.faults.append(f"a file whose collection was recorded is collected again: {event['path']}")

    def _check_rebuilt(self) -> None:
        """A ledger that was removed is made again from the sound files, not from nothing. Raises Wrong.

        A file is not sound that the disk failed to sync.
        Files older than the retention are not looked at: all of them seem to be, to a clock that is years ahead.
        """
        before, self._rebuilt_before = self._rebuilt_before, None
        oldest = self.clock.time() - max(source.retention for source in self.config.source)
        systems = {source.system for source in self.sources.values()}
        files = [path for path in self._live_files() if path.stem in systems and not self.machine.is_damaged(path)]
        files = [path for path in files if path not in self._skipped]
        has_files = any(self.calendar.day_of_date(dt.date.fromisoformat(path.parent.name)).end > oldest for path in files)
        if before == self.journal.events["ledger.rebuilt"] and has_files:
            raise Wrong("the ledger was removed, and the next writer has not rebuilt it from the files")

    def _check(self, scratch: Path | None = None) -> None:
        process = self.machine.writer.process
        ledger = None if process is None else process._ledger
        sources = {**self.all_sources, **{one.name: one for one in self.momentary}}
        check_now(self.config, sources, self.acknowledged, ledger, self.machine.is_damaged)
        for one in self.momentary if ledger is not None else ():
            self.counts["momentary samples compared"] += one.check(ledger.stored(one.name), self._sound_files(one))
        is_due, is_ordered = scratch is not None or self._checks % SUMS_OF_CHECKS == 1, not self.counts["clock jump"]
        for what, of in (("jobs", self.jobs), ("nodes", self.nodes)):
            if of is not None:
                rows, sums = of.check(self.config.archive.jobs, with_sums=is_due, is_ordered=is_ordered, scratch=scratch)
                self.counts[f"rows of {what} compared"] += rows
                self.counts[f"sums of {what} compared"] += sums

    def _check_followed(self) -> None:
        """A sink that took each change that was logged has every cell, and no other. Raises Wrong."""
        with Ledger.open_readonly(self.config.archive.ledger, checked=False) as ledger:
            self.followed.follow(ledger, MAX_FOLLOWED)
            while not self.followed.is_current(ledger):
                self.followed.follow(ledger, MAX_FOLLOWED)
        for system, cells in self.followed.cells.items():
            if wrong := cells.items() ^ self._cells_in(system, self.followed.everything).items():
                raise Wrong(f"a sink of {system} has other cells than the files, {len(wrong)}: {sorted(wrong)[:4]}")
        self.counts["files read whole by a sink"] += self.followed.from_files

    def _sound_files(self, source: Source) -> dict[int, dict[tuple[str, str], dict[int, float]]]:
        """Return the cells of the files of a source that no other program damaged, by the beginning of their day."""
        found = {}
        for day in days(self.calendar, source.origin, source.end):
            path = self.config.archive.file(day, source.system)
            if not self.machine.is_damaged(path) and (held := read(path)) is not None:
                found[day.start] = held.cells
        return found

    def _file_set_aside(self, event: MutableMapping[str, Any]) -> None:
        path = Path(event["path"])
        at = self.machine.set_aside_at.pop(path, self.loop.now)
        if not event["salvaged"]:
            self._given_up(path, event["reason"], at)

    def _file_gone(self, event: MutableMapping[str, Any]) -> None:
        # A file that was set aside is missing where another is made under its name, before the next commit reports it.
        path = Path(event["path"])
        at = self.machine.set_aside_at.get(path, self.loop.now)
        self._given_up(path, event["reason"], self.loop.now, at, *self.machine.writer_ended_at)

    def _given_up(self, path: Path, reason: str, *moments: float) -> None:
        """Note that the windows of a file are not acknowledged any more. Count it as a fault if there is no cause for it.

        The cause may be another program that touched the file; or two operations that failed at one of the moments: that of the file, and
        that of its copy. A directory that can't be synced is no cause.
        """
        day = self.calendar.day_of_date(dt.date.fromisoformat(path.parent.name))
        failed = [operation for at, operation in self.machine.failures if at in moments]
        has_cause = path in self._touched or (len(failed) > 1 and set(failed) != {"fsync_directory"})
        for source in () if has_cause else (*self.all_sources.values(), *self.momentary):
            known = self.acknowledged.samples[source.name] if source.system == path.stem else {}
            if any(day.start <= time < day.end for _, _, time in known):
                self.journal.faults.append(f"a sound file was given up: {path.parent.name} {path.stem}: {reason}")
                return
        self._expect_nothing_of(path)
        self._folder_unsettled()

    async def _settle(self) -> None:
        """Let all faults end, and wait until nothing is missing and all is sealed."""
        machine = self.machine
        self.journal.note("faults end")
        machine.clear_faults()
        self._unreadable_until = 0.0
        self.clock.ahead = 0.0
        self.subscriber.loses = False
        if self.jobs is not None:
            self.jobs.sick.clear()
            self.jobs.silent.clear()
            self.jobs.jumps = [(start, min(end, self.clock.true_time()), *rest) for start, end, *rest in self.jobs.jumps]
        if self.nodes is not None:
            self.nodes.settle()
        for source in (*self.all_sources.values(), *self.momentary):
            source.sick.clear()
            source.kill_at_query = 0
        await self._wait(lambda: machine.writer.process is not None and machine.collectors.process is not None, "the processes run")
        # A writer that was stopped meanwhile notices only now that its ledger was removed; an operator's request fails until then.
        await self._wait(self.config.archive.ledger.exists, "there is a ledger")
        self._remove_damaged()
        for source, row in self._corrected:
            self._collect_corrected(source, row)
        for source in self.sources.values():
            if source.is_old_wanted and source.old is not None:  # a power loss may have taken the job, or a failing disk the file
                self._request(source.name, source.old, force=self._has_lost_ledger)
        await asyncio.sleep(2 * SETTLE_CHECK_SECONDS)
        await self._wait(self._is_all_noticed, "all missing files are noticed")
        await self._wait(self._is_all_collected, "at rest")
        self._check()
        await self._verify()
        for path in self._files():
            mark(path)
        await self._wait(self._is_sealed, "all sealed")
        if machine.writer.process is not None and machine.writer.process._receiver.incomplete_bytes:
            # A connection whose process was killed is forgotten after so long a silence, and its incomplete windows with it.
            await asyncio.sleep((SILENCE_SECONDS + 1) * machine.scale)
        self._check_bounds()
        self._check(self.directory)
        check_end(self.config, self.all_sources)
        self.subscriber.check()
        self._check_followed()
        (self.directory / "undisturbed").mkdir()
        with Ledger.open_readonly(self.config.archive.ledger, checked=False) as ledger:
            self.counts["sealed files compared"] += check_sealed(self.config, self.all_sources, ledger, self.directory / "undisturbed")

    def _is_all_noticed(self) -> str | bool:
        """Return whether the writer has noticed each file that is missing and could be collected again: a scan of many takes a while."""
        try:
            with Ledger.open_readonly(self.config.archive.ledger, checked=False) as ledger:
                missing = ledger.known_files(self.config.archive.root).missing(self._held_since)
        except (TokiodError, LedgerError) as error:  # the writer may be starting
            return f"the ledger can't be read: {error}"
        return ", ".join(str(one.path) for one in missing) or True

    def _held_since(self, system: str) -> float:
        return self.clock.time() - max(int(source.retention) for source in self.config.source if source.system == system)

    async def _verify(self) -> None:
        """Have `tokioctl verify` query some windows again, of live and of sealed days: nothing may differ. Raises Wrong."""
        rng = random.Random(f"verify/{self.plan.seed}")
        source = rng.choice(list(self.sources.values()))
        config = next(one for one in self.config.source if one.name == source.name)
        somewhen = self.calendar.window(rng.randrange(source.live, source.end), self.plan.window)
        span = Window(somewhen.start, min(source.end, somewhen.end + rng.choice((0, 1, 4)) * self.plan.window))
        span = Window(span.start, self.calendar.window(span.end - 1, self.plan.window).end)
        compared, verified = Verified(), VerifiedSource(config, source.collector(self.clock), self.calendar, self.clock)
        with Ledger.open_readonly(self.config.archive.ledger, checked=False) as ledger:
            verification = Verification(self.config.archive, verified, ledger, config.datasets(), directory=self.directory)
            found = [one async for one in verification.run(span, compared)]
        self.counts["cells verified"] += compared.cells
        if found:
            raise Wrong(f"verify: {source.name} in {span}: {found[:3]}")

    def _check_bounds(self) -> None:
        """Nothing grows with time: rows of the ledger, open files, what is in flight. Raises Wrong."""
        with closing(sqlite3.connect(f"{self.config.archive.ledger.as_uri()}?mode=ro", uri=True)) as ledger:
            rows = {table: ledger.execute(f"SELECT * FROM {table}").fetchall() for table in MAX_ROWS}
            unstored = ledger.execute("SELECT source, start, \"end\" FROM unstored WHERE state IN ('lost', 'empty')").fetchall()
        windows = {nodes.NAME: nodes.WINDOW, **{one.name: one.step for one in self.momentary}}
        for name, *edges in rows["stored"]:
            length = windows.get(name, self.plan.window)
            if inside := [time for time in edges if self.calendar.window(time, length).start != time]:
                raise Wrong(f"{name}: what is stored begins or ends inside a window, at {iso(inside[0])}")
        # Windows that are lost or without samples part what is stored; samples may come for these, days later.
        settled: defaultdict[str, Ranges] = defaultdict(Ranges)
        for name, *edges in sorted(rows["stored"] + unstored):
            settled[name].add(*edges)
        recorded = [(name, *pair) for name, pairs in settled.items() for pair in pairs]
        # Each time that the clock was ahead left a span of the future recorded as empty, or stored or lost of a source without samples that
        # prove the time, until its time comes.
        ahead = [row for row in recorded if row[1] > self.clock.true_time()]
        if len(ahead) > len(self.config.source) * self.counts["clock jump"]:
            raise Wrong(f"{len(ahead)} spans of the future are recorded: {ahead[:8]}")
        rows["stored"] = [row for row in recorded if row not in ahead]
        # A rebuild keeps what it can't examine, before the retention.
        polled = len(self.sources) + len(self.momentary) + (self.jobs is not None) + (self.nodes is not None)
        spans = polled * (2 + 2 * self.journal.events["ledger.rebuilt"])
        # Of each file as it came, as it was rejected, and as an operator put it back.
        received = sum(one.written for one in self.folders)
        for table, most in MAX_ROWS.items():
            if len(rows[table]) > (spans + 3 * received if most is None else most):
                raise Wrong(f"{len(rows[table])} rows in the ledger's table {table}: {rows[table][:8]}")
        writer, sender = self.machine.writer.process, self.machine.collectors.process
        if writer is not None and len(writer._days.open_files) > writer._days.max_open:
            raise Wrong(f"{len(writer._days.open_files)} files are open")
        if writer is not None and writer._receiver.incomplete_bytes:
            raise Wrong(f"{writer._receiver.incomplete_bytes} bytes of incomplete windows")
        if sender is not None and sender._sender.state.in_flight > self.config.bus.max_windows:
            raise Wrong(f"{sender._sender.state.in_flight} windows are in flight")

    async def _wait(self, condition: Callable[[], str | bool], what: str) -> None:
        until, state = self.loop.now + SETTLE_DAYS * 86400, condition()
        while state is not True:
            if self.loop.now > until:
                raise Wrong(f"never {what}: {state}")
            await asyncio.sleep(SETTLE_CHECK_SECONDS)
            self._raise_failure()
            state = condition()
        self.journal.note(f"{what}")

    def _is_all_collected(self) -> str | bool:
        """Return whether every file and window is collected; those whose collectors were killed are put back."""
        for folder in self.folders:
            folder.put_back()
            try:
                with Ledger.open_readonly(self.config.archive.ledger, checked=False) as ledger:
                    if not folder.is_collected(ledger):
                        return f"not all files in {folder.directory} are collected"
            except (TokiodError, LedgerError) as error:  # the writer may be starting
                return f"the ledger can't be read: {error}"
        return self._is_at_rest()

    def _is_at_rest(self) -> str | bool:
        try:
            with Ledger.open_readonly(self.config.archive.ledger, checked=False) as ledger:
                for source in self.sources.values():
                    known = ledger.stored(source.name)
                    # A window without samples is stored, or recorded as empty until newer samples come.
                    for one in ledger.unstored(source.name):
                        if one.state == "empty" and not source.holds(one.window):
                            known.add(one.window.start, one.window.end)
                    if holes := [hole for span in source.wanted for hole in known.holes(span.start, span.end)]:
                        why = [(one.state, one.error) for one in ledger.unstored(source.name)][:3]
                        return f"{source.name} misses {holes[0]} and {len(holes) - 1} more; {why}"
                    if jobs := ledger.jobs.unfinished(source.name):
                        return f"job {jobs[0]} is not finished"
                    # The recounts of what is whole wait for samples, and there will be none: hours would pass for each. What was stored
                    # after the last late record came is whole, unless the writer stood still after it was collected.
                    last = source.end + self._recount[-1]
                    due = [one for one in ledger.counts(source.name).due(1e12, self._recount) if one.window.end <= source.end]
                    if due := [one for one in due if one.stored_at < last or one.records < source.data(one.window, FOREVER).records]:
                        return f"{source.name}: {due[0]} is to be recounted"
        except Exception as error:  # noqa: BLE001 - the writer may be starting
            return f"the ledger can't be read: {error}"
        return True

    def _is_sealed(self) -> str | bool:
        if marked := sorted(marked_files(self.config.archive.root)):
            return f"{marked[0]} is marked"
        for path in self._files():
            with open_for_reading(path) as file:
                form = form_of(file)
            if form != "sealed":
                mark(path)  # made meanwhile: tomorrow's file is made before midnight
                return f"{path} is live"
        return True
