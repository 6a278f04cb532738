"""When an agent dials, greets and answers, over a real socket: nodes that lose their hub together do not dial together."""

import json
import socket
import time
from random import Random

import pytest
import zmq
from keyed import Keyring
from zmq.auth.thread import ThreadAuthenticator

from tokiod.agent import wire
from tokiod.agent.keys import AgentKeys
from tokiod.agent.link import (
    CONNECT_SECONDS,
    HELLO_SECONDS,
    HELLO_SPREAD_SECONDS,
    MAX_ASKED_ROWS,
    MAX_DELAY_SECONDS,
    MIN_DELAY_SECONDS,
    NOT_CONNECTED,
    SPREAD_SECONDS,
    TOO_MANY_JOBS,
    Link,
)
from tokiod.agent.metric import counter, gauge
from tokiod.hub.messages import Parts

NODES = 1000


@pytest.fixture
def links():
    with zmq.Context() as context:
        keys = AgentKeys(b"", b"", b"")
        made = [
            Link(context, "tcp://127.0.0.1:1", keys, f"nid{seed}", "s", "1", 60, (), (), None, lambda: 0.0, lambda: 0.0, Random(seed))
            for seed in range(NODES)
        ]
        yield made
        for one in made:
            one.close()


def most_in_a_second(links):
    seconds = [int(one.next_due()) for one in links]
    return max(map(seconds.count, set(seconds)))


def test_the_dials_after_the_end_of_the_hub_are_spread_over_ten_seconds(links):
    for one in links:
        one._is_connected = True
        one._broken(0.0, "not connected")
    assert all(0 <= one.next_due() <= SPREAD_SECONDS for one in links)
    assert most_in_a_second(links) < 1.5 * NODES / SPREAD_SECONDS


def test_dials_that_fail_become_rarer_to_one_in_a_minute(links):
    for one in links:
        for _ in range(8):
            one._broken(0.0, "not connected")
    assert all(MAX_DELAY_SECONDS / 2 <= one.next_due() <= MAX_DELAY_SECONDS for one in links)
    assert most_in_a_second(links) < 2 * NODES / (MAX_DELAY_SECONDS / 2)


def test_a_dial_that_fails_is_followed_by_one_after_half_of_a_delay_or_all_of_it(links):
    for delay in (2, 4, 8, 16, 32, 60, 60):
        for one in links:
            one._broken(100.0, "not connected")
        due = [one.next_due() - 100 for one in links]
        assert delay / 2 <= min(due) < 0.55 * delay
        assert 0.95 * delay < max(due) <= delay
    for one in links:
        one._is_connected = True
        one._broken(200.0, "not connected")
        one._broken(300.0, "not connected")
    assert all(301 <= one.next_due() <= 302 for one in links)


def test_a_hub_is_greeted_after_a_minute_of_silence_and_waited_for_30_seconds():
    assert (HELLO_SECONDS, HELLO_SPREAD_SECONDS, CONNECT_SECONDS, MAX_ASKED_ROWS, wire.MAX_JOBS) == (60, 30, 30, 24 * 60, 2000)


def test_first_dials_and_greetings_of_a_silent_hub_are_spread(links):
    first = [one.next_due() for one in links]
    assert 0 <= min(first) < 0.1
    assert MIN_DELAY_SECONDS - 0.1 < max(first) <= MIN_DELAY_SECONDS
    for one in links:
        one._rows = Known()
        one._greet(100.0)
    due = [one._hello_at - 100 for one in links]
    assert HELLO_SECONDS <= min(due) < HELLO_SECONDS + 1
    assert HELLO_SECONDS + HELLO_SPREAD_SECONDS - 1 < max(due) <= HELLO_SECONDS + HELLO_SPREAD_SECONDS


