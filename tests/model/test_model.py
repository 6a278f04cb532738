"""The archive against a dictionary: any sequence of windows, kills, power losses, midnights, sealings and backfills, step by step.

The real writer over the real sink, files and ledger; only its sockets and its disk are a test's. MODEL_SEQUENCES=n plays more sequences
than CI does; a failure prints the steps and @reproduce_failure, with which hypothesis plays them again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import structlog
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from manual_executor import ManualExecutor
from model_archive import Model, Reading, bits, right_bits
from model_site import EVERYTHING, NAMES, NIGHTS, SOURCE, SYSTEM, Site

from sinks.tts.reopened_days import IDLE_SECONDS
from sinks.tts.sink import TtsSink
from tokiod.archive.layout import daily
from tokiod.archive.seal_marker import is_marked
from tokiod.bus.reassembly import Arrived
from tokiod.ledger.ledger import Ledger
from tokiod.testing.clock import FakeClock
from tokiod.testing.files import FaultyFiles, SimulatedKill
from tokiod.tts.live.files import sweep
from tokiod.window import Calendar
from tokiod.writer.loop import Heartbeat, Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from model_archive import Held

    from tokiod.errors import Refusal
    from tokiod.window_data import Collected

    Fate = tuple[int, int | None, bool] | None

SEQUENCES = int(os.environ.get("MODEL_SEQUENCES", "2000"))
MEMORY = Path("/dev/shm")
HEIGHT = 4
"""Rows of a window that is polled."""

ATTEMPTS, REFUSALS = 3, 4
"""How often a window is sent before it is left for later; after how many refusals the work that they wait for is done."""

numbers = st.integers(0, 2**32 - 1)
moments = st.integers(0, 71)
"""Rows, counted from the first midnight, over all days that there are."""
dooms = st.tuples(st.integers(1, 60), st.one_of(st.none(), numbers), st.booleans())
fates = st.one_of(st.none(), st.none(), dooms)
"""After how many file operations from now on the process is killed, by a loss of power, which may take the last of the ledger, too."""


class Mailbox:
    """The writer's sockets: what has arrived, and what became of it."""

    def __init__(self) -> None:
        self.arrived: list[Arrived] = []
        self.stored: list[Collected] = []
        self.busy: list[Collected] = []

    def poll(self, _timeout_ms: int) -> list[Arrived]:
        arrived, self.arrived = self.arrived, []
        return arrived

    def ack(self, arrived: Arrived, _cells: int, _dropped: dict[str, int]) -> None:
        self.stored.append(arrived.collected)

    def refuse(self, arrived: Arrived, refusal: Refusal) -> None:
        assert refusal.when == "busy", refusal.message
        self.busy.append(arrived.collected)

    def publish(self, *_: object) -> None:
        """No subscriber listens."""

    beat = reload = publish


