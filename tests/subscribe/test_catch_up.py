"""A subscriber's picture equals the file for any loss: windows in any order, lost messages, new writers, midnights, growth."""

import asyncio
import random
import tempfile

import archive_model as model
import numpy as np
import pytest
from archive_model import COUNTER, DAY, DAYS, EPOCH, GAUGE, NAMES, ROWS, STEP, archives, held, sink_in
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from keyed import wait

from tokiod.batch import Batch
from tokiod.bus import feed_message
from tokiod.bus.feed import Feed
from tokiod.bus.header import Stored, encode_heartbeat
from tokiod.errors import TokiodError
from tokiod.subscribe import catch_up
from tokiod.subscribe.catch_up import Archive
from tokiod.subscribe.subscriber import Follower, Gap, Reader, Subscriber, Update
from tokiod.testing.clock import FakeClock
from tokiod.tts.sealed.seal import seal
from tokiod.window_data import Collected, WindowMeta

LENGTH = 6
RANDOM = settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])


class Published:
    """An archive that is written, and the messages that its feed would send; some are lost on their way to the subscriber."""

    def __init__(self, directory, **options):
        self.directory, self.sink = directory, sink_in(directory)
        archive = Archive(f"{directory}/%Y-%m-%d/{{system}}.hdf5", "UTC", clock=FakeClock(EPOCH + DAYS * DAY), **options)
        self.follower = Follower(Reader(), archive, since=EPOCH)
        self.epoch, self.last, self.stored = "first", {}, set()
        self.picture, self.events = {}, []

    def restart(self, epoch):
        self.sink.close()
        self.sink, self.epoch, self.last = sink_in(self.directory), epoch, {}

    def store(self, collected, lost=lambda: False):
        applied = self.sink.apply(collected)
        assert self.sink.commit() == []
        self.stored |= set(range(collected.meta.window.start, collected.meta.window.end, STEP))
        for batch in applied.changes:
            sequence = self.last[batch.dataset].sequence + 1 if batch.dataset in self.last else 1
            stored = self.last[batch.dataset] = Stored(self.epoch, sequence, self.watermark())
            if not lost():
                self.receive(feed_message.encode("fs", batch, stored=stored))

    def watermark(self):
        return next(time for time in range(EPOCH, EPOCH + DAYS * DAY + STEP, STEP) if time not in self.stored)

    def beat(self):
        for dataset, stored in self.last.items():
            self.receive(encode_heartbeat("fs", dataset, stored))

    def receive(self, frames):
        for event in self.follower.read([bytes(frame) for frame in frames]):
            self.events.append(event)
            if isinstance(event, Update):
                draw(self.picture, event.batch)