class Known:
    """Rows whose values are known: one job, and a drop, in each."""

    def __init__(self, *starts, jobs=1):
        self.has, self.count = [float(start) for start in starts], jobs

    def starts(self):
        return self.has

    def values(self, start):
        return {"load": start / 2}, {"cpu: malformed": 2}

    def jobs(self, start):
        return [(f"slurm:{number}", None, start, False, [1.5]) for number in range(self.count)]


class Scene:
    """A link, whose clock the test moves, and the hub's socket."""

    def __init__(self, directory, *starts, jobs=1, host="127.0.0.1"):
        ring, self.context = Keyring(directory / "keys"), zmq.Context()
        own = ring.allowed("node")
        self.hub = self.context.socket(zmq.ROUTER)
        self.hub.curve_server, self.hub.curve_secretkey, self.hub.linger = True, ring.server.secret, 0
        self.hub.ipv6 = "[" in host
        port = self.hub.bind_to_random_port(f"tcp://{host}")
        self.rows, self.now, self.ahead, self.route = Known(*starts, jobs=jobs), 1000.0, 0.0, b""
        metrics = [counter("bytes", "B", ""), gauge("load", "1", "")], [counter("job_cpu", "s", "")]
        self.link = Link(
            self.context, f"tcp://{host}:{port}", AgentKeys(ring.server.public, own.own.public, own.own.secret), "nid1", "s1", "9",
            60, *metrics, self.rows, lambda: self.now + self.ahead, lambda: self.now, Random(1),
            lambda start: {"cpu: malformed": f"of {start:g}"},
        )  # fmt: skip

    def received(self, seconds=0.0, count=1):
        """Let time pass; return the next messages to the hub, as the link turns."""
        found, parts, self.now = [], Parts(), self.now + seconds
        give_up = time.monotonic() + 10
        while len(found) < count and time.monotonic() < give_up:
            self.link.turn()
            if self.hub.poll(5):
                self.route, frame = self.hub.recv_multipart()
                if (message := parts.joined(frame)) is None:
                    continue
                version, fields = json.loads(message)
                assert version == wire.VERSION
                found.append(fields)
        return found

    def hears(self, seconds=0.0):
        """Let time pass; return whether the hub is sent anything."""
        self.now += seconds
        for _ in range(20):
            self.link.turn()
            if self.hub.poll(5):
                return True
        return False

    def says(self, message):
        """Let the hub send a message, and the link take it."""
        self.hub.send_multipart([self.route, message if isinstance(message, bytes) else json.dumps([wire.VERSION, message]).encode()])
        for _ in range(20):
            self.link.turn()
            time.sleep(0.005)

    def close(self):
        self.link.close()
        self.context.destroy(linger=0)


