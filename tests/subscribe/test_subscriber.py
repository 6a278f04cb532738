"""A subscriber always knows what it missed: for any loss of messages, and over real sockets."""

import asyncio
import re
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokiod import subscribe
from tokiod.batch import Batch
from tokiod.bus import feed_message
from tokiod.bus.feed import Feed
from tokiod.bus.header import Stored, encode_heartbeat
from tokiod.subscribe.subscriber import Gap, Reader, Stalled, Subscriber, Update

DOCS = Path(__file__).parents[2] / "docs" / "feed.md"
READ, WRITE = "datatargets/readbytes", "datatargets/writebytes"


def cells(mark=1.0, dataset=READ):
    return Batch(dataset, "gauge", 5, ("OST0000", "OST0001"), np.array([0, 5]), np.array([0, 1], np.uint32), np.full(2, float(mark)))


def update(sequence, watermark, epoch="one", dataset=READ):
    return [bytes(frame) for frame in feed_message.encode("cscratch", cells(sequence, dataset), stored=Stored(epoch, sequence, watermark))]


def heartbeat(sequence, watermark, epoch="one", dataset=READ):
    return [bytes(frame) for frame in encode_heartbeat("cscratch", dataset, Stored(epoch, sequence, watermark))]


def plain(event):
    """An event in a form that compares."""
    if isinstance(event, Update):
        return event.system, event.dataset, event.batch.value.tolist(), event.watermark
    return event


def events_of(*messages):
    reader = Reader()
    return [plain(event) for message in messages for event in reader.read(message)]


def stored(sequence, watermark, dataset=READ):
    return "cscratch", dataset, [float(sequence)] * 2, watermark


def gap(missed, since, watermark, dataset=READ):
    return Gap("cscratch", dataset, missed, since, watermark)


@pytest.mark.parametrize(
    ("messages", "events"),
    [
        pytest.param([update(1, 60), update(2, 120)], [stored(1, 60), stored(2, 120)], id="nothing missed"),
        pytest.param([update(1, 60), update(4, 240)], [stored(1, 60), gap(2, 60, 240), stored(4, 240)], id="two missed"),
        pytest.param([update(1, 60), heartbeat(1, 60), heartbeat(1, 60)], [stored(1, 60)], id="heartbeats with no news"),
        pytest.param([update(1, 60), heartbeat(3, 180)], [stored(1, 60), gap(2, 60, 180)], id="a heartbeat reveals a lost tail"),
        pytest.param(
            [update(1, 60), heartbeat(3, 180), update(4, 240)], [stored(1, 60), gap(2, 60, 180), stored(4, 240)], id="and only once"
        ),
        pytest.param([heartbeat(3, 180), update(4, 240)], [gap(3, None, 180), stored(4, 240)], id="a late subscriber"),
        pytest.param([update(4, 240)], [gap(3, None, 240), stored(4, 240)], id="a late subscriber, by an update"),
        pytest.param([update(2, 120), update(2, 120), update(1, 60)], [gap(1, None, 120), stored(2, 120)], id="repetitions"),
        pytest.param(
            [update(2, 60), update(1, 90, "two")], [gap(1, None, 60), stored(2, 60), gap(None, 60, 90), stored(1, 90)], id="another epoch"
        ),
        pytest.param(
            [update(1, 60), heartbeat(5, 300, "two"), update(6, 360, "two")],
            [stored(1, 60), gap(None, 60, 300), stored(6, 360)],
            id="another epoch's heartbeat",
        ),
        pytest.param(
            [update(1, 60), update(1, 60, dataset=WRITE), update(2, 120)],
            [stored(1, 60), stored(1, 60, WRITE), stored(2, 120)],
            id="datasets apart",
        ),
        pytest.param(
            [[b"junk"], [], update(1, 60), [*update(2, 120)[:5], b""], update(3, 180)],
            [stored(1, 60), gap(1, 60, 180), stored(3, 180)],
            id="junk between",
        ),
        pytest.param([[bytes(f) for f in feed_message.encode("cscratch", cells())]], [], id="no message of the feed"),
    ],
)
def test_messages_become_events(messages, events):
    assert events_of(*messages) == events