def draw(picture, batch):
    """Put a batch into a picture in the model's form."""
    for time, column, value in zip(batch.time.tolist(), batch.column.tolist(), batch.value.tolist(), strict=True):
        day, second = divmod(time - EPOCH, DAY)
        cells = picture.setdefault((day, batch.dataset, batch.columns[column]), {})
        if np.isnan(value):
            cells.pop(second // STEP, None)
        else:
            cells[second // STEP] = value


def cells(picture, datasets=(GAUGE, COUNTER)):
    return {
        (dataset, column, day * ROWS + row): v
        for (day, dataset, column), rows in picture.items()
        if dataset in datasets
        for row, v in rows.items()
    }


def windows_of(samples, rng):
    """All windows of three days, in any order; the later ones hold more columns."""
    windows = []
    for first in range(0, DAYS * ROWS, LENGTH):
        names = NAMES[: 1 + first * len(NAMES) // (DAYS * ROWS)]
        windows.append(model.window({name: samples[name] for name in names}, first, first + LENGTH))
    if rng.random() < 0.5:
        rng.shuffle(windows)
    return windows


@given(archives, st.randoms(use_true_random=False))
@RANDOM
def test_the_picture_equals_the_files_for_any_loss_of_windows_in_any_order(tmp_path_factory, samples, rng: random.Random):
    published = Published(tmp_path_factory.mktemp("archive"), reach=0)
    for i, collected in enumerate(windows_of(samples, rng)):
        if rng.random() < 0.15:
            published.restart(f"epoch{i}")
        published.store(collected, lost=lambda: rng.random() < 0.5)
        if rng.random() < 0.1:
            published.beat()
    published.beat()
    published.sink.close()
    # A topic that the last writer has not published is unknown.
    published_datasets = {dataset for dataset, _ in published.last.items()}
    assert cells(published.picture, published_datasets) == cells(held(published.directory), published_datasets)


@given(archives, archives, st.randoms(use_true_random=False))
@RANDOM
def test_what_replaces_old_cells_is_in_the_picture_as_far_back_as_reach(tmp_path_factory, samples, others, rng: random.Random):
    published = Published(tmp_path_factory.mktemp("archive"), reach=DAYS * DAY)
    for collected in [*windows_of(samples, rng), *rng.sample(windows_of(others, rng), 6)]:
        published.store(collected, lost=lambda: rng.random() < 0.5)
    published.beat()
    published.sink.close()
    assert cells(published.picture) == cells(held(published.directory))


@pytest.mark.parametrize("asynchronously", [False, True])
def test_a_subscriber_catches_up_over_a_socket_in_both_ways_to_iterate(tmp_path, asynchronously):
    sink = sink_in(tmp_path)
    sink.apply(rising(0, 12))
    sink.close()
    archive = Archive(f"{tmp_path}/%Y-%m-%d/{{system}}.hdf5", "UTC", clock=FakeClock(EPOCH + DAY))
    news = Batch(GAUGE, "gauge", STEP, ("OST0000",), np.array([EPOCH + 12 * STEP]), np.zeros(1, np.uint32), np.ones(1))
    with tempfile.TemporaryDirectory(prefix="feed") as directory, Feed(f"ipc://{directory}/s", "one") as feed:
        feed.publish("fs", news, EPOCH + 12 * STEP)
        with Subscriber(f"ipc://{directory}/s", archive=archive, since=EPOCH + 6 * STEP) as subscriber:
            wait(feed.poll)

            async def received():
                events = aiter(subscriber)
                found = [await anext(events) for _ in range(2)]
                await events.aclose()
                return found

            events = iter(subscriber)
            gap, caught_up = asyncio.run(received()) if asynchronously else (next(events), next(events))
    assert gap == Gap("fs", GAUGE, 1, None, EPOCH + 12 * STEP)
    assert (caught_up.caught_up, sorted(set(caught_up.batch.time.tolist()))) == (True, [EPOCH + row * STEP for row in range(5, 12)])


def rising(first, last, names=NAMES):
    return model.window({name: {row: 10 + row * row for row in range(first, last)} for name in names}, first, last)


def test_caught_up_cells_are_marked_and_come_after_their_gap_and_before_later_updates(tmp_path):
    published = Published(tmp_path, reach=0)
    published.store(rising(0, 6))
    published.store(rising(6, 12), lost=lambda: True)
    published.events.clear()
    published.store(rising(12, 18))
    kinds = [type(event).__name__ + "!" * getattr(event, "caught_up", False) for event in published.events if event.dataset == GAUGE]
    assert (kinds[0], set(kinds[1:-1]), kinds[-1]) == ("Gap", {"Update!"}, "Update")
    times = [event.batch.time for event in published.events if event.dataset == GAUGE and getattr(event, "caught_up", False)]
    assert sorted(set(np.concatenate(times).tolist())) == [EPOCH + row * STEP for row in range(5, 18)]


def test_a_cell_that_became_missing_while_messages_were_lost_is_reported_as_missing(tmp_path):
    published = Published(tmp_path)
    published.store(rising(0, 12))
    published.sink.close()
    (path,) = tmp_path.rglob("fs.hdf5")
    path.unlink()
    published.restart("second")
    published.store(rising(0, 6), lost=lambda: True)
    published.stored -= set(range(EPOCH + 6 * STEP, EPOCH + 12 * STEP, STEP))
    published.last = {dataset: Stored("second", 1, published.watermark()) for dataset in published.last}
    published.beat()
    published.sink.close()
    assert cells(published.picture) == cells(held(tmp_path))


def test_days_that_were_sealed_or_have_no_file_are_passed_over_or_read_like_others(tmp_path):
    published = Published(tmp_path, reach=0)
    for first in (0, 2 * ROWS):
        published.store(rising(first, first + ROWS), lost=lambda: True)
    published.sink.close()
    sealed, _ = sorted(tmp_path.rglob("fs.hdf5"))
    seal(sealed, sealed, updated=EPOCH)
    published.beat()
    assert {event.dataset for event in published.events if isinstance(event, Update)} == {GAUGE, COUNTER}
    assert cells(published.picture) == cells(held(tmp_path))


def test_without_since_nothing_is_read_that_was_stored_before_the_first_message(tmp_path):
    published = Published(tmp_path)
    published.follower = Follower(Reader(), Archive(f"{tmp_path}/%Y-%m-%d/{{system}}.hdf5", "UTC", 0, FakeClock(EPOCH + DAY)))
    published.store(rising(0, 6), lost=lambda: True)
    published.beat()
    assert all(isinstance(event, Gap) for event in published.events)
    published.store(rising(6, 12), lost=lambda: True)
    published.beat()
    assert {(key[1], row) for key, rows in published.picture.items() for row in rows if key[1] == GAUGE} == {
        (GAUGE, row) for row in range(5, 12)
    }


def test_slices_are_bounded_in_time_and_hold_every_cell_once(tmp_path):
    archive = Archive(f"{tmp_path}/%Y-%m-%d/{{system}}.hdf5", "UTC", clock=FakeClock(EPOCH + DAY))
    sink = sink_in(tmp_path)
    time = EPOCH + 60 * np.arange(600)
    batch = Batch(GAUGE, "gauge", 60, ("a",), time, np.zeros(600, np.uint32), np.arange(600.0))
    collected = model.window({"a": {}}, 0, 10)
    sink.apply(Collected(WindowMeta("fs-lmt", "lmt", "fs", collected.meta.window), [batch]))
    sink.close()
    batches = list(archive.read("fs", GAUGE, EPOCH + 90, 0))
    assert [int(np.ptp(one.time)) < 60 * catch_up.MIN_SLICE_ROWS for one in batches] == [True] * len(batches)
    assert {one.step for one in batches} == {60}
    assert np.concatenate([one.time for one in batches]).tolist() == time[1:].tolist()


def test_a_file_that_can_not_be_read_is_reported_by_name(tmp_path):
    path = tmp_path / "2018-01-29" / "fs.hdf5"
    path.parent.mkdir()
    path.write_bytes(b"no HDF5" * 1000)
    archive = Archive(f"{tmp_path}/%Y-%m-%d/{{system}}.hdf5", "UTC", clock=FakeClock(EPOCH))
    with pytest.raises(TokiodError, match=rf"what was missed of fs/{GAUGE} can't be read from {path}: "):
        list(archive.read("fs", GAUGE, EPOCH, 0))


@pytest.mark.parametrize("is_complete", [True, False])
def test_cells_after_midnight_are_read_by_a_subscriber_whose_clock_is_behind(tmp_path, is_complete):
    """With an older gap in the archive, the watermark lies before midnight, too."""
    published = Published(tmp_path)
    archive = Archive(f"{tmp_path}/%Y-%m-%d/{{system}}.hdf5", "UTC", clock=FakeClock(EPOCH + DAY - 180))
    published.follower = Follower(Reader(), archive)
    published.store(rising(0 if is_complete else 1, ROWS))
    published.store(rising(ROWS, ROWS + 3), lost=lambda: True)
    published.beat()
    published.sink.close()
    assert cells(published.picture) == cells(held(tmp_path))


@pytest.mark.parametrize("retry", ["heartbeat", "update"])
def test_what_could_not_be_read_is_read_again_at_the_next_message_and_the_update_comes_at_once(tmp_path, retry):
    published = Published(tmp_path)
    samples = {"OST0000": {row: row + 1 for row in range(3 * LENGTH)}}
    published.store(model.window(samples, 0, LENGTH))
    path = next(tmp_path.glob("*/*.hdf5"))
    published.store(model.window(samples, LENGTH, 2 * LENGTH), lost=lambda: True)
    other = path.parent.with_name("2018-01-28") / path.name
    other.parent.mkdir()
    other.write_bytes(b"no HDF5" * 1000)
    collected = model.window(samples, 2 * LENGTH, 3 * LENGTH)
    (gauge,) = [batch for batch in published.sink.apply(collected).changes if batch.dataset == GAUGE]
    assert published.sink.commit() == []
    last = published.last[GAUGE]
    stored = Stored(published.epoch, last.sequence + 1, last.watermark)
    with pytest.raises(TokiodError, match="what was missed of"):
        published.receive(feed_message.encode("fs", gauge, stored=stored))
    times = {int(time) for event in published.events if isinstance(event, Update) for time in event.batch.time}
    assert EPOCH + (3 * LENGTH - 1) * STEP in times
    other.unlink()
    if retry == "heartbeat":
        published.receive(encode_heartbeat("fs", GAUGE, stored))
    else:
        published.receive(feed_message.encode("fs", gauge, stored=Stored(published.epoch, last.sequence + 2, last.watermark)))
    assert published.picture[0, GAUGE, "OST0000"] == held(tmp_path)[0, GAUGE, "OST0000"]
    events = len(published.events)
    published.receive(encode_heartbeat("fs", GAUGE, stored))
    assert len(published.events) == events
