"""The simulation itself: it is right where the product is, finds faults that are planted, and plays a seed the same way each time.

`make simulate` plays many seeds, `make simulate-ci` new ones for three minutes and all that ever failed.
"""

import asyncio
import random
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sinks.tts.seams import Seams
from sinks.tts.sink import TtsSink
from tests.simulation.clock import MachineClock
from tests.simulation.disk import LedgerDisk, ProcessSqlite, is_injected
from tests.simulation.job_sums import Growth, Truth
from tests.simulation.loop import SimulatedLoop
from tests.simulation.machine import Process
from tests.simulation.network import Network
from tests.simulation.plan import FOLDER_KINDS, FOLDER_MORE_KINDS, KINDS, MORE_KINDS, NAME_KINDS, NEW_KINDS, Event, Plan
from tests.simulation.site import Site, play
from tokiod.errors import TokiodError
from tokiod.jobs import span
from tokiod.jobs.activity import Activity
from tokiod.jobs.rows import JobRows
from tokiod.ledger.ledger import Ledger, StoredEntry
from tokiod.tts.live.files import put_in_place
from tokiod.window import Window
from tokiod.window_data import WindowMeta

NIGHT = replace(
    Plan.of(1),
    zone="UTC",
    old_midnight=None,
    first_midnight=1_517_184_000,
    begin=1_517_184_000 + 22 * 3600,
    hours=4.0,
    step=3600,
    window=7200,
    systems=1,
    columns=1,
    faults=0.0,
    max_step=0.0,
    has_folder=False,
    has_jobs=False,
    has_momentary=False,
    has_nodes=False,
)
"""Two hours before and two after a midnight, at a site of one component."""


def test_a_night_in_which_all_sorts_of_things_happen_ends_right():
    kinds = ["kill writer at an operation", "disconnection", "source sick", "power loss", "clock jump", "correction", "restart"]
    outcome = play(replace(NIGHT, events=tuple(Event(900.0 * (1 + i), kind, 7 * i + 1) for i, kind in enumerate(kinds))))
    assert not outcome.wrong
    assert outcome.counts["sealed files compared"] == 2
    assert outcome.counts["power loss"]


def test_the_same_plan_gives_the_same_log():
    plan = replace(NIGHT, events=(Event(2000.0, "kill writer at an operation", 3), Event(4000.0, "power loss at an operation", 5)))
    one, other = play(plan), play(plan)
    assert one.lines == other.lines
    assert one.digest == other.digest


def test_power_that_fails_again_as_it_comes_back_starts_no_process():
    """Found by seed 310012330: the processes that waited for the power ran without it, and its return waited for them, for ever."""

    class Started(Process):
        async def run(self):
            started.append(machine.has_power.is_set())
            await asyncio.sleep(3600)

    async def main():
        machine.has_power = power = asyncio.Event()
        keeping = asyncio.ensure_future(Started(machine).keep())
        await asyncio.sleep(0.01)
        power.set()
        power.clear()
        await asyncio.sleep(0.01)
        power.set()
        await asyncio.sleep(0.01)
        keeping.cancel()

    started = []
    machine = SimpleNamespace(loop=SimpleNamespace(now=0.0), journal=SimpleNamespace(note=lambda _line: None), ledger_disk=None)
    asyncio.run(main())
    assert started == [True]


def test_a_writer_that_does_not_sync_is_found(monkeypatch):
    monkeypatch.setattr("tests.simulation.disk.MachineFiles.fdatasync", lambda self, _fd: self._step("fdatasync"))
    events = tuple(Event(2500.0 + 3000.0 * i, "power loss", 3 + i) for i in range(4))
    assert any("acknowledged, but not in" in play(replace(NIGHT, seed=seed, events=events)).wrong for seed in range(4))


def test_days_that_do_not_learn_the_first_samples_of_the_next_are_found(monkeypatch):
    monkeypatch.setattr(Seams, "_correct_before", lambda *_: None)
    monkeypatch.setattr(Seams, "_take_from_after", lambda *_: None)
    assert "follows from what is acknowledged" in play(replace(NIGHT, events=())).wrong


def test_an_old_day_that_is_backfilled_has_its_last_cell():
    plan = replace(NIGHT, old_midnight=NIGHT.first_midnight - 10 * 86400, events=(Event(600.0, "backfill an old day", 5),))
    outcome = play(plan)
    assert not outcome.wrong
    assert outcome.counts["sealed files compared"] == 3


FILES = (
    *(Event(900.0 * (1 + i), "put file", i) for i in range(6)),
    Event(2000.0, "put malformed file", 1),
    Event(6500.0, "kill collectors", 1),
    *(Event(8000.0 + 600.0 * i, "remove file", number) for i, number in enumerate((9, 16, 18))),
)