def test_malformed_messages_are_counted():
    reader = Reader()
    assert [reader.read(junk) for junk in ([], [b"junk"], update(1, 60)[:3])] == [[], [], []]
    assert reader.malformed == 3


@given(st.lists(st.sampled_from(["update", "heartbeat"]), max_size=30), st.data())
def test_updates_and_gaps_add_up_to_all_that_was_published_up_to_the_last_message_received(kinds, data):
    sent, sequence = [], 0
    for kind in kinds:
        sequence += kind == "update"
        if sequence:
            sent.append((sequence, update(sequence, 60 * sequence) if kind == "update" else heartbeat(sequence, 60 * sequence)))
    received = [message for message in sent if data.draw(st.booleans())]
    reader = Reader()
    events = [event for _, frames in received for event in reader.read(frames)]
    values = [event.batch.value[0] for event in events if isinstance(event, Update)]
    missed = sum(event.missed for event in events if isinstance(event, Gap))
    assert values == sorted(set(values))
    assert len(values) + missed == (received[-1][0] if received else 0)
    assert all(event.missed > 0 and event.since != event.watermark for event in events if isinstance(event, Gap))


@pytest.fixture
def endpoint():
    with tempfile.TemporaryDirectory(prefix="feed") as directory:
        yield f"ipc://{Path(directory) / 's'}"


def until_known(feed):
    deadline = time.monotonic() + 10
    while not feed.poll():
        assert time.monotonic() < deadline, "no subscription"
        time.sleep(0.001)


@contextmanager
def subscribed(endpoint, feed, **options):
    with Subscriber(endpoint, **options) as subscriber:
        until_known(feed)
        yield subscriber


def test_a_subscriber_iterates_over_what_is_published(endpoint):
    with Feed(endpoint, "one") as feed, subscribed(endpoint, feed, topics=["cscratch/"]) as subscriber:
        events = iter(subscriber)
        for sequence in (1, 2, 3):
            feed.publish("elsewhere", cells(9), 60)
            feed.publish("cscratch", cells(sequence), 60 * sequence)
        assert [plain(next(events)) for _ in range(3)] == [stored(1, 60), stored(2, 120), stored(3, 180)]


def test_a_subscriber_iterates_asynchronously_too_and_leaves_the_loop_clean(endpoint):
    async def main():
        with Feed(endpoint, "one") as feed, subscribed(endpoint, feed, silence=0.2) as subscriber:
            events = aiter(subscriber)
            for sequence in (1, 2):
                feed.publish("cscratch", cells(sequence), 60 * sequence)
            assert [plain(await anext(events)) for _ in range(2)] == [stored(1, 60), stored(2, 120)]
            waiting = asyncio.create_task(anext(events))
            await asyncio.sleep(0.01)
            feed.publish("cscratch", cells(3), 180)
            assert plain(await waiting) == stored(3, 180)
            assert await anext(events) == Stalled(0.2)
            await events.aclose()

    asyncio.run(main())


def test_a_late_subscriber_learns_how_far_the_file_is(endpoint):
    with Feed(endpoint, "one") as feed:
        for sequence in (1, 2, 3):
            feed.publish("cscratch", cells(sequence), 60 * sequence)
        with subscribed(endpoint, feed) as subscriber:
            assert next(iter(subscriber)) == gap(3, None, 180)


