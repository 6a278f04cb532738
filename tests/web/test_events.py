"""What viewers receive: from a real feed over real sockets, and for any order of changes."""

import asyncio
import re
import signal
import time
from contextlib import ExitStack, closing, suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keyed import Keyring
from prometheus_client.parser import text_string_to_metric_families
from waiting import wait_for
from web_site import COUNTER, GAUGE, START, STEP, Client, WebSite, events_of

from tokiod.batch import Batch
from tokiod.bus.feed import Feed
from tokiod.web.client_limits import MAX_STREAMS, MAX_VIEWERS
from tokiod.web.events import HEARTBEAT, MAX_REMEMBERED, MAX_WAITING, Change, Stream
from tokiod.web.server import LIMITS


def waiting(viewer):
    """What waits for a viewer, as events_of()."""
    return events_of(asyncio.run(viewer.next(0.0)))


def changes_of(events):
    return {(data["system"], data["dataset"]): data["span"] and tuple(data["span"]) for name, data in events if name == "changed"}


def change(first, last, dataset=GAUGE):
    return Change("fs", dataset, (first, last))


# ---- what waits


def test_changes_of_a_dataset_that_wait_become_one_that_covers_them():
    stream = Stream()
    viewer = stream.join("", "", "")
    for one in (change(10, 20), change(40, 50), change(5, 6), change(1, 2, COUNTER)):
        stream.publish(one)
    events, _ = waiting(viewer)
    assert events[0] == ("hello", {"feed": False})
    assert changes_of(events) == {("fs", GAUGE): (5, 50), ("fs", COUNTER): (1, 2)}
    assert asyncio.run(viewer.next(0.0)) == HEARTBEAT


def test_after_messages_that_were_missed_any_row_may_have_changed():
    stream = Stream()
    viewer = stream.join("", "", "")
    stream.publish(change(10, 20))
    stream.publish(Change("fs", GAUGE, None))
    stream.publish(change(30, 40))
    assert changes_of(waiting(viewer)[0]) == {("fs", GAUGE): None}


def test_a_viewer_of_one_dataset_receives_no_other():
    stream = Stream()
    viewer = stream.join("fs", GAUGE, "")
    stream.publish(change(1, 2, COUNTER))
    stream.publish(Change("other", GAUGE, (1, 2)))
    assert changes_of(waiting(viewer)[0]) == {}


def test_more_datasets_than_may_wait_become_a_reset():
    stream = Stream()
    viewer = stream.join("", "", "")
    for number in range(MAX_WAITING + 1):
        stream.publish(change(1, 2, f"datatargets/d{number}"))
    events, _ = waiting(viewer)
    assert ("reset", {}) in events
    assert changes_of(events) == {}


@given(
    changes=st.lists(st.tuples(st.sampled_from([GAUGE, COUNTER]), st.integers(0, 99), st.integers(0, 99)), max_size=30),
    reads=st.sets(st.integers(0, 30)),
    breaks=st.sets(st.integers(0, 30)),
)
def test_whatever_is_read_and_wherever_the_connection_breaks_every_changed_row_is_named(changes, reads, breaks):
    stream = Stream()
    viewer, last, told = stream.join("", "", ""), "", {}
    for step, (dataset, first, length) in enumerate(changes):
        if step in reads:
            events, identity = waiting(viewer)
            last = identity or last
            for (_, name), span in changes_of(events).items():
                told.setdefault(name, set()).update(range(span[0], span[1] + 1))
        if step in breaks and last:
            stream.leave(viewer)
            viewer = stream.join("", "", last)
        stream.publish(change(first, first + length, dataset))
    for (_, name), span in changes_of(waiting(viewer)[0]).items():
        told.setdefault(name, set()).update(range(span[0], span[1] + 1))
    for dataset, first, length in changes:
        assert told[dataset] >= set(range(first, first + length + 1))


