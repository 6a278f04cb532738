"""Followers of the change log, on real files and a real ledger, with a sink in memory."""

import asyncio
import datetime as dt
import errno
import json
import os
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
from written_archive import COUNTER, GAUGE, MIDNIGHT, STEP, SYSTEM, WrittenArchive

from sinks.elasticsearch.documents import actions, groups
from tokiod.batch import Batch
from tokiod.change_sink import Acknowledged, SinkConfig
from tokiod.config import load as configuration
from tokiod.errors import Transient
from tokiod.forwarding import file_rows, rewind, row_follower
from tokiod.forwarding.change_reader import LogPart
from tokiod.forwarding.cursor import Cursor, CursorFile, StoredDay
from tokiod.forwarding.day_follower import SCAN_SECONDS, DayFollower
from tokiod.forwarding.row_follower import RowFollower
from tokiod.forwarding.shown_state import ShownState
from tokiod.ledger.changes import Change, LogState
from tokiod.ranges import Ranges
from tokiod.testing import FakeClock
from tokiod.testing.sink_contract import held_of
from tokiod.tts.schema import group_of
from tokiod.window import Window

DAY = 86400
MAX_STEPS = 300
"""Of a follower that ends: it has nothing left to do."""


class Rows:
    """Keeps what it receives; fails once `left` calls are over, and calls `before` first."""

    def __init__(self, left=10**9, before=lambda: None):
        self.sent, self.left, self.before = [], left, before

    async def send(self, blocks):
        self.before()
        if not self.left:
            raise Transient("no answer")
        self.left -= 1
        self.sent.append(blocks)
        return Acknowledged(len(blocks), Counter())

    @property
    def blocks(self):
        return [block for blocks in self.sent for block in blocks]


class Days:
    """Keeps the days that it receives."""

    def __init__(self):
        self.stored, self.changing = {}, []

    async def store(self, day):
        self.stored[day.date] = {name: list(day.blocks(name, 500)) for name in day.datasets}
        for blocks in self.stored[day.date].values():
            assert Window(blocks[0].start, blocks[-1].end) == day.window
            assert [block.rows for block in blocks[:-1]] == [500] * (len(blocks) - 1)
            assert 0 < blocks[-1].rows <= 500
            assert {(block.system, block.revision, block.epoch) for block in blocks} == {(day.system, day.revision, day.epoch)}
        return Acknowledged(len(day.datasets))

    async def reopened(self, system, date, revision):
        self.changing.append((system, date, revision))


@pytest.fixture
def zone():
    """One whose midnight is at a quarter of an hour of UTC: the rows of the sinks' processes in tests/system are of UTC."""
    return "Asia/Kathmandu"


@pytest.fixture
def archive(tmp_path, zone):
    made = WrittenArchive(tmp_path, FakeClock(MIDNIGHT + 3 * DAY), zone)
    yield made
    made.close()


@pytest.fixture
def numbers():
    return np.random.default_rng(1)


@pytest.fixture
def follow(archive, tmp_path):
    """Follow the log with a sink until nothing is left to do; each call is a new process."""
    directory = tmp_path / "sinks" / "x"
    directory.mkdir(parents=True)

    def follow(sink, make=RowFollower, piece_bytes=None, config=SinkConfig, divisor=1):
        section = config(name="x", kind="x")
        shown = ShownState(directory, "x", "x", archive.clock, archive.clock)
        follower = make(configuration.load(tmp_path / "tokiod.toml"), section, directory, archive.clock, shown)
        follower.rows.piece_bytes = piece_bytes or follower.rows.piece_bytes
        follower.rows.divisor = divisor

        async def steps():
            try:
                for _ in range(MAX_STEPS):
                    if not await follower.step(sink):
                        return
                pytest.fail(f"no end after {MAX_STEPS} steps")
            finally:
                follower.close()

        archive.publish()
        asyncio.run(steps())
        return follower

    follow.directory = directory
    return follow


def test_the_first_start_sends_all_files_and_then_each_change(archive, follow, numbers):
    archive.store(MIDNIGHT + 3600, 10, 3, numbers)
    archive.store(MIDNIGHT + DAY + 3600, 10, 3, numbers)
    sink = Rows()
    follow(sink)
    assert held_of(sink.blocks) == archive.held()
    archive.store(MIDNIGHT + 7200, 5, 3, numbers)
    later = Rows()
    follow(later)
    assert held_of([*sink.blocks, *later.blocks]) == archive.held()
    assert sum(block.rows for block in later.blocks) < 1000
    assert {block.dataset for block in later.blocks} == {GAUGE, COUNTER}
    again = Rows()
    follow(again)
    assert again.blocks == []


