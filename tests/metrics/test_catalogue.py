"""What is counted on the way of a number, by the real poller, sender and writer."""

import asyncio
import random
import re
import tempfile
from dataclasses import replace
from pathlib import Path

import archive_model as model
import msgspec
import numpy as np
import pytest
from counted import configured, counting_here, values

from tokiod.batch import Batch
from tokiod.bus.receiver import Receiver
from tokiod.bus.sender import Sender
from tokiod.errors import Fatal, NotYet, Refusal, Transient
from tokiod.ledger.jobs import JobRequest
from tokiod.ledger.ledger import Ledger, StoredEntry
from tokiod.metrics import catalogue, stages
from tokiod.polling.backfill import Backfill, JobFailed
from tokiod.polling.poller import Poller
from tokiod.polling.recount import Recount
from tokiod.testing.clock import FakeClock
from tokiod.units import Duration
from tokiod.window import Calendar, Window
from tokiod.window_data import WindowData, WindowMeta
from tokiod.window_result import Stored

NOON = 1_517_126_400 + 12 * 3600


def settings(**fields):
    """Return the stanza of a source named a that is asked for an hour of past, and remembers nothing older."""
    with tempfile.TemporaryDirectory() as directory:
        (source,) = configured(Path(directory), "a").source
    durations = {name: Duration(value) for name, value in ({"retention": 3600, "settle": 0, "window": 60, "timeout": 60} | fields).items()}
    return msgspec.structs.replace(source, heal_rate=0.0, **durations)


def counted(found, name):
    """Return one metric's values by its labels, without the name of the only source."""
    return {tuple(label for label in key[1:] if label != "a"): value for key, value in found.items() if key[0] == name}


# ---- names


def test_names_are_those_that_prometheus_expects_and_texts_are_sentences():
    assert len({metric.name for metric in catalogue.ALL}) == len(catalogue.ALL) > 35
    for metric in catalogue.ALL:
        assert re.fullmatch(r"tokiod_[a-z_]+", metric.name)
        assert (metric.type == "counter") == metric.name.endswith("_total"), metric.name
        assert (metric.type == "histogram") <= metric.name.endswith("_seconds"), metric.name
        assert re.fullmatch(r"[A-Z01].{20,}\.", metric.text), metric.name


def test_no_label_is_data():
    """Sources, sinks, hosts and systems are in the configuration; everything else is a word of ours, of a kind of sink, or of the build."""
    free = {(metric.name, label) for metric in catalogue.ALL for label, given in metric.labels.items() if not given}
    assert {label for _, label in free} == {"source", "system", "version", "python", "sink", "host", "reason"}
    assert {name for name, label in free if label == "reason"} == {"tokiod_sink_rejected_total"}
    assert {name for name, label in free if label in {"version", "python"}} == {"tokiod_build_info"}


# ---- the poller


class Source:
    """Answers after two seconds as a list says, then as its last says for ever; a window of data has a sample in each of its minutes."""

    replayable = True

    def __init__(self, clock, answers):
        self.clock, self.answers = clock, list(answers)

    async def collect(self, window):
        await self.clock.sleep(2)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is not None:
            raise answer
        minutes = np.arange(window.start, window.end, 60)
        gauges = Batch("datatargets/readrates", "gauge", 60, ("OST0000",), minutes, np.zeros(len(minutes), "u4"), np.ones(len(minutes)))
        return WindowData([gauges], records=7)

    async def count(self, window):
        return sum(50 if minute == NOON - 60 else 10 for minute in range(window.start, window.end, 60))

    async def close(self):
        pass


@pytest.fixture
def polled(tmp_path):
    """Poll a source of which an hour is stored for some minutes, and return what was counted."""

    def polled(*answers, seconds=600, refusal=None, jump=0.0, **fields):
        async def scene():
            clock, config = FakeClock(NOON), settings(**fields)
            with Ledger.open(tmp_path / "ledger.sqlite3") as ledger:
                ledger.store([StoredEntry(WindowMeta("a", "lmt", "fs-a", Window(NOON - 7200, NOON)), 0)], NOON)

                async def submit(collected):
                    answer = asyncio.get_running_loop().create_future()
                    answer.set_result(refusal or Stored(600, {}))
                    with stages.Submission(collected) as submission:
                        pass
                    submission.accepted(answer)
                    return answer

                poller = Poller(config, Source(clock, answers), ledger, submit, Calendar("UTC"), clock, random.Random(1))
                task = asyncio.create_task(poller.run())
                await clock.advance(1)
                clock.jump(jump)
                await clock.advance(seconds)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

        with counting_here(configured(tmp_path, "a"), "collectors"):
            asyncio.run(scene())
            return values(tmp_path)

    return polled


def test_windows_that_are_stored_are_counted_with_their_records_and_cells_and_the_seconds_of_each_stage(polled):
    found = polled(None, seconds=630)
    assert counted(found, "tokiod_windows_total") == {("stored",): 10}
    assert (counted(found, "tokiod_records_total"), counted(found, "tokiod_cells_total")) == ({(): 70}, {(): 6000})
    taken = counted(found, "tokiod_stage_seconds_sum")
    assert counted(found, "tokiod_stage_seconds_count") == {(stage,): 10 for stage in ("collect", "fetch", "parse", "submit", "store")}
    assert 0 < taken["fetch",] + taken["parse",] <= taken["collect",] < 60
    assert counted(found, "tokiod_retries_total") == {}


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(Transient("x"), "transient"), (TimeoutError(), "timeout"), (ValueError(), "bug"), (NotYet("x"), "not_yet"), (Fatal("x"), "fatal")],
)
def test_an_attempt_that_failed_is_counted_by_its_kind_and_the_next_one_of_that_window_is_a_retry(polled, error, outcome):
    """One that was too early is none, and what was missed for ten minutes is then asked for in longer windows."""
    found = polled(error, None, seconds=1300, settle=1)
    assert counted(found, "tokiod_windows_total")[outcome,] == 1
    assert counted(found, "tokiod_windows_total")["stored",] >= 1
    assert counted(found, "tokiod_retries_total") == ({} if outcome in {"not_yet", "fatal"} else {(): 1})


