"""Each stage is recorded once, at its place, with its outcome: those of the collectors' process, of the writer and of files."""

import asyncio
import time
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from tokiod.archive.layout import FileSlot
from tokiod.errors import Refusal, Transient
from tokiod.metrics import catalogue, stages
from tokiod.metrics.stage_ring import SLOTS, STAGES, StageRing, read_ring
from tokiod.metrics.stages import Rewriting
from tokiod.window import Window
from tokiod.window_data import Collected, WindowMeta
from tokiod.window_result import Stored

WINDOW = Window(1_517_184_000, 1_517_184_060)
COLLECTED = Collected(WindowMeta("a", "lmt", "fs", WINDOW), [])
DAY = FileSlot("fs", Path("fs.hdf5"), 0, 86400)
WAITED, COMPUTED = 0.05, 0.02


@pytest.fixture
def recorded(tmp_path):
    """Record here; call it for what was recorded."""
    with stages.recording(tmp_path / "rings", tmp_path / "run", "collectors"):
        yield lambda: read_ring(stages.ring_path(tmp_path / "rings", "collectors")).works


async def answers(times=1, error=None):
    for _ in range(times):
        await asyncio.sleep(WAITED)
        begun = time.monotonic()
        while time.monotonic() - begun < COMPUTED:
            pass
    if error is not None:
        raise error
    return COLLECTED


async def collecting(*arguments):
    return await stages.Collecting(*arguments)


def seconds(work):
    """Return the seconds of each stage that was reached."""
    reached = [(stage, mark) for stage, mark in zip((*STAGES[work.kind], "end"), work.marks, strict=True) if mark]
    return {stage: (end - start) / 1e9 for (stage, start), (_, end) in pairwise(reached)}


def test_a_collection_is_split_without_holes_into_what_waits_and_what_computes(recorded):
    assert asyncio.run(collecting(answers(3), "a", WINDOW, 12.5)) is COLLECTED
    (work,) = recorded()
    taken = seconds(work)
    assert (work.kind, work.outcome, list(taken)) == ("collection", "done", ["due", "ask", "fetch", "parse"])
    assert taken["due"] == pytest.approx(12.5)
    assert taken["fetch"] >= 3 * WAITED
    assert taken["parse"] >= 3 * COMPUTED
    assert (work.name, work.window_start, work.window_seconds, work.attempt) == ("a", WINDOW.start, 60, 0)
    assert abs(work.marks[-1] + work.wall - time.time_ns()) < 60e9


def test_a_collection_of_the_past_was_never_due(recorded):
    asyncio.run(collecting(answers(), "a", WINDOW))
    assert list(seconds(recorded()[0])) == ["ask", "fetch", "parse"]


def test_a_collection_that_never_waits_computes(recorded):
    asyncio.run(collecting(answers(0), "a", WINDOW))
    (work,) = recorded()
    assert (work.outcome, list(seconds(work)), seconds(work)["ask"]) == ("done", ["ask", "parse"], 0)


def test_a_collection_that_fails_is_recorded_as_failed_and_raises_its_error(recorded):
    with pytest.raises(Transient, match="no answer"):
        asyncio.run(collecting(answers(error=Transient("no answer")), "a", WINDOW))
    assert recorded()[0].outcome == "failed"


def test_a_collection_that_is_cancelled_ends_where_it_waits(recorded):
    async def scene():
        reached = []

        async def endless():
            try:
                await asyncio.Event().wait()
            finally:
                reached.append("cleaned up")

        task = asyncio.create_task(collecting(endless(), "a", WINDOW))
        await asyncio.sleep(0)
        (work,) = recorded()
        assert (work.outcome, [bool(mark) for mark in work.marks]) == ("open", [False, True, True, False, False])
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return reached

    assert asyncio.run(scene()) == ["cleaned up"]
    assert (recorded()[0].outcome, list(seconds(recorded()[0]))) == ("failed", ["ask", "fetch", "parse"])


def test_the_time_limit_of_a_collection_holds_and_it_may_recover_from_one_within(recorded):
    async def limited():
        try:
            async with asyncio.timeout(WAITED):
                await asyncio.Event().wait()
        except TimeoutError:
            await asyncio.sleep(0)
        async with asyncio.timeout(WAITED):
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        asyncio.run(collecting(limited(), "a", WINDOW))
    assert recorded()[0].outcome == "failed"
    assert seconds(recorded()[0])["fetch"] >= WAITED


def test_a_collection_that_is_thrown_away_is_closed(recorded):
    reached = []

    async def endless():
        try:
            await asyncio.sleep(60)
        finally:
            reached.append("closed")

    collection = collecting(endless(), "a", WINDOW)

    async def scene():
        collection.send(None)

    asyncio.run(scene())
    collection.close()
    assert (reached, recorded()[0].outcome) == (["closed"], "failed")