@pytest.fixture
def long_retention(monkeypatch):
    """A watched folder whose days can be lost."""
    monkeypatch.setattr(Site, "_folder_retention", None)


@pytest.mark.usefixtures("long_retention")
def test_the_files_of_a_watched_folder_are_collected_and_those_of_a_lost_day_again():
    outcome = play(replace(NIGHT, has_folder=True, events=tuple(sorted(FILES))))
    assert not outcome.wrong
    assert outcome.counts["put file"] >= 4
    collected = [line for line in outcome.lines if "log file.collected" in line]
    assert len(collected) > len({line.partition("path=")[2] for line in collected})
    assert any("log file.rejected" in line and "not JSON" in line for line in outcome.lines)


@pytest.mark.usefixtures("long_retention")
def test_files_that_are_not_collected_again_after_their_day_is_lost_are_found(monkeypatch):
    monkeypatch.setattr("tokiod.ledger.received_files.forget_window", lambda *_: None)
    assert "spool" in play(replace(NIGHT, has_folder=True, events=tuple(sorted(FILES)))).wrong


KILLS = tuple(
    Event(600.0 + 700.0 * i, kind, 3 * i)
    for i, kind in enumerate(4 * ("kill writer at an operation", "power loss", "operation fails", "kill collectors", "remove ledger"))
)


def test_the_job_table_holds_all_that_was_acknowledged_whatever_is_killed():
    outcome = play(replace(NIGHT, window=3600, hours=6.0, has_jobs=True, events=KILLS))
    assert not outcome.wrong
    assert outcome.counts["rows of jobs compared"] > 100


def test_sums_of_jobs_are_compared_while_servers_are_silent_and_their_clocks_jump(monkeypatch):
    kinds = "server silent", "server clock jump", "kill collectors", "server silent", "server clock jump"
    events = tuple(Event(600.0 + 2400.0 * i, kind, 5 * i) for i, kind in enumerate(kinds))
    plan = replace(NIGHT, window=1200, step=1200, has_jobs=True, events=events)
    outcome = play(plan)
    assert not outcome.wrong
    assert outcome.counts["sums of jobs compared"] > 100
    monkeypatch.setattr("tokiod.jobs.span.activity", twice(span.activity))
    assert "the job table, sums: " in play(plan).wrong


def twice(activity: Callable[[JobRows], Activity]) -> Callable[[JobRows], Activity]:
    def done(rows: JobRows) -> Activity:
        found = activity(rows)
        return replace(found, counts={name: 2 * values for name, values in found.counts.items()})

    return done


NODES = tuple(
    Event(900.0 + 800.0 * i, kind, 3 * i)
    for i, kind in enumerate(2 * ("detach disk", "agent restart", "node clock jump", "kill hub", "node restart", "kill writer"))
)


def test_what_jobs_use_on_nodes_is_in_the_job_table_whatever_happens_to_node_agent_and_hub():
    plan = replace(NIGHT, has_nodes=True, events=NODES)
    outcome = play(plan)
    assert not outcome.wrong
    assert outcome.counts["rows of nodes compared"] > 100
    assert outcome.counts["sums of nodes compared"] > 100
    assert play(plan).lines == outcome.lines


def test_a_job_that_a_node_reports_with_another_count_is_found(monkeypatch):
    monkeypatch.setattr("tokiod.agent.job_cgroup.Sums.take", lambda _self, parts: {metric: 7 for of in parts.values() for metric in of})
    assert "where it had" in play(replace(NIGHT, has_nodes=True, events=())).wrong


def test_growth_is_that_of_the_places_in_a_life_whatever_the_times_of_rows():
    """The second row is by a clock that was ahead; two rows have one place, and the other life of the job counts from zero."""
    one = [(5, 100, 10), (9, 900, 60), (12, 300, 70), (12, 400, 70), (2, 500, 4)]
    place, time, counts = np.array(one, np.int64).T
    life = np.array([0, 0, 0, 0, 1])
    none = np.zeros(5, np.int64)
    growth = Growth.of(Truth([(b"4711", "OST")], none, life, place, time, none, {"read_bytes.sum": counts}, none))
    key = (b"4711", "OST"), "read_bytes.sum"
    assert growth.sums(0, 1000, is_ordered=True)[key] == (74, 74)
    assert growth.sums(300, 600, is_ordered=True)[key] == (14, 14)
    assert growth.sums(350, 450, is_ordered=False)[key] == (0, 60)