@pytest.mark.parametrize(
    "last_id", ["x", "0:5", "another:1", "{epoch}:", "{epoch}:-1", "{epoch}:99999999999999999999999", "{epoch}:٣", "{epoch}:0"]
)
def test_an_id_that_is_not_known_any_more_is_answered_with_a_reset(last_id):
    stream = Stream()
    epoch = waiting(stream.join("", "", ""))[1].partition(":")[0]
    for number in range(MAX_REMEMBERED + 1):
        stream.publish(change(number, number))
    assert ("reset", {}) in waiting(stream.join("", "", last_id.format(epoch=epoch)))[0]


# ---- over sockets


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    made = WebSite(tmp_path_factory.mktemp("events"))
    with Feed(made.config.feed.endpoint, "one") as made.feed, made.served():
        wait_for(lambda: bool(made.feed.poll() or made.feed.subscriptions), 10, "the feed has no subscriber")
        yield made


@pytest.fixture
def client(site):
    """Make clients."""
    made = []

    def connect(*arguments, **options):
        made.append(Client(site, *arguments, **options))
        return made[-1]

    yield connect
    for one in made:
        one.close()


def publish(site, row, dataset=GAUGE):
    """Publish two rows."""
    times = np.array([START + row * STEP, START + (row + 1) * STEP])
    site.feed.publish("fs", Batch(dataset, "gauge", STEP, ("a",), times, np.zeros(2, np.uint32), np.ones(2)), START)


def received(viewer, dataset=GAUGE):
    """Read the next change of a dataset whose rows are known; return it and the id that it leaves."""
    return viewer.until(lambda name, data: name == "changed" and data["dataset"] == dataset and data["span"])


def test_what_the_feed_publishes_reaches_a_viewer_with_its_rows(site, client):
    viewer = client()
    assert (viewer.status, viewer.headers["Content-Type"], viewer.headers["Cache-Control"]) == (200, "text/event-stream", "no-store")
    assert "unsafe" not in viewer.headers["Content-Security-Policy"]
    viewer.until(lambda name, _: name == "hello")
    publish(site, 7)
    data, last = received(viewer)
    assert data == {"system": "fs", "dataset": GAUGE, "span": [START + 7 * STEP, START + 8 * STEP]}
    epoch, _, number = last.partition(":")
    assert (len(epoch), number.isdigit()) == (16, True)


def test_a_viewer_that_comes_back_gets_what_it_missed_and_one_of_another_run_a_reset(site, client):
    first, other = client(), client()
    publish(site, 1)
    _, last = received(first)
    first.close()
    publish(site, 3, COUNTER)
    received(other, COUNTER)
    again = client(last_id=last)
    data, _ = again.until(lambda name, data: name == "changed" and data["dataset"] == COUNTER)
    assert data["span"] is None or data["span"] == [START + 3 * STEP, START + 4 * STEP]
    client(last_id="0123456789abcdef:5").until(lambda name, _: name == "reset")


def test_viewers_that_never_read_delay_no_other(site, client):
    idle, reading = [client() for _ in range(10)], client()
    for row in range(500):
        publish(site, row)
    rows = set()
    while START + 500 * STEP not in rows:
        rows |= set(received(reading)[0]["span"])
    assert len(idle) == 10
    # Those of earlier tests are noticed when the process gets to it.
    wait_for(lambda: "tokiod_web_viewers 11.0\n" in site.get("/metrics").body.decode(), 10, "there are not 11 viewers")


# ---- how many of them


@pytest.fixture
def own_site(tmp_path):
    """A site whose viewers are those of one test."""
    made = WebSite(tmp_path)
    with Feed(made.config.feed.endpoint, "one") as made.feed, made.served():
        wait_for(lambda: bool(made.feed.poll() or made.feed.subscriptions), 10, "the feed has no subscriber")
        yield made


@pytest.fixture
def connect(own_site):
    """Make clients of it."""
    with ExitStack() as opened:

        def made(address):
            return opened.enter_context(closing(Client(own_site, address=address)))

        yield made