@pytest.fixture
def scene(tmp_path):
    made = []

    def make(*starts, **options):
        made.append(Scene(tmp_path, *starts, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize(("starts", "since"), [((), 1234), ((720, 780), 720)])
def test_an_agent_greets_with_its_oldest_row_or_its_clock(scene, starts, since):
    made = scene(*starts)
    assert made.link.state == "connecting"
    made.ahead = 1234.5 - 1000 - MIN_DELAY_SECONDS
    (hello,) = made.received(MIN_DELAY_SECONDS)
    assert hello == {
        "type": "hello", "node": "nid1", "session": "s1", "tokiod": "9", "step": 60, "since": since,
        "metrics": [["bytes", "B", "counter"], ["load", "1", "gauge"]], "job_metrics": [["job_cpu", "s", "counter"]],
    }  # fmt: skip
    assert (made.link.state, made.link.dials, made.link.answered) == ("connected", 1, 0)


def ask(start, end, within=0.0, at=1000.0):
    return {"type": "ask", "start": start, "end": end, "time": at, "within": within}


def test_each_row_that_is_asked_is_answered_and_one_that_is_not_over_or_not_in_memory_has_no_values(scene):
    made = scene(840, 900, 960)
    made.received(MIN_DELAY_SECONDS)
    made.ahead = 1020 - made.now - 0.25
    # The one of 960 to 1020 is not over.
    made.says(ask(781, 1020, at=1019.0))
    rows = made.received(0.0, 3)
    assert [(row["start"], row["time"], row["ahead"], row["values"], row["dropped"], row["jobs"], row.get("examples")) for row in rows] == [
        (840, 1019.75, 0.75, [None, 420.0], {"cpu: malformed": 2}, [["slurm:0", None, 840.0, False, [1.5]]], {"cpu: malformed": "of 840"}),
        (900, 1019.75, 0.75, [None, 450.0], {"cpu: malformed": 2}, [["slurm:0", None, 900.0, False, [1.5]]], {"cpu: malformed": "of 900"}),
        (960, 1019.75, 0.75, None, {}, [], None),
    ]
    made.ahead += 0.25
    made.says(ask(720, 1020))
    rows = {row["start"]: row["values"] for row in made.received(0.0, 5)}
    assert rows == {720: None, 780: None, 840: [None, 420.0], 900: [None, 450.0], 960: [None, 480.0]}
    assert made.link.answered == 8


def test_a_row_has_as_many_jobs_as_the_wire_allows_and_counts_the_others(scene):
    made = scene(840, jobs=wire.MAX_JOBS + 3)
    made.received(MIN_DELAY_SECONDS)
    made.says(ask(840, 900))
    (row,) = made.received()
    assert (len(row["jobs"]), row["dropped"]) == (wire.MAX_JOBS, {"cpu: malformed": 2, TOO_MANY_JOBS: 3})


def test_answers_are_spread_over_the_time_that_the_hub_gives(scene):
    made = scene(*range(0, 900, 60))
    made.received(MIN_DELAY_SECONDS)
    made.says(ask(0, 900, within=40.0))
    due = sorted(when - made.now for when, _, _ in made.link._due)
    assert (len(due), 0 <= due[0] < 8, 32 < due[-1] <= 40) == (15, True, True)
    assert made.link.next_due() == made.now + due[0]
    assert made.link.answered == 0
    assert {row["start"] for row in made.received(due[-1], 15)} == set(range(0, 900, 60))
    made.says(ask(0, 10**9))
    assert (made.link._due, made.link.answered) == ([], 15 + MAX_ASKED_ROWS)


def test_a_silent_hub_is_greeted_again_after_a_minute_and_one_that_asks_is_not(scene):
    made = scene(840)
    made.received(MIN_DELAY_SECONDS)
    assert not made.hears(HELLO_SECONDS - 1)
    made.says(ask(840, 900))
    assert made.received()[0]["type"] == "row"
    assert not made.hears(HELLO_SECONDS - 1)
    assert made.received(HELLO_SPREAD_SECONDS + 2)[0]["type"] == "hello"
    made.link.greet_again()
    assert made.link.next_due() == made.now
    assert made.received()[0]["type"] == "hello"


def test_what_the_hub_refuses_and_what_cannot_be_understood_is_the_state(scene):
    made = scene(840)
    made.received(MIN_DELAY_SECONDS)
    made.says({"type": "refuse", "reason": "class"})
    assert (made.link.state, made.link.malformed) == ("refused: class", 0)
    made.says(b"[")
    assert (made.link.state.startswith("Expecting value"), made.link.malformed) == (True, 1)
    made.says(ask(840, 900))
    assert (made.link.state, made.received()[0]["start"]) == ("connected", 840)


def test_an_agent_dials_again_when_its_hub_is_gone_and_keeps_no_answer_of_before(scene):
    made = scene(840)
    made.received(MIN_DELAY_SECONDS)
    made.says(ask(840, 900, within=50.0))
    endpoint = made.hub.getsockopt(zmq.LAST_ENDPOINT)
    made.hub.unbind(endpoint)
    made.hub.close()
    until(made, lambda: made.link.state == NOT_CONNECTED)
    assert (made.link._due, made.link.filenos(), made.now <= made.link.next_due() <= made.now + SPREAD_SECONDS) == ([], (), True)
    assert made.link.dials == 1
    made.now = made.link.next_due()
    made.link.turn(is_ready=False)
    assert (made.link.dials, len(made.link.filenos())) == (2, 2)


def test_an_agent_dials_an_address_of_ipv6(scene):
    try:
        made = scene(host="[::1]")
    except zmq.ZMQError as error:
        pytest.skip(f"no IPv6 here: {error}")
    assert made.received(MIN_DELAY_SECONDS)[0]["type"] == "hello"


def test_a_connection_ends_with_the_network_or_a_message_that_is_too_long(scene):
    """A hub without power sends no end: the kernel asks it after 20 s of silence, four times, each 10 s."""
    made = scene(840)
    made.received(MIN_DELAY_SECONDS)
    own = made.link._socket
    assert {name: own.getsockopt(getattr(zmq, name)) for name in OPTIONS} == OPTIONS
    # Encryption adds some bytes.
    made.hub.send_multipart([made.route, b" " * (wire.MAX_FRAME_BYTES - 100)])
    until(made, lambda: made.link.malformed)
    assert made.link.malformed == 1
    made.hub.send_multipart([made.route, b" " * (wire.MAX_FRAME_BYTES + 1)])
    until(made, lambda: made.link.state == NOT_CONNECTED)


OPTIONS = {
    "TCP_KEEPALIVE": 1, "TCP_KEEPALIVE_IDLE": 20, "TCP_KEEPALIVE_INTVL": 10, "TCP_KEEPALIVE_CNT": 4, "LINGER": 0, "IMMEDIATE": 1,
    "RECONNECT_IVL": -1, "SNDHWM": 2 * MAX_ASKED_ROWS,
}  # fmt: skip


@pytest.fixture
def unanswered(tmp_path):
    """A link that dialled a port which accepts the connection, and sends nothing."""
    made = Scene(tmp_path)
    with socket.socket() as port:
        port.bind(("127.0.0.1", 0))
        port.listen()
        made.link._endpoint = f"tcp://127.0.0.1:{port.getsockname()[1]}"
        assert not made.hears(MIN_DELAY_SECONDS)
        yield made
    made.close()


def test_a_turn_without_events_looks_for_them_after_ten_seconds_alone(unanswered):
    assert not unanswered.hears(CONNECT_SECONDS - 5)
    states = []
    for seconds in (9.9, 0.1):
        unanswered.now += seconds
        unanswered.link.turn(is_ready=False)
        states.append(unanswered.link.state)
    assert states == ["connecting", f"{NOT_CONNECTED} (no answer)"]


def test_a_key_that_the_hub_does_not_know_is_the_state(scene, tmp_path):
    made = scene()
    (tmp_path / "empty").mkdir()
    allowed = ThreadAuthenticator(made.context)
    allowed.start()
    try:
        allowed.configure_curve(domain="*", location=str(tmp_path / "empty"))
        made.now += MIN_DELAY_SECONDS
        until(made, lambda: made.link.state.startswith("refused"))
    finally:
        allowed.stop()
    assert made.link.state == "refused: the hub does not know this key, or has another one"
    assert made.now + MIN_DELAY_SECONDS / 2 <= made.link.next_due() <= made.now + MIN_DELAY_SECONDS


def test_a_dial_without_an_answer_ends_after_30_seconds(unanswered):
    assert not unanswered.hears(CONNECT_SECONDS)
    assert unanswered.link.state == "connecting"
    unanswered.hears(0.5)
    assert unanswered.link.state == f"{NOT_CONNECTED} (no answer)"


def until(made, condition):
    give_up = time.monotonic() + 10
    while not condition() and time.monotonic() < give_up:
        made.link.turn()
        time.sleep(0.01)
    assert condition()