class ArchiveMachine(RuleBasedStateMachine):
    """The archive and its model."""

    zone = "UTC"
    archive: Path | None = None

    # Sites are made of a number: what a sequence does to them is what is to be made small when it fails.
    @initialize(
        seed=numbers,
        days=st.sampled_from((2, 2, 3)),
        patient=st.booleans(),
        seal=st.sampled_from((False, False, False, True)),
    )
    def begin(self, seed: int, days: int, *, patient: bool, seal: bool) -> None:
        self.site = Site(self.zone, seed, days)
        self.model, self.reading, self.patient, self.seal_in_the_end = Model(self.site), Reading(), patient, seal
        self.directory = Path(tempfile.mkdtemp(prefix="model-", dir=MEMORY if MEMORY.is_dir() else None))
        self.archive, self.clock = self.directory / "tts", FakeClock(self.site.days[0].start)
        self.archive.mkdir()
        self.paths = [self.archive / f"{day.date}" / f"{SYSTEM}.hdf5" for day in self.site.days]
        self.once_sealed: set[int] = set()
        self.whole, self.ledger_is_current = set[int](), True
        self.next_row, self.refusals, self.doom, self.ledgers = 0, 0, [None, False], []
        self.in_flight: list[Collected] = []
        self.there: set[int] = set()
        self.boot()

    def boot(self) -> None:
        """Start as tokiod.writer.process does."""
        for temporary in list(self.archive.rglob(".*.tmp")):
            sweep(temporary.parent)
        self.reading.forget()
        self.files, self.mailbox = FaultyFiles(self.archive), Mailbox()
        self.executor = ManualExecutor() if self.patient else None
        layout = daily(Calendar(self.site.zone), lambda day, system: self.archive / f"{day.date}" / f"{system}.hdf5")
        self.sink = TtsSink(layout, self.clock, self.files, self.executor or "inline", pause=self.work)
        self.ledger = Ledger.open_or_quarantine(self.directory / "ledger.sqlite3", self.clock.time())
        heartbeat = Heartbeat(self.mailbox, self.mailbox, self.clock.monotonic)
        self.writer = Writer(self.mailbox, self.sink, self.ledger, self.mailbox, self.clock, heartbeat)
        for day, path in enumerate(self.paths):
            if is_marked(path):
                self.sink.adopt(SYSTEM, self.site.days[day].start)

    # ---- what happens

    @rule(windows=st.integers(1, 9), fate=fates)
    def poll(self, windows: int, fate: Fate) -> None:
        """Live polling goes on."""
        self.meet(fate)
        first = self.next_row
        last = min(first + HEIGHT * windows, self.site.edges[-1])
        spans = [(row, min(row + HEIGHT, last)) for row in range(first, last, HEIGHT)]
        self.deliver(span for one in spans for span in self.site.cut(*one))
        self.next_row = last if last < self.site.edges[-1] else 0

    @rule(first=moments, rows=st.integers(1, 9), datasets=st.sets(st.sampled_from(EVERYTHING)), again=st.booleans(), fate=fates)
    def batch(self, first: int, rows: int, datasets: set[str], fate: Fate, *, again: bool) -> None:
        """Some window, at any time, of all datasets or of some; twice."""
        self.meet(fate)
        first %= self.site.edges[-1]
        spans = self.site.cut(first, min(first + rows, self.site.edges[-1]))
        self.deliver(spans * (1 + again), tuple(d for d in EVERYTHING if d in datasets) or EVERYTHING)

    @rule(first=moments, rows=st.integers(1, 40), fate=fates)
    def backfill(self, first: int, rows: int, fate: Fate) -> None:
        """By force, with the steps beside it, as tokiod.polling.backfill does."""
        self.meet(fate)
        first %= self.site.edges[-1]
        last = min(first + rows, self.site.edges[-1])
        if self.deliver(self.site.cut(first, last)):
            self.deliver([(row, row + 1) for row in (first - 1, last) if 0 <= row < self.site.edges[-1]], seam=True)

    @precondition(lambda self: self.site.late)
    @rule()
    def recount(self) -> None:
        """What was late is there now; the windows that have grown by that are collected again."""
        self.site.late = set()
        counts = self.ledger.counts(SOURCE)
        due = counts.due(self.clock.time(), (0,))
        grown = [one.window for one in due if self.site.records(one.window) > one.records]
        if self.deliver((self.site.row(window.start), self.site.row(window.end)) for window in grown):
            counts.recounted(due, 1)

    @precondition(lambda self: self.site.names != NAMES)
    @rule(windows=st.integers(1, 9), fate=fates)
    def new_column(self, windows: int, fate: Fate) -> None:
        self.site.names = NAMES
        self.poll(windows, fate)

    @rule(row=moments, value=st.integers(0, 60))
    def revise(self, row: int, value: int) -> None:
        """The source says something else of a row from now on."""
        row %= self.site.edges[-1]
        self.seal_in_the_end = False  # where the first count that is not zero stood is remembered, though it be replaced
        for columns in self.site.samples.values():
            for column in columns.values():
                if row in column:
                    column[row] = value
        self.deliver(self.site.cut(row, row + 1))

    @rule(day=st.integers(0, 1))
    def midnight(self, day: int) -> None:
        """Tomorrow's file is made before it is needed."""
        day %= len(self.paths) - 1
        today = self.held(day)
        if today is not None and not today.sealed:
            self.alive(lambda: self.sink.prepare(SYSTEM, self.site.days[day + 1].start))

    @precondition(lambda self: any(path.exists() for path in self.paths))
    @rule(day=st.integers(0, 2), fate=fates)
    def seal(self, day: int, fate: Fate) -> None:
        self.meet(fate)
        day %= len(self.paths)
        if self.held(day) is not None:
            self.loosen(day)
            self.alive(lambda: (self.sink.seal(SYSTEM, self.site.days[day].start), self.sink.run_maintenance()))

    @precondition(lambda self: self.sink._reopened.paths)
    @rule(fate=fates)
    def quiet(self, fate: Fate) -> None:
        """Nothing comes for so long that what was opened up is sealed again."""
        self.meet(fate)
        self.clock.jump(IDLE_SECONDS)
        self.alive(self.sink.run_maintenance)

    @precondition(lambda self: self.executor is not None and self.executor.waiting)
    @rule(fate=fates)
    def work(self, fate: Fate = None) -> None:
        """What was begun beside the windows is done, and noticed."""
        self.meet(fate)
        if self.executor is not None:
            self.alive(self.executor.run_all)

    @rule()
    def restart(self) -> None:
        if self.alive(lambda: (self.sink.seal_reopened(), self.sink.close())):
            self.ledger.close()
            self.boot()

    # ----

    def meet(self, fate: Fate) -> None:
        """Let the writer die soon, now or in a later step."""
        if fate is not None:
            operations, *self.doom = fate
            self.files.kill_at(operations)

    def deliver(self, spans: Iterable[tuple[int, int]], datasets: tuple[str, ...] = EVERYTHING, *, seam: bool = False) -> bool:
        """Let windows arrive, those again whose file is just being made; False where the writer died, or they must come some other time."""
        arrived = [self.site.collected(*span, datasets, seam=seam) for span in spans]
        for attempt in range(ATTEMPTS):
            busy = self.arrive(arrived, attempt)
            if not busy:
                return busy is not None
            self.refusals += 1
            if self.refusals % REFUSALS == 0 and not self.alive(self.executor.run_all):
                return False
            arrived = busy
        return False

    def arrive(self, arrived: list[Collected], attempt: int) -> list[Collected] | None:
        """Let the writer have windows; return those that are to come again soon, None where it died."""
        self.in_flight, self.there = arrived, {day for day, path in enumerate(self.paths) if path.exists()}
        self.mailbox.arrived = [Arrived(collected, attempt, b"") for collected in arrived]
        for collected in arrived:
            self.model.send(collected)
            self.loosen_at_seam(collected)
        self.ledgers = [*self.ledgers, self.ledger._database.sql.serialize()][-2:]
        if not self.alive(lambda: self.writer.turn(0), check=False):
            return None
        self.take_answers()
        busy, self.in_flight = self.mailbox.busy, []
        self.mailbox.busy = []
        self.check()
        return busy

    def take_answers(self) -> None:
        """Believe what the writer has acknowledged. A seam makes no file, and is ignored where there is no file."""
        for collected in self.mailbox.stored:
            if collected.meta.extent != "seam" or self.day_of(collected) in self.there:
                self.model.acknowledge(collected)
            if collected.meta.extent == "whole":
                self.whole |= set(range(self.site.row(collected.meta.window.start), self.site.row(collected.meta.window.end)))
        self.in_flight = [collected for collected in self.in_flight if not any(collected is one for one in self.mailbox.stored)]
        self.mailbox.stored = []

    def alive(self, action: Callable[[], object], *, check: bool = True) -> bool:
        """Do something, and tell whether the writer survived it."""
        try:
            action()
        except SimulatedKill:
            self.crash()
            return False
        if check:
            self.check()
        return True

    def crash(self) -> None:
        """Take up what is left after a kill or a loss of power."""
        power, forgetful = self.doom
        self.take_answers()
        for collected in self.in_flight:
            self.model.strand(collected)
        self.in_flight = []
        for day in self.sink._open.values():
            with contextlib.suppress(SimulatedKill):
                day.file.close()
        self.ledger.close()
        if power is not None:
            self.files.power_loss(power)
            self.model.kept.clear()
            if forgetful and self.ledgers:
                for path in self.directory.glob("ledger.sqlite3*"):
                    path.unlink()
                (self.directory / "ledger.sqlite3").write_bytes(self.ledgers[0])
                self.ledger_is_current = False
        self.doom = [None, False]
        self.boot()
        self.check()

    def check(self) -> None:
        held = [self.held(day) for day in range(len(self.paths))]
        for day, file in enumerate(held):
            if file is not None and file.sealed:
                self.once_sealed.add(day)
                self.loosen(day)
        assert sorted(self.archive.rglob(f"{SYSTEM}.hdf5*")) == [path for path in self.paths if path.exists()]
        self.model.check(held)
        said = {row for start, end in self.ledger.stored(SOURCE) for row in range(self.site.row(start), self.site.row(end))}
        assert said == self.whole if self.ledger_is_current else said <= self.whole

    def held(self, day: int) -> Held | None:
        return self.reading.held(self.paths[day])

    def loosen(self, day: int) -> None:
        self.model.loose |= {day - 1, day, day + 1}

    def loosen_at_seam(self, collected: Collected) -> None:
        if collected.meta.extent == "seam":
            self.loosen(self.day_of(collected))

    def day_of(self, collected: Collected) -> int:
        return self.site.day_of(self.site.row(collected.meta.window.start))

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
        self.site.late = set()
        last = self.site.edges[-1]
        spans = [span for row in range(0, last, 3 * HEIGHT) for span in self.site.cut(row, min(row + 3 * HEIGHT, last))]
        while not self.deliver(spans):
            self.alive(self.executor.run_all)
        self.model.check_in_the_end([self.held(day) for day in range(len(self.paths))], self.once_sealed)
        self.check_bits()
        if self.seal_in_the_end:
            self.check_sealed()

    def check_sealed(self) -> None:
        """Files that were never sealed before are, byte for byte, those of a run that nothing disturbed."""
        self.work()
        self.sink._finish_rewrites()  # a sealing that windows have overtaken
        undisturbed = TtsSink(daily(Calendar(self.site.zone), lambda day, _: self.directory / f"{day.date}"), self.clock)
        for day in self.site.days:
            undisturbed.apply(self.site.collected(self.site.row(day.start), self.site.row(day.end)))
        for sink in (self.sink, undisturbed):
            for day in self.site.days:
                assert sink.seal(SYSTEM, day.start)
            self.work()
            assert [done for done in sink._finish_rewrites() if done.error] == []
        for day in set(range(len(self.paths))) - self.once_sealed:
            assert self.paths[day].read_bytes() == (self.directory / f"{self.site.days[day].date}").read_bytes(), f"day {day}, sealed"

    def check_bits(self) -> None:
        for day in set(range(len(self.paths))) - self.once_sealed:
            rows = self.site.edges[day + 1] - self.site.edges[day]
            for dataset in EVERYTHING:
                cells = {name: self.held(day).cells(dataset, name) for name in NAMES}
                assert bits(self.held(day), dataset) == {name: right_bits(found, rows) for name, found in cells.items() if found}


@pytest.fixture
def silence():
    """What the writer says of every window would take half of the time."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(**before)


@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("silence")
@pytest.mark.parametrize("zone", NIGHTS)
def test_any_sequence_leaves_what_the_model_says(zone: str) -> None:
    options = settings(
        max_examples=-(-SEQUENCES // len(NIGHTS)),
        stateful_step_count=8,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(type(f"ArchiveMachine[{zone}]", (ArchiveMachine,), {"zone": zone}), settings=options)
