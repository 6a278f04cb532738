"""The archive against dictionaries: any sequence of windows, kills, power losses, failed operations, midnights, sealings and backfills.

The real writer over the real sink, files, ledger and maintenance; only its sockets and its disk are a test's. After each step every cell
of every day is known, sealed, reopened or live. MODEL_SEQUENCES=n plays more sequences, `make model` a long run; a failure prints the
steps and @reproduce_failure, with which hypothesis plays them again.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import structlog
from bare_writer import NoAdmission
from faulty_files import FaultyFiles, SimulatedKill
from followed_archive import Cells, FollowedArchive, cells_of
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from manual_executor import ManualExecutor
from model_archive import Model, Reading, bits, right_bits
from model_site import EVERYTHING, NAMES, NIGHTS, STEP, Site

from collectors.lmt.config import Config as LmtConfig
from sinks.tts.day_files import DayFiles
from sinks.tts.reopened_days import IDLE_SECONDS
from sinks.tts.sink import TtsSink
from tokiod.archive.layout import daily
from tokiod.bus.protocol import Part
from tokiod.bus.receiver import Arrived
from tokiod.config.schema import Config
from tokiod.config.sections import ArchiveConfig
from tokiod.ledger.changes import KEEP_SECONDS
from tokiod.ledger.ledger import Ledger
from tokiod.testing.clock import FakeClock
from tokiod.tts.live.files import Files, sweep
from tokiod.units import Duration
from tokiod.window import Calendar, Window
from tokiod.writer.loop import Heartbeat, Writer
from tokiod.writer.maintenance import Maintenance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from model_archive import Held

    from tokiod.archive.layout import FileSlot
    from tokiod.errors import Refusal
    from tokiod.window_data import Collected

SEQUENCES = int(os.environ.get("MODEL_SEQUENCES", "40"))
MEMORY = Path("/dev/shm")
HEIGHT = 4
"""Rows of a window that is polled."""

ATTEMPTS, REFUSALS = 3, 4
"""How often a window is sent before it is left for later; after how many refusals the work that they wait for is done."""
RARE = 12
"""Of so many operations one is of the kind that fails, more or less."""
MANY_DAYS, MANY_SYSTEMS = 40, 3
"""Of a large archive: more files than the writer keeps open, and more than its maintenance examines in one turn."""


@dataclass(frozen=True)
class Kill:
    """The process is killed after so many file operations. power: by a loss of power with this seed; forgetful: with the ledger's tail."""

    operations: int
    power: int | None
    forgetful: bool


@dataclass(frozen=True)
class Fault:
    """A file operation fails: the last of so many of whatever kind, or of one kind some time later."""

    operations: int
    code: int
    kind: str = ""


OPERATIONS = [name for name, operation in vars(Files).items() if callable(operation) and not name.startswith("_")]
"""Every kind of file operation that there is, the sync of a directory among them."""

numbers = st.integers(0, 2**32 - 1)
moments = st.integers(0, MANY_DAYS * 25)
"""Rows, counted from the first midnight, over all days that there are."""
days = st.integers(0, MANY_DAYS)
systems = st.integers(0, MANY_SYSTEMS - 1)
kills = st.builds(Kill, st.integers(1, 60), st.one_of(st.none(), numbers), st.booleans())
faults = st.builds(Fault, st.integers(1, 60), st.sampled_from((errno.EIO, errno.ENOSPC, errno.ESTALE)), st.sampled_from(("", *OPERATIONS)))
fates = st.one_of(st.none(), st.none(), st.none(), kills, kills, faults)


class Mailbox:
    """The writer's sockets: what has arrived, and what became of it."""

    def __init__(self) -> None:
        self.arrived: list[Arrived] = []
        self.stored: list[Collected] = []
        self.refused: list[Collected] = []

    def poll(self, _timeout_ms: int) -> list[Arrived]:
        arrived, self.arrived = self.arrived, []
        return arrived

    def ack(self, arrived: Arrived, _cells: int, _dropped: dict[str, int]) -> None:
        self.stored.append(arrived.collected)

    def refuse(self, arrived: Arrived, refusal: Refusal) -> None:
        assert refusal.when != "never", refusal.message
        assert "a fault in the writer" not in refusal.message, refusal.message
        self.refused.append(arrived.collected)

    def beat(self) -> None:
        """No collectors listen."""

    reload = beat