@pytest.mark.parametrize(
    ("refusal", "outcome"),
    [
        (Refusal("a wrong step", "never"), "rejected"),
        (Refusal("just being made", "busy"), "busy"),
        (Refusal("full", "retry"), "transient"),
    ],
)
def test_what_the_writer_refuses_is_counted_by_its_kind(polled, refusal, outcome):
    assert counted(polled(None, refusal=refusal), "tokiod_windows_total").keys() == {(outcome,)}


def test_what_falls_out_of_reach_is_lost_window_by_window(polled):
    found = polled(Transient("down"), seconds=1800, retention=600)
    assert counted(found, "tokiod_windows_total")["lost",] == 1800 // 60 - 600 // 60


def test_a_span_that_is_lost_at_once_is_as_many_windows_as_are_in_it(polled):
    found = polled(None, seconds=120, retention=600, jump=1800.0)
    assert counted(found, "tokiod_windows_total")["lost",] == pytest.approx((1800 - 600) / 60, abs=2)


def test_a_jump_of_the_clock_is_counted(polled):
    assert counted(polled(None, seconds=120, jump=-30.0), "tokiod_clock_jumps_total") == {(): 1}


def test_a_failed_attempt_of_a_backfill_is_counted_too(tmp_path):
    async def scene():
        clock = FakeClock(NOON)
        with Ledger.open(tmp_path / "ledger.sqlite3") as ledger:
            backfill = Backfill(settings(), None, None, ledger, None, None, Calendar("UTC"), clock, random.Random(1))
            job = ledger.jobs.add(JobRequest("a", Window(NOON, NOON + 60)), NOON)
            with pytest.raises(JobFailed):
                await backfill._wait(job, Window(NOON, NOON + 60), Fatal("no permission"), 1)

    with counting_here(configured(tmp_path, "a"), "collectors"):
        asyncio.run(scene())
        assert counted(values(tmp_path), "tokiod_windows_total") == {("fatal",): 1}


def test_records_that_the_recount_finds_are_late(tmp_path):
    async def scene():
        clock = FakeClock(NOON)
        with Ledger.open(tmp_path / "ledger.sqlite3") as ledger:
            for start in (NOON - 120, NOON - 60):
                ledger.store([StoredEntry(WindowMeta("a", "lmt", "fs-a", Window(start, start + 60), records=10), 0)], NOON - 90_000)
            config = settings()
            ledger.register(config, NOON - 7200)
            recount = Recount(
                config,
                Source(clock, [None]),
                type("Idle", (), {"live_is_due": lambda _: False, "passed_time": lambda _: clock.time()})(),
                ledger,
                clock,
            )
            task = asyncio.create_task(recount.run())
            await clock.advance(1)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    with counting_here(configured(tmp_path, "a"), "collectors"):
        asyncio.run(scene())
        assert counted(values(tmp_path), "tokiod_late_records_total") == {(): 40}


# ---- the bus


def test_windows_in_flight_are_reported_and_those_that_another_writer_receives_again(tmp_path):
    async def scene(found):
        endpoint = f"ipc://{tmp_path}/bus"
        with Receiver(endpoint, "first") as receiver:
            async with Sender(endpoint) as sender:
                await pumped(receiver, sender.welcomed())
                answer = await sender.submit(window(NOON))
                (arrived,) = await until_arrived(receiver)
                found.append(values(tmp_path))
                receiver.close()
                with Receiver(endpoint, "second") as another:
                    (arrived,) = await until_arrived(another)
                    another.ack(arrived, 5, {"null": 3})
                    await pumped(another, answer)
                    await asyncio.sleep(0)
                    found.append(values(tmp_path))

    found = []
    with counting_here(configured(tmp_path, "a"), "collectors"):
        asyncio.run(scene(found))
    before, after = found
    assert counted(before, "tokiod_bus_unacknowledged_windows") == {(): 1}
    assert counted(before, "tokiod_bus_unacknowledged_bytes")[()] > 0
    assert not counted(after, "tokiod_bus_unacknowledged_windows") | counted(after, "tokiod_bus_unacknowledged_bytes")
    assert counted(after, "tokiod_bus_resent_windows_total") == {(): 1}
    assert counted(after, "tokiod_windows_total") == {("stored",): 1}
    assert (counted(after, "tokiod_cells_total"), counted(after, "tokiod_cells_dropped_total")) == ({(): 5}, {(): 3})


async def pumped(receiver, waiting):
    waiting = asyncio.ensure_future(waiting)
    while not waiting.done():
        receiver.poll(0)
        receiver.beat()
        await asyncio.sleep(0.01)


async def until_arrived(receiver):
    while True:
        if arrived := receiver.poll(0):
            return arrived
        await asyncio.sleep(0.01)


def window(start):
    collected = model.window({"OST0000": {0: 1}}, 0, 1)
    return replace(collected, meta=replace(collected.meta, source="a", window=Window(start, start + 60)))