def test_a_system_that_is_added_is_sent_from_its_files_and_one_that_is_removed_is_forgotten(archive, follow, numbers):
    def other(**keys):
        return SinkConfig(systems=("other",), **keys)

    archive.store(MIDNIGHT + 3600, 30, 4, numbers)
    sink = Rows()
    assert follow(sink, config=other).cursor.systems == ("other",)
    archive.store(MIDNIGHT + 2 * DAY + 3600, 30, 4, numbers)
    assert (follow(sink, config=other).cursor.seq, sink.blocks) == (archive.ledger.changes.state().head, [])
    assert follow(sink).cursor.systems == (SYSTEM,)
    assert held_of(sink.blocks) == archive.held()
    rewind.request(follow.directory, 0)
    with pytest.raises(Transient):
        follow(Rows(0))
    assert CursorFile(follow.directory).load().backlog.keys() == {SYSTEM}
    left = follow(sink, config=other).cursor
    assert (left.systems, left.backlog, left.days) == (("other",), {}, {})


def test_the_days_of_a_system_that_is_removed_are_forgotten(archive, follow, numbers):
    sealed_days(archive, numbers, 1)
    assert follow(Days(), DayFollower).cursor.days.keys() == {SYSTEM}
    assert follow(Days(), DayFollower, config=lambda **keys: SinkConfig(systems=("other",), **keys)).cursor.days == {}
    again = Days()
    follow(again, DayFollower)
    assert len(again.stored) == 1


@pytest.mark.parametrize(("waiting", "expected"), [(1, (0, 0)), (4, (3, 90))])
def test_the_state_has_the_changes_that_follow_and_the_time_of_the_last_one_before_them(archive, follow, numbers, waiting, expected):
    archive.store(MIDNIGHT + 3600, 10, 3, numbers)
    follower = follow(Rows())
    change = Change(follower.cursor.seq + 1, SYSTEM, "one", Window(MIDNIGHT, MIDNIGHT + 60), "rows", archive.clock.time() - 90)
    state = archive.ledger.changes.state()
    follower._reader = SimpleNamespace(read=lambda _: LogPart(state, (change,), waiting))
    assert asyncio.run(follower.step(Rows()))
    assert (follower.shown.now.lag_windows, follower.shown.now.lag, follower.shown.now.cursor) == (*expected, change.seq)
    follower.close()


def test_the_state_is_written_a_second_after_a_change_and_seldom_without_one(archive, follow, numbers):
    archive.store(MIDNIGHT + 3600, 10, 3, numbers)
    follower = follow(Rows())
    written = []
    follower.shown._write = lambda: written.append(1)
    part = LogPart(archive.ledger.changes.state(), (), 0)
    follower._reader = SimpleNamespace(read=lambda _: part)
    asyncio.run(archive.clock.advance(2.0))
    assert not asyncio.run(follower.step(Rows()))
    assert written == []
    change = Change(follower.cursor.seq + 1, SYSTEM, "one", Window(MIDNIGHT, MIDNIGHT + 60), "rows", archive.clock.time())
    part = LogPart(archive.ledger.changes.state(), (change,), 1)
    assert asyncio.run(follower.step(Rows()))
    assert written == [1]
    follower.close()


def test_a_follower_that_was_closed_has_no_file_open(archive, follow, numbers):
    archive.store(MIDNIGHT + 3600, 10, 3, numbers)
    before = opened()
    follow(Rows())
    assert opened() == before


def opened():
    names = (os.path.realpath(path) for path in Path("/proc/self/fd").iterdir())
    return [name for name in names if name.endswith(".hdf5")]


def test_revisions_are_numbers_of_the_log_and_grow(archive, follow, numbers):
    sink = Rows()
    for n in range(3):
        archive.store(MIDNIGHT + 3600, 10, 3, numbers)
        if n == 1:
            archive.lose_ledger()
        follow(sink)
        assert sink.blocks[-1].revision == archive.ledger.changes.state().head
        assert sink.blocks[-1].epoch == archive.ledger.changes.state().epoch
        archive.clock.jump(5)
    revisions = [block.revision for block in sink.blocks]
    assert revisions == sorted(revisions)


@pytest.mark.parametrize("left", range(6))
def test_a_sink_that_fails_at_any_call_is_sent_what_is_left(archive, follow, numbers, left):
    for n in range(3):
        archive.store(MIDNIGHT + n * DAY + 3600, 30, 4, numbers)
    first, second = Rows(left), Rows()
    with pytest.raises(Transient):
        follow(first, piece_bytes=8 * 4 * 2 * 600)
    follow(second, piece_bytes=8 * 4 * 2 * 600)
    assert len(first.sent) == left
    assert held_of([*first.blocks, *second.blocks]) == archive.held()
    if left > 3:
        assert len(second.blocks) < len(first.blocks) + len(second.blocks)