class SilentFeed:
    """The feed of a writer without subscribers."""

    def publish(self, *_: object) -> None:
        """No subscriber listens."""

    beat = poll = skip = publish


@dataclass
class System:
    """A system's site, its files, and what of it is stored; whole: the rows that the ledger must call stored."""

    site: Site
    paths: list[Path]
    model: Model
    whole: set[int] = field(default_factory=set)
    next_row: int = 0

    def day_of(self, collected: Collected) -> int:
        return self.site.day_of(self.site.row(collected.meta.window.start))


class ArchiveMachine(RuleBasedStateMachine):
    """The archive and its model."""

    zone = "UTC"
    lengths = (2, 2, 3)
    widths = (1, 1, 2)
    archive: Path | None = None

    # Sites are made of a number: what a sequence does to them is what is to be made small when it fails.
    @initialize(seed=numbers, shape=numbers, patient=st.booleans(), seal=st.sampled_from((False, False, True)))
    def begin(self, seed: int, shape: int, *, patient: bool, seal: bool) -> None:
        length, width = self.lengths[shape % len(self.lengths)], self.widths[shape // len(self.lengths) % len(self.widths)]
        self.directory = Path(tempfile.mkdtemp(prefix="model-", dir=MEMORY if MEMORY.is_dir() else None))
        self.archive, self.ledger_path = self.directory / "tts", self.directory / "ledger.sqlite3"
        self.archive.mkdir()
        self.config = Config(timezone=self.zone, archive=ArchiveConfig(path=f"{self.archive}/%Y-%m-%d/{{system}}.hdf5"))
        self.systems = [self.system(Site(self.zone, seed + number, length, f"fs{number}")) for number in range(width)]
        sources = [
            LmtConfig(name=one.site.source, kind="lmt", system=one.site.system, url="sqlite:///lmt", retention=Duration(400 * 86400))
            for one in self.systems
        ]
        self.config = Config(timezone=self.zone, archive=self.config.archive, source=tuple(sources))
        self.clock, self.reading, self.files = FakeClock(self.systems[0].site.days[0].start), Reading(), FaultyFiles(self.archive)
        self.patient, self.seal_in_the_end = patient, seal
        self.ledger_is_current, self.may_fail, self.refusals = True, False, 0
        self.kill: Kill | None = None
        self.ledgers: list[bytes] = []
        self.in_flight: list[Collected] = []
        self.asides: set[Path] = set()
        self.misfortunes: list[str] = []
        site = self.systems[0].site
        everything = Window(site.days[0].start, site.days[-1].end)
        self.followed = FollowedArchive(self.cells_in, [one.site.system for one in self.systems], everything)
        self.boot()
        self.fill(seed)

    def fill(self, seed: int) -> None:
        """Put what is there before anything happens into the archive."""

    def system(self, site: Site) -> System:
        return System(site, [self.config.archive.file(day, site.system) for day in site.days], Model(site))

    def boot(self) -> None:
        """Start as tokiod.writer.process does."""
        for directory in {temporary.parent for temporary in self.archive.rglob(".*.tmp")}:
            sweep(directory)
        self.reading.forget()
        self.mailbox, self.executor = Mailbox(), ManualExecutor() if self.patient else None
        layout = daily(Calendar(self.zone), self.config.archive.file)
        max_rates = {one.site.system: one.site.max_rates for one in self.systems}
        self.sink = TtsSink(
            DayFiles(
                layout,
                self.clock,
                self.files,
                self.executor or "inline",
                pause=self.work,
                max_rates=max_rates,
                before_create=self.before_create,
            )
        )
        self.ledger = Ledger.open_or_quarantine(self.ledger_path, self.clock.time())
        self.ledger.changes.newest_rows, self.ledger.changes.merged_rows = 3, 6
        if self.ledger.changes.state() is None:
            self.ledger.changes.begin_epoch(self.clock.time())
        else:
            self.ledger.changes.begin_run()
        feed = SilentFeed()
        heartbeat = Heartbeat(self.mailbox, feed, self.clock.monotonic)
        self.maintenance = Maintenance(self.config, layout, self.sink, self.ledger, self.clock, self.files)
        self.maintenance.forget_missing_files()
        self.maintenance.adopt()
        self.forget_lost()
        self.writer = Writer(self.mailbox, self.sink, self.ledger, feed, self.clock, heartbeat, self.maintenance, NoAdmission())

    def before_create(self, slot: FileSlot) -> None:
        self.maintenance.before_create(slot)

    # ---- what happens

    @rule(system=systems, windows=st.integers(1, 9), fate=fates)
    def poll(self, system: int, windows: int, fate: Kill | Fault | None) -> None:
        """Live polling goes on."""
        self.meet(fate)
        one = self.chosen(system)
        first = one.next_row
        last = min(first + HEIGHT * windows, one.site.edges[-1])
        spans = [(row, min(row + HEIGHT, last)) for row in range(first, last, HEIGHT)]
        self.deliver(one, (span for each in spans for span in one.site.cut(*each)))
        one.next_row = last if last < one.site.edges[-1] else 0

    @rule(
        system=systems,
        first=moments,
        rows=st.integers(1, 9),
        datasets=st.sets(st.sampled_from(EVERYTHING)),
        again=st.booleans(),
        fate=fates,
    )
    def batch(self, system: int, first: int, rows: int, datasets: set[str], fate: Kill | Fault | None, *, again: bool) -> None:
        """Some window, at any time, of all datasets or of some; twice."""
        self.meet(fate)
        one = self.chosen(system)
        first %= one.site.edges[-1]
        spans = one.site.cut(first, min(first + rows, one.site.edges[-1]))
        self.deliver(one, spans * (1 + again), tuple(d for d in EVERYTHING if d in datasets) or EVERYTHING)

    @rule(system=systems, first=moments, rows=st.integers(1, 40), fate=fates)
    def backfill(self, system: int, first: int, rows: int, fate: Kill | Fault | None) -> None:
        """By force, with the steps next to it, as tokiod.polling.backfill does."""
        self.meet(fate)
        one = self.chosen(system)
        first %= one.site.edges[-1]
        last = min(first + rows, one.site.edges[-1])
        if self.deliver(one, one.site.cut(first, last)):
            self.deliver(one, [(row, row + 1) for row in (first - 1, last) if 0 <= row < one.site.edges[-1]], seam=True)

    @precondition(lambda self: any(one.site.late for one in self.systems))
    @rule()
    def recount(self) -> None:
        """What was late is there now; the windows that have grown by that are collected again."""
        for one in self.systems:
            one.site.late = set()
            counts = self.ledger.counts(one.site.source)
            due = counts.due(self.clock.time(), (0,))
            grown = [each.window for each in due if one.site.records(each.window) > each.records]
            if self.deliver(one, ((one.site.row(window.start), one.site.row(window.end)) for window in grown)):
                counts.recounted(due, 1)

    @precondition(lambda self: any(one.site.names != NAMES for one in self.systems))
    @rule(system=systems, windows=st.integers(1, 9), fate=fates)
    def new_column(self, system: int, windows: int, fate: Kill | Fault | None) -> None:
        self.chosen(system).site.names = NAMES
        self.poll(system, windows, fate)

    @rule(system=systems, row=moments, value=st.integers(0, 60))
    def revise(self, system: int, row: int, value: int) -> None:
        """The source says something else of a row from now on."""
        one = self.chosen(system)
        row %= one.site.edges[-1]
        for columns in one.site.samples.values():
            for column in columns.values():
                if row in column:
                    column[row] = value
        self.deliver(one, one.site.cut(row, row + 1))

    @rule(system=systems, day=days)
    def midnight(self, system: int, day: int) -> None:
        """Tomorrow's file is made before it is needed."""
        one = self.chosen(system)
        day %= len(one.paths) - 1
        today = self.held(one, day)
        if today is not None and not today.sealed:
            self.alive(lambda: self.sink.prepare(one.site.system, one.site.days[day + 1].start))

    @precondition(lambda self: any(path.exists() for one in self.systems for path in one.paths))
    @rule(system=systems, day=days, fate=fates)
    def seal(self, system: int, day: int, fate: Kill | Fault | None) -> None:
        self.meet(fate)
        one = self.chosen(system)
        day %= len(one.paths)
        if self.held(one, day) is not None:
            self.alive(lambda: (self.sink.seal(one.site.system, one.site.days[day].start), self.sink.run_maintenance()))

    @precondition(lambda self: self.sink.days.reopened.paths)
    @rule(fate=fates)
    def quiet(self, fate: Kill | Fault | None) -> None:
        """Nothing comes for so long that what was reopened is sealed again."""
        self.meet(fate)
        self.clock.jump(IDLE_SECONDS)
        self.alive(self.sink.run_maintenance)

    @precondition(lambda self: self.executor is not None and self.executor.waiting)
    @rule(fate=fates)
    def work(self, fate: Kill | Fault | None = None) -> None:
        """What was begun next to the windows is done, and noticed."""
        self.meet(fate)
        if self.executor is not None:
            self.alive(self.executor.run_all)

    @rule(changes=st.integers(1, 20))
    def follow(self, changes: int) -> None:
        """A sink reads what changed, and the cells from the files."""
        self.followed.follow(self.ledger, changes)

    @rule(is_month_later=st.booleans())
    def tidy(self, *, is_month_later: bool) -> None:
        """The change log is merged, or trimmed: a sink was away for a month."""
        self.ledger.changes.tidy(self.clock.time() + is_month_later * (KEEP_SECONDS + 1))

    @rule()
    def restart(self) -> None:
        if self.alive(lambda: (self.sink.seal_reopened(), self.sink.close())):
            self.ledger.close()
            self.boot()

    # ----

    def chosen(self, system: int) -> System:
        return self.systems[system % len(self.systems)]

    def meet(self, fate: Kill | Fault | None) -> None:
        """Let the writer die soon, now or in a later step; or let an operation fail."""
        if isinstance(fate, Kill):
            self.kill = fate
            self.files.kill_at(fate.operations)
        elif fate is not None:
            self.may_fail = True
            if fate.kind:
                self.files.fail(fate.kind, -(-fate.operations // RARE), fate.code)
            else:
                self.files.fail_at(fate.operations, fate.code)

    def deliver(self, one: System, spans: Iterable[tuple[int, int]], datasets: tuple[str, ...] = EVERYTHING, *, seam: bool = False) -> bool:
        """Let windows arrive, those again that were refused; False where the writer died, or they must come some other time."""
        arrived = [one.site.collected(*span, datasets, seam=seam) for span in spans]
        for attempt in range(ATTEMPTS):
            refused = self.arrive(one, arrived, attempt)
            if not refused:
                return refused is not None
            self.refusals += 1
            if self.executor is not None and self.refusals % REFUSALS == 0 and not self.alive(self.executor.run_all):
                return False
            arrived = refused
        return False

    def arrive(self, one: System, arrived: list[Collected], attempt: int) -> list[Collected] | None:
        """Let the writer have windows; return those that are to come again soon, None where it died."""
        self.in_flight, self.there = arrived, {path for path in one.paths if path.exists()}
        self.mailbox.arrived = [Arrived(collected, Part.of(collected.meta, attempt), b"") for collected in arrived]
        for collected in arrived:
            one.model.send(collected)
        self.ledgers = [*self.ledgers, self.ledger._database.sql.serialize()][-2:]
        if not self.alive(lambda: self.writer.turn(0), check=False):
            return None
        self.take_answers()
        refused = self.mailbox.refused
        # Also one that is busy may be there: in its own day, while the day before or after is being reopened.
        for collected in refused:
            one.model.strand(collected)
        self.mailbox.refused, self.in_flight = [], []
        self.check()
        return refused

    def take_answers(self) -> None:
        """Believe what the writer has acknowledged, after what it has lost."""
        self.forget_lost()
        for collected in self.mailbox.stored:
            one = self.system_of(collected)
            if self.is_stored(one, collected):
                one.model.acknowledge(collected)
            if collected.meta.extent == "whole":
                one.whole |= set(range(one.site.row(collected.meta.window.start), one.site.row(collected.meta.window.end)))
        self.in_flight = [collected for collected in self.in_flight if not any(collected is stored for stored in self.mailbox.stored)]
        self.mailbox.stored = []

    def is_stored(self, one: System, collected: Collected) -> bool:
        """Whether a window is in a file: a seam makes none, but the first row of a day without a file is in the file of the day before."""
        day = one.day_of(collected)
        if collected.meta.extent != "seam" or one.paths[day] in self.there:
            return True
        is_first = one.site.row(collected.meta.window.start) == one.site.edges[day]
        return bool(is_first and day and one.paths[day - 1] in self.there)

    def system_of(self, collected: Collected) -> System:
        return next(one for one in self.systems if one.site.system == collected.meta.system)

    def forget_lost(self) -> None:
        """Expect nothing any more of a file that was quarantined without a copy of what was committed.

        Only a failed sync of its content ends a file, and only where making the copy fails too, or the writer is killed meanwhile.
        """
        asides = set(self.archive.rglob("*.hdf5.aside-*"))
        new, self.asides = asides - self.asides, asides
        for one in self.systems:
            stored = self.stored_rows(one)
            for day, path in enumerate(one.paths):
                rows = set(range(*one.site.edges[day : day + 2]))
                is_forgotten = bool((one.whole & rows) - stored) if self.ledger_is_current else not path.exists()
                if is_forgotten and any(aside.parent == path.parent and aside.name.startswith(path.name) for aside in new):
                    happened = [*self.misfortunes, *self.files.failures]
                    assert "fdatasync" in happened, f"{path} was quarantined after {happened}"
                    assert len(happened) > 1, f"{path} was quarantined without a copy after {happened}"
                    one.model.lose(rows)
                    one.whole -= rows

    def stored_rows(self, one: System) -> set[int]:
        """Return the rows that the ledger calls stored."""
        return {row for start, end in self.ledger.stored(one.site.source) for row in range(one.site.row(start), one.site.row(end))}

    def alive(self, action: Callable[[], object], *, check: bool = True) -> bool:
        """Do something, and tell whether the writer survived it."""
        try:
            action()
        except SimulatedKill:
            self.crash()
            return False
        except OSError:
            if not self.may_fail:  # maintenance would catch what an operation that was let fail raises
                raise
        if check:
            self.check()
        return True

    def crash(self) -> None:
        """Take up what is left after a kill or a loss of power."""
        assert self.kill is not None
        killed, self.kill = self.kill, None
        self.take_answers()
        self.misfortunes += [*self.files.failures, "kill"]
        for collected in self.in_flight:
            self.system_of(collected).model.strand(collected)
        self.in_flight = []
        for day in self.sink.days.open_files:
            with contextlib.suppress(SimulatedKill):
                day.file.close()
        self.ledger.close()
        if killed.power is None:
            self.files = self.files.revive()
        else:
            self.files.power_loss(killed.power)
            self.files = FaultyFiles(self.archive)
            if killed.forgetful and self.ledgers:
                self.put_back(self.ledgers[0])
        self.boot()
        self.check()

    def put_back(self, ledger: bytes) -> None:
        """Let the ledger be what it was some transactions ago."""
        for part in self.directory.glob(f"{self.ledger_path.name}*"):
            part.unlink()
        self.ledger_path.write_bytes(ledger)
        self.ledger_is_current = False

    def check(self) -> None:
        self.forget_lost()
        present = {path for path in self.archive.rglob("*.hdf5*") if not path.name.startswith(".")}
        assert present - self.asides == {path for one in self.systems for path in one.paths if path.exists()}
        for one in self.systems:
            one.model.check([self.held(one, day) for day in range(len(one.paths))])
            said = self.stored_rows(one)
            assert said == one.whole if self.ledger_is_current else said <= one.whole
        self.misfortunes.clear()
        self.files.failures.clear()

    def held(self, one: System, day: int) -> Held | None:
        return self.reading.held(one.paths[day])

    def teardown(self) -> None:
        if self.archive is None:
            return
        try:
            self.end()
        finally:
            self.sink.close()
            self.ledger.close()
            shutil.rmtree(self.directory)

    def end(self) -> None:
        """Send all again, in order: the archive is that of an undisturbed run."""
        self.files.kill_at(10**9)
        self.files.fail_no_more()
        self.may_fail = False
        for one in self.systems:
            one.site.late, last = set(), one.site.edges[-1]
            for rows in [(row, min(row + 3 * HEIGHT, last)) for row in range(0, last, 3 * HEIGHT)]:
                while not self.deliver(one, one.site.cut(*rows)):
                    self.work()
            one.model.check_in_the_end([self.held(one, day) for day in range(len(one.paths))])
            self.check_bits(one)
        self.check_followed()
        if self.seal_in_the_end:
            self.check_sealed()

    def check_followed(self) -> None:
        """Who took each change that was logged has every cell, and no other."""
        while not self.followed.is_current(self.ledger):
            self.followed.follow(self.ledger, 100)
        self.followed.follow(self.ledger, 1)
        for one in self.systems:
            assert self.followed.cells[one.site.system] == self.cells_in(one.site.system, self.followed.everything)

    def cells_in(self, system: str, window: Window) -> Cells:
        """Return what the files of a system hold in a window."""
        one = next(one for one in self.systems if one.site.system == system)
        found: Cells = {}
        for number, day in enumerate(one.site.days):
            if day.start < window.end and window.start < day.end and (held := self.held(one, number)) is not None:
                found |= cells_of(held, day.start, STEP, window)
        return found

    def check_sealed(self) -> None:
        """Sealed files are, byte for byte, those of a run that nothing disturbed."""
        self.work()
        self.sink.days.finish_rewrites()  # a sealing that windows have overtaken
        path = self.directory / "undisturbed/%Y-%m-%d/{system}.hdf5"
        max_rates = {one.site.system: one.site.max_rates for one in self.systems}
        layout = daily(Calendar(self.zone), ArchiveConfig(path=str(path)).file)
        with contextlib.closing(TtsSink(DayFiles(layout, self.clock, max_rates=max_rates))) as undisturbed:
            for one in self.systems:
                for day in one.site.days:
                    undisturbed.apply(one.site.collected(one.site.row(day.start), one.site.row(day.end)))
            for sink in (self.sink, undisturbed):
                self.seal_all(sink)
        for one in self.systems:
            for day, sealed in zip(one.site.days, one.paths, strict=True):
                right = ArchiveConfig(path=str(path)).file(day, one.site.system)
                assert sealed.read_bytes() == right.read_bytes(), f"{day.date} {one.site.system}, sealed"

    def seal_all(self, sink: TtsSink) -> None:
        for one in self.systems:
            for day, path in zip(one.site.days, one.paths, strict=True):
                held = self.reading.held(path)
                assert sink.seal(one.site.system, day.start) or (sink is self.sink and held is not None and held.sealed)
                self.work()
                assert [done for done in sink.days.finish_rewrites() if done.error] == []

    def check_bits(self, one: System) -> None:
        for day in range(len(one.paths)):
            rows = one.site.edges[day + 1] - one.site.edges[day]
            for dataset in EVERYTHING:
                held = self.held(one, day)
                cells = {name: held.cells(dataset, name) for name in NAMES}
                assert bits(held, dataset) == {name: right_bits(found, rows) for name, found in cells.items() if found}


class LargeArchiveMachine(ArchiveMachine):
    """Forty days of three systems, which are there before anything happens; some of them sealed."""

    lengths = (MANY_DAYS,)
    widths = (MANY_SYSTEMS,)

    def fill(self, seed: int) -> None:
        for number, one in enumerate(self.systems):
            for day, (first, last) in enumerate(zip(one.site.edges, one.site.edges[1:], strict=False)):
                while not self.deliver(one, [(first, last)]):
                    self.work()
                if (seed >> (day + number) % 32) & 1:
                    self.seal(number, day, None)


@pytest.fixture
def silence() -> Iterator[None]:
    """What the writer says of every window would take half of the time."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(**before)


def play(machine: type[ArchiveMachine], zone: str, sequences: int) -> None:
    options = settings(
        max_examples=sequences,
        stateful_step_count=8,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(type(f"{machine.__name__}[{zone}]", (machine,), {"zone": zone}), settings=options)


@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("silence")
@pytest.mark.parametrize("zone", NIGHTS)
def test_any_sequence_leaves_what_the_model_says(zone: str) -> None:
    play(ArchiveMachine, zone, -(-SEQUENCES // len(NIGHTS)))


@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("silence")
def test_any_sequence_in_an_archive_of_forty_days_and_three_systems_leaves_what_the_model_says() -> None:
    play(LargeArchiveMachine, "America/Los_Angeles", max(SEQUENCES // 100, 1))