def test_a_slow_subscriber_learns_what_it_missed_and_goes_on(endpoint):
    with Feed(endpoint, "one", high_water=5) as feed, subscribed(endpoint, feed, high_water=5, silence=0.2) as subscriber:
        events = iter(subscriber)
        wide = Batch(READ, "gauge", 5, ("OST0000",), np.arange(50_000), np.zeros(50_000, np.uint32), np.zeros(50_000))
        for sequence in range(1, 101):
            feed.publish("cscratch", wide, 60 * sequence)
        received, missed = 0, 0
        while received + missed < 100:
            event = next(events)
            received += isinstance(event, Update)
            missed += event.missed if isinstance(event, Gap) else 0
            feed.beat()
        assert (received + missed, missed > 0) == (100, True)
        while next(events) != Stalled(0.2):
            pass  # heartbeats fill the queue, too
        feed.publish("cscratch", cells(101), 6060)
        assert next(plain(event) for event in events if event != Stalled(0.2)) == stored(101, 6060)


def test_a_subscriber_outlives_the_writer_and_reports_a_new_one(endpoint):
    with Feed(endpoint, "one") as feed, subscribed(endpoint, feed, silence=0.1) as subscriber:
        events = iter(subscriber)
        feed.publish("cscratch", cells(1), 60)
        assert plain(next(events)) == stored(1, 60)
        feed.close()
        assert next(events) == Stalled(0.1)
        with Feed(endpoint, "two") as another:
            until_known(another)
            another.publish("cscratch", cells(1), 180)
            received = (plain(event) for event in events if event != Stalled(0.1))
            assert [next(received), next(received)] == [gap(None, 60, 180), stored(1, 180)]


def lines_of_the_documentation():
    (code,) = re.findall(r"```python plain\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert len(code.strip().splitlines()) <= 20
    return code


@contextmanager
def running(*arguments):
    """Run the program of the documentation; yield its standard output."""
    with subprocess.Popen([sys.executable, "-u", "-c", *arguments], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout
        finally:
            process.kill()


VALUES = "[(0, 'OST0000', {0}), (5, 'OST0001', {0})]\n"


@pytest.mark.system
def test_the_program_of_the_documentation_prints_every_system_and_has_missed_nothing_when_it_is_new(endpoint):
    with Feed(endpoint, "one") as feed:
        for sequence in (1, 2, 3):
            feed.publish("cscratch", cells(sequence), 60 * sequence)
        with running(lines_of_the_documentation(), endpoint) as output:
            until_known(feed)
            feed.publish("edison", cells(7), 60)
            feed.publish("cscratch", cells(4), 240)
            lines = [output.readline() for _ in range(5)]
            feed.close()
            with Feed(endpoint, "two") as another:
                until_known(another)
                another.publish("cscratch", cells(5), 300)
                lines += [output.readline() for _ in range(2)]
    assert lines == [
        f"cscratch/{READ}  complete until 180\n",
        f"edison/{READ}  complete until 60\n",
        VALUES.format(7.0),
        f"cscratch/{READ}  complete until 240\n",
        VALUES.format(4.0),
        f"cscratch/{READ} new writer complete until 300\n",
        VALUES.format(5.0),
    ]


@pytest.mark.system
def test_the_program_of_the_documentation_prints_what_it_missed_of_the_topics_it_is_given(endpoint):
    with Feed(endpoint, "one") as feed:
        feed.publish("cscratch", cells(1), 60)
        with running(lines_of_the_documentation(), endpoint, "cscratch/") as output:
            until_known(feed)
            feed.publish("edison", cells(7), 60)
            for _ in range(2):
                feed.skip("cscratch", READ)
            feed.publish("cscratch", cells(4), 240)
            lines = [output.readline() for _ in range(3)]
    assert lines == [f"cscratch/{READ}  complete until 60\n", f"cscratch/{READ} missed 2 complete until 240\n", VALUES.format(4.0)]


def test_the_package_has_every_name_that_the_documentation_imports():
    imports = re.findall(r"^from tokiod\.subscribe import (.*)$", DOCS.read_text(), re.MULTILINE)
    assert imports
    assert all(hasattr(subscribe, name) for line in imports for name in line.split(", "))