@pytest.mark.parametrize(
    ("answered", "outcome"),
    [(Stored(1, {}), "done"), (Refusal("full", "retry"), "refused"), (Refusal("no", "never"), "failed"), (None, "failed")],
)
def test_a_submission_waits_for_room_and_then_is_on_the_bus_until_its_answer(recorded, answered, outcome):
    async def scene():
        with stages.Submission(COLLECTED) as submission:
            assert [bool(mark) for mark in recorded()[0].marks] == [True, False, False]
        answer = asyncio.get_running_loop().create_future()
        submission.accepted(answer)
        assert ([bool(mark) for mark in recorded()[0].marks], recorded()[0].outcome) == ([True, True, False], "open")
        answer.cancel() if answered is None else answer.set_result(answered)
        await asyncio.sleep(0)
        return recorded()

    (work,) = asyncio.run(scene())
    assert (work.kind, work.outcome, work.marks) == ("submission", outcome, tuple(sorted(work.marks)))


def test_a_submission_that_is_cancelled_has_failed(recorded):
    with pytest.raises(asyncio.CancelledError), stages.Submission(COLLECTED):
        raise asyncio.CancelledError
    assert (recorded()[0].outcome, list(seconds(recorded()[0]))) == ("failed", ["submit"])


def attempt(name):
    return SimpleNamespace(source=name, start=WINDOW.start, end=WINDOW.end, attempt=7)


def test_the_writer_records_the_stages_of_each_window_and_those_that_they_share_at_one_time(recorded):
    attempts = [attempt("a"), attempt("b")]
    with stages.Commit() as commit:
        for one in attempts:
            with commit.stage("apply", [one]):
                pass
        for stage in ("sync", "ledger"):
            with commit.stage(stage, attempts):
                assert [work.outcome for work in recorded()] == ["open", "open"]
        for one in attempts:
            with commit.stage("feed", [one]):
                pass
    a, b = recorded()
    assert [(work.name, work.attempt, work.kind, work.outcome) for work in (a, b)] == [(name, 7, "commit", "done") for name in ("a", "b")]
    assert list(seconds(a)) == list(seconds(b)) == ["apply", "sync", "ledger", "feed"]
    assert a.marks[1:3] == b.marks[1:3]


def test_a_window_that_the_writer_does_not_store_has_failed_in_the_stage_that_it_reached(recorded):
    attempts = [attempt("a"), attempt("b")]
    with stages.Commit() as commit:
        with commit.stage("apply", attempts):
            pass
        with pytest.raises(OSError, match="torn"), commit.stage("sync", attempts[:1]):
            raise OSError("torn")
    assert [(work.name, work.outcome, list(seconds(work))) for work in recorded()] == [
        ("a", "failed", ["apply", "sync"]),
        ("b", "failed", ["apply"]),
    ]


@pytest.mark.parametrize("change", catalogue.CHANGES)
def test_a_rewrite_of_a_file_is_recorded_with_its_day(recorded, change):
    for is_done in (True, False):
        Rewriting(change, DAY).end(is_done=is_done)
    found = [(work.kind, work.name, work.window_start, work.window_seconds, work.outcome) for work in recorded()]
    assert found == [(stages.REWRITES[change], "fs", 0, 86400, outcome) for outcome in ("done", "failed")]


def test_work_that_ends_after_its_slot_was_taken_takes_another(recorded):
    long = Rewriting("sealed", DAY)
    for _ in range(SLOTS):
        Rewriting("made", DAY).end()
    long.end()
    assert [work.number for work in recorded() if work.kind == "seal"] == [SLOTS + 2]


def test_outside_of_a_recording_nothing_is_recorded_and_everything_works(tmp_path):
    with stages.recording(tmp_path / "rings", tmp_path / "run", "writer"):
        rewriting = Rewriting("sealed", DAY)
    rewriting.end()
    assert asyncio.run(collecting(answers(), "a", WINDOW, 1.0)) is COLLECTED
    with stages.Commit() as commit, commit.stage("sync", []):
        pass
    assert [work.outcome for work in read_ring(stages.ring_path(tmp_path / "rings", "writer")).works] == ["open"]


def test_a_ring_that_can_not_be_made_is_logged_and_stops_nothing(tmp_path):
    (tmp_path / "rings").mkdir(mode=0o750)
    stages.ring_path(tmp_path / "rings", "writer").mkdir()
    with capture_logs() as logs, stages.recording(tmp_path / "rings", tmp_path / "run", "writer"):
        Rewriting("sealed", DAY).end()
    assert [log["event"] for log in logs] == ["stages.failed"]
    assert "Is a directory" in logs[0]["reason"]


def test_readers_may_read_the_rings_and_the_lock_is_for_the_daemon_s_user_alone(tmp_path):
    with stages.recording(tmp_path / "rings", tmp_path / "run", "writer"):
        pass
    path, lock = stages.ring_path(tmp_path / "rings", "writer"), tmp_path / "run" / "writer.stages.lock"
    assert [one.stat().st_mode & 0o777 for one in (path, path.parent, lock, lock.parent)] == [0o640, 0o750, 0o600, 0o700]
    with StageRing(path, lock) as ring:
        assert ring.next_number() == 1