def test_a_slow_receiver_gets_pieces_that_it_takes_in_the_time_limit(archive, follow, numbers):
    """One process, whose attempts time out: it goes on with smaller pieces, and with larger ones once the receiver is quick."""
    archive.store(MIDNIGHT, 1000, 40, numbers)

    class Slow(Rows):
        cells_in_time = 20_000

        async def send(self, blocks):
            if sum(block.values.size for block in blocks) > self.cells_in_time:
                raise TimeoutError
            return await super().send(blocks)

    class Steps(RowFollower):
        """Tries again as the process does."""

        failures = 0

        async def step(self, sink):
            try:
                return await super().step(sink)
            except TimeoutError:
                Steps.failures += 1
                return True

    sink = Slow()
    follow(sink, Steps)
    assert held_of(sink.blocks) == archive.held()
    assert 0 < Steps.failures < len(sink.sent) + 8
    quick = Slow()
    quick.cells_in_time = 10**9
    rewind.request(follow.directory, 0)
    follow(quick, Steps, divisor=64)
    sizes = [sum(block.values.size for block in blocks) for blocks in quick.sent]
    assert sizes == sorted(sizes[:-1]) + sizes[-1:]
    assert max(sizes) > 3 * sizes[0]


@pytest.mark.parametrize(
    ("seconds", "before", "after"),
    [(0, 1, 1), (0, 5, 2), (14.9, 8, 4), (15, 8, 8), (59, 8, 8), (None, 1, 2), (None, 64, 128), (None, 128, 128)],
)
def test_a_piece_that_is_late_is_halved_and_one_within_a_quarter_of_the_time_limit_doubled(follow, monkeypatch, seconds, before, after):
    """Of a minute. None: it was not acknowledged."""
    follower = follow(Rows(), divisor=before)
    times = iter([100, 100 + (seconds or 0)])
    monkeypatch.setattr(
        row_follower,
        "asyncio",
        SimpleNamespace(get_running_loop=lambda: SimpleNamespace(time=lambda: next(times)), to_thread=asyncio.to_thread),
    )

    async def answer():
        if seconds is None:
            raise TimeoutError
        return Acknowledged(1)

    with pytest.raises(TimeoutError, match="no acknowledgement within 60 s") if seconds is None else nullcontext():
        asyncio.run(follower._in_time(answer()))
    assert follower.rows.divisor == after


@pytest.mark.parametrize(("clock", "data_end"), [(0, -60), (0, None), (-DAY, 0)])
def test_a_start_from_the_files_has_all_days_with_one_until_an_hour_after_the_newest_row_or_the_clock(
    archive, follow, numbers, clock, data_end
):
    now = MIDNIGHT + 3 * DAY
    for n in (0, 2, 3):
        archive.store(MIDNIGHT + n * DAY - 7200, 10, 3, numbers)
    follower = follow(Rows(), config=lambda **keys: SinkConfig(systems=("other",), **keys))
    archive.clock.jump(clock)
    first, *_, last = days = [archive.zone.day(MIDNIGHT + n * DAY - 7200) for n in (0, 2, 3)]
    part = LogPart(LogState(1, 0, 9), (), 0, {} if data_end is None else {SYSTEM: now + data_end})

    def backlog(since):
        found = asyncio.run(follower.from_files(part, Cursor(1, 9), (SYSTEM,), since))
        assert {(name, one.revision) for name, one in found.backlog.items()} <= {(SYSTEM, 9)}
        return [span for one in found.backlog.values() for span in one.spans]

    ends = [min(day.end, now + 3600) for day in days]
    assert backlog(0) == [*Ranges(zip((day.start for day in days), ends, strict=True))]
    assert backlog(first.end) == backlog(0)[1:]
    assert backlog(first.end - 1)[0] == (first.end - 1, first.end)
    assert backlog(ends[-1] - 1) == [(ends[-1] - 1, ends[-1])]
    assert backlog(ends[-1]) == []
    assert last.start < now


def test_pieces_fit_into_memory_and_lie_on_the_grid_of_the_sinks_windows(archive, follow, numbers):
    class Config(SinkConfig):
        @property
        def window(self):
            return 600

    archive.store(MIDNIGHT + 3600, 300, 4, numbers)
    sink = Rows()
    follow(sink, piece_bytes=8 * 4 * 2 * 60, config=Config)
    assert held_of(sink.blocks) == archive.held()
    days = {archive.zone.day(MIDNIGHT + 3600).start, archive.zone.day(MIDNIGHT + DAY).start}
    for block in sink.blocks:
        assert block.start % 600 == 0 or block.start in days
        assert block.end % 600 == 0 or block.end in days
        assert block.values.nbytes * 2 <= 8 * 4 * 2 * 60
    before = len(sink.blocks)
    archive.store(MIDNIGHT + 3600 + 120, 1, 4, numbers)
    follow(sink, config=Config)
    assert {(block.start, block.rows) for block in sink.blocks[before:]} == {(MIDNIGHT + 3600, 10)}


def test_rows_of_a_lost_file_are_missing_until_they_are_stored_again(archive, follow, numbers):
    archive.store(MIDNIGHT + 3600, 10, 3, numbers)
    archive.store(MIDNIGHT + 2 * DAY + 3600, 10, 3, numbers)
    sink = Rows()
    follow(sink)
    archive.set_aside(MIDNIGHT + 3600)
    follow(sink)
    assert held_of(sink.blocks) == archive.held()
    assert all(np.isnan(block.values).all() for block in sink.sent[-1])
    assert sink.sent[-1][0].columns == ("OST0000", "OST0001", "OST0002")
    archive.store(MIDNIGHT + 3600, 7, 3, numbers)
    follow(sink)
    assert held_of(sink.blocks) == archive.held()