@pytest.mark.parametrize("operation", ["fsync", "fsync_directory"])
def test_rows_of_jobs_that_are_acknowledged_before_they_are_synced_are_found(monkeypatch, operation):
    """A power loss takes them; those of the last ten minutes, before the day's other files are made."""
    monkeypatch.setattr(f"tests.simulation.disk.MachineFiles.{operation}", lambda self, *_: self._step(operation))
    events = tuple(Event(2500.0 + 3000.0 * i, "power loss", 3 + i) for i in range(4))
    found = [play(replace(NIGHT, window=1200, step=1200, seed=seed, has_jobs=True, events=events)).wrong for seed in range(3)]
    assert any("job table" in one or ".jobs" in one for one in found), found


def test_a_window_that_is_published_before_a_change_is_found(monkeypatch):
    monkeypatch.setattr(TtsSink, "_note_changes", lambda *_: None)
    assert "a subscriber has" in play(replace(NIGHT, events=())).wrong


def test_changes_that_are_not_logged_or_are_lost_as_they_are_merged_are_found(monkeypatch):
    plan = replace(NIGHT, window=1200, step=600, events=(Event(300.0, "restart", 1),))
    assert not play(plan).wrong
    for name, lost in (("merged", lambda rows: list(rows)[-1:]), ("record", lambda *_: None)):
        with monkeypatch.context() as patch:
            patch.setattr(f"tokiod.ledger.changes.{name}", lost)
            assert "a sink of fs0 has other cells" in play(plan).wrong


def test_a_clock_that_is_a_month_ahead_at_the_first_start_moves_no_watermark():
    ahead, backfill = Event(0.0, "clock jump", 0), Event(600.0, "backfill", 1)
    assert not play(replace(NIGHT, events=(ahead, backfill))).wrong


def test_a_process_may_end_only_because_of_an_error_that_was_injected(tmp_path):
    sqlite = ProcessSqlite(LedgerDisk(tmp_path / "ledger.sqlite3"), lambda: None)
    sqlite.fail_at(1, sqlite3.SQLITE_FULL)
    with pytest.raises(TokiodError) as injected:
        Ledger.open(tmp_path / "ledger.sqlite3", sqlite=sqlite)
    with pytest.raises(TokiodError) as real:
        Ledger.open_readonly(tmp_path / "other.sqlite3")
    assert is_injected(injected.value)
    assert not is_injected(real.value)


def test_a_frame_that_zeromq_would_refuse_is_found(monkeypatch):
    plan = replace(NIGHT, step=600, columns=2, hours=3.0, events=())
    assert not play(plan).wrong
    monkeypatch.setattr("tokiod.crossing.parts.cut", lambda pieces, _size: [[b"".join(pieces)]])
    assert "a frame of 520 bytes" in play(plan).wrong


def test_a_ledger_that_is_removed_and_made_anew_without_the_files_is_found(monkeypatch):
    events = (Event(8000.0, "remove ledger", 1),)
    assert not play(replace(NIGHT, events=events)).wrong
    monkeypatch.setattr("tokiod.ledger.integrity.Generation.doubt", lambda _: "")
    assert "has not rebuilt it" in play(replace(NIGHT, events=events)).wrong


def test_a_ledger_that_calls_stored_what_a_removed_file_held_is_found(monkeypatch):
    """A new file has its name before its loss is noticed."""
    monkeypatch.setattr("tokiod.writer.maintenance.Maintenance.before_create", lambda *_: None)
    monkeypatch.setattr("tokiod.writer.maintenance.Maintenance.forget_missing_files", lambda *_: None)
    events = Event(3000.0, "remove file", 4), Event(12600.0, "kill writer", 1)
    found = [play(replace(NIGHT, seed=seed, events=events)).wrong for seed in range(2)]
    assert any("calls stored what was destroyed" in one for one in found), found


def test_a_sound_file_that_is_set_aside_without_a_copy_is_found(monkeypatch):
    """A directory that can't be synced after a rename proves nothing against the file."""
    events = tuple(Event(10.0 + 1800.0 * i, "operation fails", number) for i, number in enumerate((30, 60, 245)))
    plan = replace(NIGHT, seed=0, window=3600, hours=6.0, events=events)
    assert not play(plan).wrong

    def rename(self: Any) -> bool:
        put_in_place(self._temporary, self._path, self._files)
        return True

    monkeypatch.setattr("tokiod.tts.live.rewrite._TemporaryFile._rename", rename)
    assert "a sound file was given up" in play(plan).wrong


def test_a_file_that_is_collected_again_without_a_cause_is_found(monkeypatch):
    events = *(Event(900.0 * (1 + i), "put file", i) for i in range(4)), Event(5400.0, "kill collectors", 1)
    plan = replace(NIGHT, has_folder=True, events=events)
    assert not play(plan).wrong
    monkeypatch.setattr("tokiod.ledger.received_files.ReceivedFiles.outcome", lambda *_: None)
    monkeypatch.setattr("tokiod.polling.watch.intake.Intake._is_known", lambda *_: False)
    assert "is collected again" in play(plan).wrong