def limited(site):
    """How many requests each limit has refused."""
    families = text_string_to_metric_families(site.get("/metrics").body.decode())
    samples = [one for family in families for one in family.samples if one.name == "tokiod_web_limited_total"]
    return {one.labels["error"]: one.value for one in samples}


def test_one_client_takes_its_share_of_the_streams_and_leaves_as_many_to_all_others(own_site, connect):
    greedy = [connect("10.0.0.1") for _ in range(MAX_STREAMS)]
    assert {one.status for one in greedy} == {200}
    refused = [connect("10.0.0.1") for _ in range(3)]
    assert [(one.status, one.headers["Retry-After"]) for one in refused] == [(429, "15")] * 3
    assert own_site.error("/api/v1/events", X_Forwarded_For="10.0.0.1") == (429, "too_many_streams")
    others = [connect(f"10.0.1.{number}") for number in range(MAX_VIEWERS - MAX_STREAMS)]
    assert {one.status for one in others} == {200}
    publish(own_site, 7)
    assert {tuple(received(one)[0]["span"]) for one in (others[0], others[-1])} == {(START + 7 * STEP, START + 8 * STEP)}
    assert own_site.error("/api/v1/events", X_Forwarded_For="10.0.2.1") == (503, "too_many_viewers")
    assert limited(own_site) == {"too_many_requests": 0, "too_many_streams": 4, "busy": 0, "too_many_viewers": 1}
    greedy[0].close()
    wait_for(lambda: connect("10.0.0.1").status == 200, 30, "a stream that has ended counts still")


def test_connections_that_ask_for_nothing_end_no_stream(own_site, connect):
    viewer = connect("10.0.0.1")
    with ExitStack() as idle:
        for _ in range(LIMITS.connections + 200):
            idle.enter_context(accepted(own_site))
        publish(own_site, 7)
        assert received(viewer)[0]["span"] == [START + 7 * STEP, START + 8 * STEP]
        assert ended(own_site) >= 200


def accepted(site):
    """A connection, once the process has accepted as many as it takes."""
    while True:
        with suppress(BlockingIOError):
            return site.connected()
        time.sleep(0.01)


def ended(site):
    """How many connections were ended because they were too slow or too many."""
    (count,) = re.findall(r"^tokiod_web_ended_total (\S+)$", site.get("/metrics").body.decode(), re.MULTILINE)
    return float(count)


def test_a_misspelt_parameter_of_the_events_is_refused(site):
    assert site.error("/api/v1/events?sytem=fs") == (400, "unknown_parameter")


def test_a_feed_with_keys_is_followed_with_a_key_of_its_own_which_a_reload_reads(tmp_path):
    site, keyring = WebSite(tmp_path), Keyring(tmp_path / "keys")
    keyring.allowed("web")
    with Feed(site.config.feed.endpoint, "one", keys=keyring.server_keys()) as site.feed, site.served() as process:
        viewer = Client(site)
        try:
            assert viewer.until(lambda name, _: name == "hello")[0] == {"feed": False}
            keys = f'secret_key_file = "{tmp_path}/keys/web.key_secret"\nfeed_key_file = "{tmp_path}/keys/server.key"\n'
            site.path.write_text(site.path.read_text().replace("[web]\n", f"[web]\n{keys}"))
            process.send_signal(signal.SIGHUP)
            wait_for(lambda: bool(site.feed.poll() or site.feed.subscriptions), 10, "the feed has no subscriber")
            publish(site, 7)
            assert received(viewer)[0]["span"] == [START + 7 * STEP, START + 8 * STEP]
            (tmp_path / "keys" / "web.key_secret").chmod(0o644)
            process.send_signal(signal.SIGHUP)
            wait_for(lambda: 'reloads_total{result="refused"} 1.0' in site.get("/metrics").body.decode(), 10, "it reloads any key")
            publish(site, 9)
            assert received(viewer)[0]["span"] == [START + 9 * STEP, START + 10 * STEP]
        finally:
            viewer.close()