class Documents(Rows):
    """Holds the documents of a group by their ids, as Elasticsearch does: each has the state with the highest version."""

    def __init__(self):
        super().__init__()
        self.documents = {}

    async def send(self, blocks):
        for group, members in groups(blocks).items():
            for action in actions("t", group, members, sorted({name for one in members for name in one.columns})):
                version = json.loads(action.head).popitem()[1]["version"]
                if version >= self.documents.get(action.id, (0, None))[0]:
                    self.documents[action.id] = version, json.loads(action.body or "null")
        return await super().send(blocks)

    @property
    def steps(self):
        return Counter(document["step"] for _, document in self.documents.values() if document)


class GroupRows(Rows):
    """Checks what the contract states of the blocks of one call."""

    async def send(self, blocks):
        rows = {(group_of(block.dataset), block.start, block.step, block.rows) for block in blocks}
        assert len(rows) == len({group for group, *_ in rows})
        assert len({block.dataset for block in blocks}) == len(blocks)
        assert len({block.revision for block in blocks}) == 1
        return await super().send(blocks)


def store_group(archive, start, step, names, seconds=600, value=1.0):
    """Store gauges of one group, a column each, whose source has a step."""
    times = start + step * np.arange(seconds // step, dtype=np.int64)
    column, values = np.zeros(len(times), np.uint32), np.full(len(times), float(value))
    batches = [Batch(f"dataservers/{name}", "gauge", step, ("bb0",), times, column, values) for name in names]
    archive.apply(Window(start, start + seconds), batches)


def test_the_datasets_of_a_group_have_the_same_rows_where_its_source_changed_its_step(archive, follow):
    days = [archive.zone.day(MIDNIGHT + n * DAY + 8 * 3600).start for n in range(3)]
    store_group(archive, days[0], 5, ["cpuload"])
    store_group(archive, days[1], 60, ["cpuload", "cpuuser"])
    sink = GroupRows()
    follow(sink)
    store_group(archive, days[2], 30, ["memused"])
    follow(sink)
    archive.set_aside(days[2])
    follow(sink)
    assert {block.dataset.partition("/")[2] for block in sink.sent[-1]} == {"cpuload", "cpuuser", "memused"}
    assert held_of(sink.blocks).keys() == {
        *(("dataservers/cpuload", days[0] + 5 * row) for row in range(120)),
        *((f"dataservers/{name}", days[1] + 60 * row) for name in ("cpuload", "cpuuser") for row in range(10)),
    }


@pytest.mark.parametrize(("before", "after"), [(5, 60), (60, 5), (60, 3600)])
def test_rows_of_the_former_step_are_missing_once_a_day_is_made_again_with_another_step(archive, follow, before, after):
    day, other = (archive.zone.day(MIDNIGHT + n * DAY + 8 * 3600).start for n in range(2))
    sink = Documents()
    for step in (before, after):
        store_group(archive, day, step, ["cpuload"], 3600, value=step)
        follow(sink)
        assert sink.steps == {step: 3600 // step}
        archive.set_aside(day)
    for step in (before, after):
        store_group(archive, day, step, ["cpuload", "cpuuser"], 3600, value=step)
        store_group(archive, other, after, ["cpuload"], 3600)
        follow(sink)
        archive.set_aside(day)
    assert sink.steps == {after: 3600 // after * 2}
    follow(sink)
    assert sink.steps == {after: 3600 // after}
    assert held_of(sink.blocks) == archive.held()


def test_rows_of_a_former_step_are_sent_as_missing_only_on_the_days_that_had_it(archive, follow):
    days = [archive.zone.day(MIDNIGHT + n * DAY + 8 * 3600).start for n in range(2)]
    store_group(archive, days[0], 5, ["cpuload"])
    store_group(archive, days[1], 60, ["cpuload"])
    follow(GroupRows())
    rewind.request(follow.directory, 0)
    sink = GroupRows()
    follow(sink)
    assert {(archive.zone.day(block.start).start, block.step) for block in sink.blocks} == {(days[0], 5), (days[1], 60)}


def test_a_piece_of_a_day_that_had_several_steps_fits_into_memory_and_its_rows_come_last(archive, follow):
    day = archive.zone.day(MIDNIGHT + 8 * 3600).start
    sink = Rows()
    for step in (5, 60):
        archive.set_aside(day)
        store_group(archive, day, step, ["cpuload"], 7200, value=step)
        follow(sink, piece_bytes=8 * 120)
    assert held_of(sink.blocks) == archive.held()
    assert max(sum(block.values.nbytes for block in blocks) for blocks in sink.sent) <= 8 * 120
    newest = max(block.revision for block in sink.blocks)
    again = Rows()
    rewind.request(follow.directory, 0)
    follow(again, piece_bytes=8 * 120)
    assert [(block.step, block.revision) for block in again.blocks] == [(5, newest - 1), (60, newest)] * (len(again.blocks) // 2)


def test_a_new_epoch_and_a_trimmed_log_start_from_the_files(archive, follow, numbers):
    archive.store(MIDNIGHT + 3600, 10, 3, numbers)
    follow(Rows())
    archive.clock.jump(5)
    archive.lose_ledger()
    sink = Rows()
    follow(sink)
    assert held_of(sink.blocks) == archive.held()
    archive.clock.jump(40 * DAY)
    archive.store(MIDNIGHT + 7200, 10, 3, numbers)
    archive.ledger.changes.newest_rows = 0
    archive.clock.jump(40 * DAY)
    archive.ledger.changes.tidy(archive.clock.time())
    trimmed = Rows()
    follow(trimmed)
    assert held_of(trimmed.blocks) == archive.held()


@pytest.mark.parametrize(("passed", "is_elsewhere"), [(0, False), (1, True)])
def test_a_log_that_is_trimmed_up_to_the_cursor_has_all_that_follows(archive, follow, numbers, passed, is_elsewhere):
    archive.store(MIDNIGHT + 3600, 10, 3, numbers)
    follower = follow(Rows())
    epoch, seq = follower.cursor.epoch, follower.cursor.seq
    part = LogPart(LogState(epoch, seq + passed, seq + 5), (), 0)
    assert asyncio.run(follower._has_moved_elsewhere(part)) is is_elsewhere
    assert (follower.cursor.epoch, follower.cursor.seq) == (epoch, seq + 5 * is_elsewhere)
    follower.close()


SOURCE = """
[[source]]
name = "one"
kind = "lmt"
system = "cscratch"
url = "sqlite:///lmt.sqlite3"
retention = "{days}d"
"""


def lose_changes(archive, how):
    """Let a sink start from the files."""
    archive.clock.jump(5)
    if how == "new epoch":
        archive.lose_ledger()
    else:
        archive.clock.jump(40 * DAY)
        archive.ledger.changes.tidy(archive.clock.time())


@pytest.mark.parametrize("how", ["new epoch", "trimmed"])
def test_rows_whose_file_is_gone_are_missing_although_no_change_states_it(archive, follow, numbers, how):
    archive.configure(SOURCE.format(days=90))
    for n in range(3):
        archive.store(MIDNIGHT + n * DAY + 8 * 3600, 10, 3, numbers)
    sink = Rows()
    follow(sink)
    archive.set_aside(MIDNIGHT + 8 * 3600)
    lose_changes(archive, how)
    follow(sink)
    assert held_of(sink.blocks) == archive.held()


def test_rows_of_a_file_that_may_have_been_moved_away_stay_sent(archive, follow, numbers):
    archive.configure(SOURCE.format(days=2))
    for n in range(3):
        archive.store(MIDNIGHT + n * DAY + 8 * 3600, 10, 3, numbers)
    held, sink = archive.held(), Rows()
    follow(sink)
    archive.path(MIDNIGHT + 8 * 3600).unlink()
    archive.clock.jump(DAY)
    archive.lose_ledger()
    follow(sink)
    assert held_of(sink.blocks) == held


def test_a_file_is_held_by_the_age_of_the_newest_rows_or_by_the_clock_if_it_is_behind(archive, follow):
    """The rule of the writer, with the longest retention of a system's sources."""
    jobs = SOURCE.replace('"lmt"', '"lustre_jobstats"').replace('url = "sqlite:///lmt.sqlite3"', 'servers = ["oss"]\nlctl = ["lctl"]')
    for name, section in (("one", SOURCE.format(days=2)), ("two", jobs.format(days=9)), ("three", SOURCE.format(days=50))):
        archive.configure(section.replace('"one"', f'"{name}"').replace("cscratch", "other" if name == "three" else "cscratch"))
    follower, now = follow(Rows()), MIDNIGHT + 3 * DAY
    for data_ends, newest in (({}, now), ({SYSTEM: now - 40 * DAY}, now - 40 * DAY), ({SYSTEM: now + 5}, now), ({"other": 7}, now)):
        assert follower.held_since(LogPart(LogState(1, 0, 0), (), 0, data_ends), SYSTEM) == newest - 9 * DAY
    assert follower.held_since(LogPart(LogState(1, 0, 0), (), 0, {"other": 7}), "nothing") == now


def test_the_days_of_a_span_are_those_that_have_a_second_of_it(archive, follow):
    first, second = (archive.zone.day(MIDNIGHT + n * DAY) for n in range(2))
    spans = [(0, 0), (-1, 0), (0, 1), (-1, 1), (1, DAY), (1, DAY + 1)]
    follower, third = follow(Rows()), archive.zone.day(second.end)
    assert [[*follower.days_of(second.start + start, second.start + end)] for start, end in spans] == [
        [], [first], [second], [first, second], [second], [second, third],
    ]  # fmt: skip


def test_what_an_earlier_version_recorded_of_sent_rows_is_read(archive, follow, numbers):
    archive.store(MIDNIGHT + 8 * 3600, 10, 3, numbers)
    sink = Rows()
    follow(sink)
    path = follow.directory / "datasets.json"
    known = json.loads(path.read_bytes())
    for one in known.values():
        del one["sent"]
    path.write_text(json.dumps(known))
    archive.set_aside(MIDNIGHT + 8 * 3600)
    follow(sink)
    assert held_of(sink.blocks) == archive.held() == {}


def test_what_was_sent_is_recorded_once_its_file_can_be_written_again(archive, follow, numbers, monkeypatch):
    archive.store(MIDNIGHT + 8 * 3600, 10, 3, numbers)

    def fail(*_):
        monkeypatch.undo()
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(file_rows, "replace_file", fail)

    class Steps(RowFollower):
        """Tries again as the process does."""

        async def step(self, sink):
            try:
                return await super().step(sink)
            except Transient:
                return True

    follow(Rows(), Steps)
    assert json.loads((follow.directory / "datasets.json").read_bytes())[SYSTEM]["datasets"].keys() == {GAUGE, COUNTER}


@pytest.mark.parametrize("behind", [3600, DAY])
def test_rows_after_the_time_of_a_clock_that_is_behind_are_sent(archive, follow, numbers, behind):
    for n in range(2):
        archive.store(MIDNIGHT + n * DAY + 8 * 3600, 10, 3, numbers)
    archive.clock.jump(MIDNIGHT + DAY + 8 * 3600 - behind - archive.clock.time())
    sink = Rows()
    follow(sink)
    assert held_of(sink.blocks) == archive.held()
    archive.seal(MIDNIGHT + DAY + 8 * 3600)
    days = Days()
    follow(days, DayFollower)
    assert list(days.stored) == [archive.zone.day(MIDNIGHT + DAY + 8 * 3600).date]


def test_a_rewind_sends_what_is_asked_for_once(archive, follow, numbers):
    for n in range(3):
        archive.store(MIDNIGHT + n * DAY + 10 * 3600, 10, 3, numbers)
    follow(Rows())
    rewind.request(follow.directory, MIDNIGHT + DAY)
    rewind.request(follow.directory, MIDNIGHT + 2 * DAY)
    sink = Rows()
    follow(sink)
    assert held_of(sink.blocks) == {key: cells for key, cells in archive.held().items() if key[1] >= MIDNIGHT + DAY}
    assert min(block.start for block in sink.blocks) >= MIDNIGHT + DAY
    assert list(follow.directory.glob("rewind*")) == []


@pytest.mark.parametrize("make", [RowFollower, DayFollower])
def test_a_rewind_that_changes_nothing_is_removed(archive, follow, numbers, make):
    archive.store(MIDNIGHT + 8 * 3600, 10, 3, numbers)
    archive.seal(MIDNIGHT + 8 * 3600)
    sink = Rows() if make is RowFollower else Days()
    follow(sink, make)
    rewind.request(follow.directory, MIDNIGHT + 3 * DAY)
    follow(sink, make)
    assert list(follow.directory.glob("rewind*")) == []


def test_a_rewind_before_the_first_start_sends_the_archive_once(archive, follow, numbers):
    archive.store(MIDNIGHT + 3600, 10, 3, numbers)
    rewind.request(follow.directory, 0)
    sink = Rows()
    follow(sink)
    assert len(sink.sent) == 1
    assert list(follow.directory.glob("rewind*")) == []


def test_new_rows_come_before_the_rest_of_a_long_backlog(archive, follow, numbers):
    for n in range(3):
        archive.store(MIDNIGHT + n * DAY + 3600, 30, 4, numbers)
    with pytest.raises(Transient):
        follow(Rows(1))
    archive.store(MIDNIGHT + 2 * DAY + 10 * 3600, 2, 4, numbers)
    sink = Rows()
    follow(sink)
    assert sink.blocks[0].start >= MIDNIGHT + 2 * DAY + 9 * 3600
    starts = [block.start for block in sink.blocks[2:]]
    assert archive.zone.day(starts[0]).start >= archive.zone.day(starts[-1]).start


def test_a_damaged_file_is_counted_and_the_rest_is_sent(archive, follow, numbers):
    for n in range(2):
        archive.store(MIDNIGHT + n * DAY + 8 * 3600, 10, 3, numbers)
    held = archive.held()
    archive.path(MIDNIGHT + 8 * 3600).write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(1000))
    sink = Rows()
    follower = follow(sink)
    assert held_of(sink.blocks) == {key: cells for key, cells in held.items() if key[1] >= MIDNIGHT + DAY}
    assert (follower.shown.now.rejected, follower.shown.now.records) == ({"damaged file": 1}, len(sink.blocks))


def test_a_damaged_cursor_starts_from_the_files(archive, follow, numbers):
    archive.store(MIDNIGHT + 3600, 10, 3, numbers)
    follow(Rows())
    (follow.directory / "cursor.json").write_text("{")
    sink = Rows()
    follow(sink)
    assert held_of(sink.blocks) == archive.held()


def test_the_cursor_is_saved_after_the_acknowledgement_and_never_before(archive, follow, numbers):
    archive.store(MIDNIGHT + 3600, 10, 3, numbers)
    follow(Rows())
    saved = CursorFile(follow.directory)
    before = saved.load()
    archive.store(MIDNIGHT + 7200, 10, 3, numbers)
    seen = []
    follow(Rows(before=lambda: seen.append(saved.load())))
    assert seen == [before]
    assert saved.load().seq == archive.ledger.changes.state().head


def test_a_sink_that_returns_no_acknowledgement_is_a_fault(archive, follow, numbers):
    class Silent(Rows):
        async def send(self, blocks):
            pass

    archive.store(MIDNIGHT + 3600, 10, 3, numbers)
    with pytest.raises(TypeError, match="returned NoneType instead of Acknowledged"):
        follow(Silent())


def test_days_are_stored_once_they_are_sealed_and_again_when_they_are_sealed_again(archive, follow, numbers):
    date = archive.zone.day(MIDNIGHT + 8 * 3600).date
    archive.store(MIDNIGHT + 8 * 3600, 10, 3, numbers)
    sink = Days()
    follow(sink, DayFollower)
    assert sink.stored == {}
    archive.seal(MIDNIGHT + 8 * 3600)
    follow(sink, DayFollower)
    day = archive.zone.day(MIDNIGHT + 8 * 3600)
    for blocks in sink.stored[date].values():
        assert (blocks[0].start, sum(block.rows * block.step for block in blocks)) == (day.start, day.end - day.start)
    assert held_of([block for blocks in sink.stored.pop(date).values() for block in blocks]) == archive.held()
    follow(sink, DayFollower)
    archive.ledger.changes.note(SYSTEM, [(day.start, day.end)], "rows", archive.clock.time())  # and the file stays as it is
    follow(sink, DayFollower)
    assert (sink.stored, sink.changing) == ({}, [])
    revision = archive.ledger.changes.state().head + 1
    archive.store(MIDNIGHT + 9 * 3600, 10, 3, numbers)
    follow(sink, DayFollower)
    assert (sink.stored, sink.changing[0]) == ({}, (SYSTEM, date, revision))
    assert follow(sink, DayFollower).cursor.days[SYSTEM][str(date)] == StoredDay(revision)
    assert len(sink.changing) == 1
    archive.seal(MIDNIGHT + 8 * 3600)
    follow(sink, DayFollower)
    assert held_of([block for blocks in sink.stored.pop(date).values() for block in blocks]) == archive.held()
    for start, stored in ((day.end, []), (day.end - 1, [date])):
        rewind.request(follow.directory, start)
        follow(sink, DayFollower)
        assert list(sink.stored) == stored


def sealed_days(archive, numbers, days):
    for n in range(days):
        archive.store(MIDNIGHT + n * DAY + 8 * 3600, 10, 3, numbers)
        archive.seal(MIDNIGHT + n * DAY + 8 * 3600)
    return [archive.zone.day(MIDNIGHT + n * DAY + 8 * 3600).date for n in range(days)]


def damage_a_chunk(path):
    with h5py.File(path, "r", locking=False) as file:
        chunk = file[GAUGE].id.get_chunk_info(0)
    with path.open("r+b") as file:
        file.seek(chunk.byte_offset)
        file.write(bytes(chunk.size))


def test_a_sealed_day_with_a_damaged_chunk_is_counted_once_and_the_other_days_are_stored(archive, follow, numbers):
    first, *others = sealed_days(archive, numbers, 3)
    damage_a_chunk(archive.path(MIDNIGHT + 8 * 3600))

    class Hours(DayFollower):
        """Looks at all files again, as it does each hour."""

        hours = 2

        async def send(self, sink, part, cursor):
            more = await super().send(sink, part, cursor)
            if more or not self.hours:
                return more
            self.hours -= 1
            self._scanned_at -= SCAN_SECONDS
            return True

    sink = Days()
    follower = follow(sink, Hours)
    assert list(sink.stored) == others
    assert (follower.shown.now.rejected, follower.shown.now.records) == ({"damaged file": 1}, sum(map(len, sink.stored.values())))
    rewind.request(follow.directory, 0)
    while asyncio.run(follower.step(sink)):
        pass
    follower.close()
    assert follower.shown.now.rejected == {"damaged file": 2}, "a rewind looks at it again"
    archive.path(MIDNIGHT + 8 * 3600).unlink()
    archive.store(MIDNIGHT + 8 * 3600, 10, 3, numbers)
    archive.seal(MIDNIGHT + 8 * 3600)
    follow(sink, DayFollower)
    assert list(sink.stored) == [*others, first]


def test_a_day_that_can_not_be_stored_now_comes_after_the_other_days(archive, follow, numbers):
    first, *others = sealed_days(archive, numbers, 3)

    class Failing(Days):
        async def store(self, day):
            if day.date == first:
                raise Transient("a bad sector")
            return await super().store(day)

    class Steps(DayFollower):
        """Tries again as the process does."""

        failures = 0

        async def step(self, sink):
            try:
                return await super().step(sink)
            except Transient:
                self.failures += 1
                return self.failures < 2

    sink = Failing()
    follow(sink, Steps)
    assert list(sink.stored) == others
    sink = Days()
    follow(sink, DayFollower)
    assert list(sink.stored) == [first]


@pytest.mark.parametrize("make", [RowFollower, DayFollower])
def test_without_a_log_there_is_nothing_to_send(archive, follow, numbers, make, tmp_path):
    archive.store(MIDNIGHT + 8 * 3600, 10, 3, numbers)
    follower = follow(Rows() if make is RowFollower else Days(), make)
    (tmp_path / "tts/.tokiod-readers/ledger.sqlite3").unlink()
    assert asyncio.run(follower.step(Rows())) is False
    follower.close()


@pytest.mark.parametrize(("error", "expected"), [(FileNotFoundError, ()), (OSError, Transient)])
def test_a_file_that_vanishes_is_none_and_one_that_cannot_be_looked_at_is_tried_again(archive, follow, error, expected):
    day = archive.zone.day(MIDNIGHT + 8 * 3600)
    follower = follow(Days(), DayFollower)

    def stat():
        raise error(errno.EIO, "a bad sector")

    follower.rows.path = lambda *_: SimpleNamespace(stat=stat)
    if expected == ():
        assert follower._identity(SYSTEM, day) == ()
        return
    with pytest.raises(Transient, match="can't be read: a bad sector"):
        follower._identity(SYSTEM, day)


def test_days_that_changed_are_looked_at_at_once_and_all_files_each_hour(archive, follow, numbers):
    """A sealing whose change the log lacks is stored then."""
    first, second = (archive.zone.day(MIDNIGHT + n * DAY + 8 * 3600) for n in range(2))
    archive.store(MIDNIGHT + 8 * 3600, 10, 3, numbers)
    sink = Days()
    follower = follow(sink, DayFollower)

    def steps():
        archive.publish()
        while asyncio.run(follower.step(sink)):
            pass
        return [*sink.stored], [date for _, date, _ in sink.changing]

    archive.store(MIDNIGHT + DAY + 8 * 3600, 10, 3, numbers)
    assert steps() == ([], [])
    archive.seal(MIDNIGHT + DAY + 8 * 3600)
    assert steps() == ([second.date], [])
    archive.store(MIDNIGHT + DAY + 9 * 3600, 10, 3, numbers)
    assert steps() == ([second.date], [second.date])
    note, archive.ledger.changes.note = archive.ledger.changes.note, lambda *_: None
    archive.seal(MIDNIGHT + 8 * 3600)
    archive.ledger.changes.note = note
    for seconds, stored in ((3599, [second.date]), (1, [second.date, first.date])):
        asyncio.run(archive.clock.advance(seconds))
        assert steps() == (stored, [second.date])
    follower.close()


def test_a_sealing_that_the_log_lacks_is_found_at_the_next_start(archive, follow, numbers):
    archive.store(MIDNIGHT + 8 * 3600, 10, 3, numbers)
    follow(Days(), DayFollower)
    note, archive.ledger.changes.note = archive.ledger.changes.note, lambda *_: None
    archive.seal(MIDNIGHT + 8 * 3600)
    archive.ledger.changes.note = note
    sink = Days()
    follow(sink, DayFollower)
    assert list(sink.stored) == [archive.zone.day(MIDNIGHT + 8 * 3600).date]


@pytest.mark.parametrize("is_made_again", [False, True])
@pytest.mark.parametrize("how", ["new epoch", "trimmed"])
def test_a_stored_day_that_is_no_longer_sealed_is_reported_although_no_change_states_it(archive, follow, numbers, how, is_made_again):
    archive.configure(SOURCE.format(days=90))
    first, *_, last = sealed_days(archive, numbers, 3)
    sink = Days()
    follow(sink, DayFollower)
    sink.stored.clear()
    archive.set_aside(MIDNIGHT + 8 * 3600)
    if is_made_again:
        archive.store(MIDNIGHT + 8 * 3600, 10, 3, numbers)
    lose_changes(archive, how)
    follow(sink, DayFollower)
    follow(sink, DayFollower)
    assert sink.stored == {}
    # Counters of the first day have cells in the second one, too, which is open again then.
    reported = [date for _, date, _ in sink.changing]
    assert (reported[0], len(reported)) == (first, 2 if is_made_again else 1)
    assert last not in reported


def test_a_stored_day_whose_file_may_have_been_moved_away_stays_stored(archive, follow, numbers):
    archive.configure(SOURCE.format(days=1))
    sealed_days(archive, numbers, 2)
    sink = Days()
    follow(sink, DayFollower)
    archive.path(MIDNIGHT + 8 * 3600).unlink()
    archive.clock.jump(DAY)
    archive.lose_ledger()
    follow(sink, DayFollower)
    assert sink.changing == []


def test_the_dates_of_days_are_those_of_the_site(archive):
    assert archive.zone.day(MIDNIGHT).date == dt.date(2018, 1, 29)
    assert STEP == 60