def test_a_file_that_replaces_what_a_newer_one_corrected_is_found(monkeypatch):
    monkeypatch.setattr("tokiod.ledger.received_files._forget_newer", lambda *_: [])
    monkeypatch.setattr(Site, "_folder_retention", None)
    events = Event(1800.0, "put held file", 1), Event(2700.0, "put corrected file", 0)
    assert "in the end: spool" in play(replace(NIGHT, has_folder=True, events=events)).wrong


def test_each_kind_of_event_can_happen():
    assert all(
        hasattr(Site, "_" + kind.replace(" ", "_"))
        for kind in (*KINDS, *FOLDER_KINDS, *FOLDER_MORE_KINDS, *MORE_KINDS, *NAME_KINDS, *NEW_KINDS)
    )


def test_half_of_all_seeds_simulate_at_most_six_hours_and_none_more_than_forty_days():
    hours = sorted(Plan.of(seed).hours for seed in range(400))
    assert 4 < hours[200] < 8
    assert hours[-1] <= 40 * 24


def test_time_jumps_to_the_next_timer():
    loop = SimulatedLoop()
    clock = MachineClock(loop, 1000.0, tick=20.0)

    async def sleep() -> tuple[float, float]:
        await asyncio.sleep(86400)
        await clock.sleep(1)  # takes a tick
        return loop.time(), clock.time()

    assert loop.run_until_complete(sleep()) == (pytest.approx(86420), pytest.approx(87420))
    loop.close()


def test_connections_deliver_in_order_and_lose_messages_only_at_their_end():
    loop = SimulatedLoop()
    network = Network(loop, random.Random(1), 5.0)

    async def talk() -> list[bytes]:
        server = network.bind("bus", 0, "bus")
        with network.connector().connected("bus") as client:
            for number in range(10):
                await client.send([b"%d" % number])
            await asyncio.sleep(1000)
            server.send_multipart([client.name, b"answer"], 0)
            assert await client.receive() == b"answer"
            network.break_connections()
            assert await client.ended() == "disconnected"
        return [frames[1] for frames in server._inbox]

    assert loop.run_until_complete(talk()) == [b"%d" % number for number in range(10)]
    loop.close()


def test_a_power_loss_keeps_what_the_ledger_has_synced_and_no_part_of_a_transaction(tmp_path):
    path = tmp_path / "ledger.sqlite3"
    found = set()
    for seed in range(12):
        for part in tmp_path.iterdir():
            part.unlink()
        disk = LedgerDisk(path)
        with Ledger.open(path, sqlite=ProcessSqlite(disk, lambda: None)) as ledger:
            store(ledger, 0, 4)
            ledger.forget("fs", Window(0, 60), 0.0)  # synced
            store(ledger, 4, 8)
            held = disk.hold()
        disk.lose_power(held, random.Random(seed))
        with Ledger.open(path) as ledger:
            ((start, end),) = ledger.stored("source")
        assert start == 60
        assert 240 <= end <= 480
        assert end % 60 == 0
        found.add(end)
    assert len(found) > 1


def test_a_statement_fails_once(tmp_path):
    sqlite = ProcessSqlite(LedgerDisk(tmp_path / "ledger.sqlite3"), lambda: None)
    with Ledger.open(tmp_path / "ledger.sqlite3", sqlite=sqlite) as ledger:
        sqlite.fail_at(2, sqlite3.SQLITE_FULL)
        with pytest.raises(sqlite3.OperationalError, match="full"):
            store(ledger, 0, 1)
        store(ledger, 0, 1)
        assert list(ledger.stored("source")) == [(0, 60)]


def store(ledger: Ledger, first: int, last: int) -> None:
    for minute in range(first, last):
        ledger.store([StoredEntry(WindowMeta("source", "kind", "fs", Window(minute * 60, minute * 60 + 60)), 1)], float(minute))


def test_waiting_until_a_moment_ends_however_near_it_is():
    loop = SimulatedLoop()
    waits = []

    async def wait_until(moment: float) -> None:
        while (seconds := moment - loop.now) > 0 and len(waits) < 10:
            waits.append(seconds)
            loop.call_soon(waits.count, 0)  # other code that can run now
            await asyncio.sleep(seconds)

    for moment in (29732.0598, 29732.0598 + 4e-12, 29732.0598 + 5e-7):
        waits.clear()
        loop.run_until_complete(wait_until(moment))
        assert (loop.now, len(waits)) == (moment, 1)
    loop.close()
