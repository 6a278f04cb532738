"""Which session of a node counts, which rows are refused, and what a window of all nodes is: the hub without its sockets."""

import json
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
from keyed import Keyring
from node_agents import JOB_METRICS, METRICS, job_rows, value
from structlog.testing import capture_logs

from collectors.nodes.hub_protocol import List
from tokiod import job_columns
from tokiod.agent import wire
from tokiod.agent.metric import Metric
from tokiod.config.sections import HubConfig
from tokiod.crossing.codec import decode
from tokiod.crossing.dialogue import Cancel, Collect, Count, Counted, Data, Failed
from tokiod.errors import ConfigError
from tokiod.hub import messages
from tokiod.hub.classes import NodeClasses
from tokiod.hub.hub import KEPT_SECONDS, MISSING, NO_ROW, QUERY_SECONDS, Hub
from tokiod.hub.nodes import MAX_LISTS, MAX_REASONS
from tokiod.metrics import catalogue
from tokiod.testing.clock import FakeClock
from tokiod.times import LATEST
from tokiod.units import Duration
from tokiod.window_data import ENDED_REMOVED, job_parts

START = 1_800_000_000 // 60 * 60
NAMES = tuple(metric.name for metric in METRICS)
DATASETS = tuple(f"nodes/{name}" for name in NAMES)


class Site:
    """A hub whose messages are kept. takes: how many answers its client takes."""

    def __init__(self, directory, **options):
        self.ring = Keyring(directory / "keys")
        self.keys = {name: self.ring.allowed(name).own.public for name in ("compute", "login")}
        self.clock = FakeClock(START + 75.0)
        patterns = {"compute": ("nid*",), "login": ("login[0-9]",)}
        self.config = HubConfig(
            endpoint="tcp://127.0.0.1:1", secret_key_file="x", clients="x", classes=patterns, **{"gather": Duration(0), **options}
        )
        self.sent, self.answers, self.broken = [], [], set()
        self.takes, self.refused = 1000, 0
        self.hub = Hub(self.config, NodeClasses(self.ring.clients, patterns), self.clock, self._send, self._reply)

    def wait(self, seconds):
        self.clock._move(self.clock.monotonic() + seconds)

    def _send(self, route, message):
        self.sent.append((route, json.loads(message)))
        return route not in self.broken

    def _reply(self, client, answer, frames):
        if len(self.answers) == self.takes:
            self.refused += 1
            return False
        self.answers.append((client, answer, frames))
        return True

    def hello(
        self,
        node,
        route=None,
        *,
        key="compute",
        session="s1",
        since=START - 3600,
        step=60,
        metrics=METRICS,
        version=None,
        job_metrics=JOB_METRICS,
        row=START - 3600,
    ):
        """Let a node greet. row: the newest one that the hub has of it, None before the first."""
        message = json.loads(wire.hello(node, session, "1.0", step, since, metrics, job_metrics))
        message[0] = version or message[0]
        self.hub.receive(route or node.encode(), self.keys[key], "10.0.0.1", json.dumps(message).encode())
        if (known := self.hub.nodes.by_name.get(node)) and known.row is None:
            known.row = row

    def row(
        self, node, start=START, route=None, *, session="s1", clock=0.0, values="known", late=0.0, jobs=(), dropped=None, examples=None
    ):
        if values == "known":
            values = [value(node, start, name) for name in NAMES]
        now = self.clock.time()
        message = wire.row(node, session, start, now - late + clock, clock + late, values, dropped or {}, jobs, examples)
        self.hub.receive(route or node.encode(), self.keys["compute"], "10.0.0.1", message)

    def ask(self, start=START, end=START + 60, number=7):
        self.hub.request(b"client", Collect(number, "n", 1, start, end, 60.0, "nodes", "c.nodes", DATASETS))
        return [route for route, (_, message) in self.sent if message["type"] == "ask"]

    def answer(self):
        """Return the answer, and the values of a window: f8[metric, row, node], NaN where a node has none."""
        self.hub.turn()
        (_, first, _) = self.answers[0]
        if not isinstance(first, Data):
            assert len(self.answers) == 1, self.answers
            return self.answers.pop()[1]
        assert [(answer.id, answer.part) for _, answer, _ in self.answers] == [(first.id, part) for part in range(first.parts)]
        data = decode([frame for _, _, frames in self.answers for frame in frames])
        self.answers.clear()
        (self.jobs,) = data.tables
        nodes = data.batches[0].columns if data.batches else ()
        assert [batch.dataset for batch in data.batches] == [name for name in DATASETS if nodes]
        asked = [message for _, (_, message) in self.sent if message["type"] == "ask"]
        start, end = min(one["start"] for one in asked), max(one["end"] for one in asked)
        values = np.full((len(NAMES), (end - start) // 60, len(nodes)), np.nan)
        for number, batch in enumerate(data.batches):
            values[number, (batch.time - start) // 60, batch.column] = batch.value
        return SimpleNamespace(id=first.id, nodes=nodes, records=data.records, dropped=data.dropped), values

    def count(self, start=START, end=START + 60):
        self.hub.request(b"client", Count(8, "n", 1, start, end, 60.0))
        answer = self.answers.pop()[1]
        assert isinstance(answer, Counted)
        return answer.records

    def states(self):
        self.hub.request(b"client", List(9))
        return {node.node: node for node in self.answers.pop()[1].nodes}


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


def test_a_window_is_the_values_of_all_nodes_and_one_without_an_answer_is_a_gap(site):
    for node in ("nid1", "nid2", "nid3"):
        site.hello(node)
    assert sorted(site.ask()) == [b"nid1", b"nid2", b"nid3"]
    site.row("nid1")
    site.row("nid3")
    site.hub.turn()
    assert site.answers == []
    site.wait(30)
    answer, values = site.answer()
    assert (answer.nodes, answer.records, answer.dropped) == (("nid1", "nid2", "nid3"), 2, {MISSING: 1})
    for row, name in enumerate(NAMES):
        wanted = [np.nan if node == "nid2" else value(node, START, name) for node in answer.nodes]
        np.testing.assert_array_equal(values[row, 0], np.array(wanted, float))


def test_a_request_that_is_given_up_has_no_answer_and_the_next_one_takes_what_nodes_were_asked_for(site):
    """Each of its nodes was asked again, and the answers to the first request were counted as not asked."""
    site.hello("nid1")
    site.hello("nid2")
    assert len(site.ask()) == 2
    site.row("nid1")
    site.hub.request(b"client", Cancel(7))
    site.row("nid2")
    assert len(site.ask(number=8)) == 4  # both have answered
    site.hub.request(b"client", Cancel(8))
    assert len(site.ask(number=9)) == 4
    site.row("nid1")
    site.row("nid2")
    answer, _ = site.answer()
    assert (answer.id, answer.records, answer.dropped, site.hub.refused) == (9, 2, {}, {})
    assert [state.dropped for state in site.states().values()] == [{}, {}]
    site.row("nid1")
    assert site.hub.refused == {"not asked": 1}


def test_a_request_of_another_client_is_not_given_up(site):
    site.hello("nid1")
    site.ask()
    site.hub.request(b"another", Cancel(7))
    site.row("nid1")
    assert site.answer()[0].records == 1


def test_rows_that_were_asked_for_and_do_not_come_are_asked_for_again(site):
    site.hello("nid1")
    site.ask()
    site.hub.request(b"client", Cancel(7))
    site.wait(14)
    assert len(site.ask(number=8)) == 1
    site.hub.request(b"client", Cancel(8))
    site.wait(2)
    assert len(site.ask(number=9)) == 2


def test_more_nodes_than_the_rate_allows_answer_within_the_time_that_the_source_waits(tmp_path):
    """The source gave each request up, and no window ever came."""
    site = Site(tmp_path, rows_per_second=5)
    for number in range(300):
        site.hello(f"nid{number}")
    site.ask()
    assert {message["within"] for _, (_, message) in site.sent if message["type"] == "ask"} == {30.0}
    site.wait(44)
    site.hub.turn()
    assert site.answers == []
    for number in range(300):
        site.row(f"nid{number}")
    assert site.answer()[0].records == 300


def test_the_answer_comes_at_once_when_all_have_answered(site):
    site.hello("nid1")
    site.ask(START - 120, START + 60)
    for start in (START, START - 120, START - 60):
        site.row("nid1", start)
    answer, values = site.answer()
    assert (answer.records, answer.dropped, values.shape) == (3, {}, (len(NAMES), 3, 1))


def test_nodes_that_declare_other_metrics_have_cells_of_those_they_share(site):
    site.hello("nid1")
    site.hello("nid2", metrics=METRICS[2:0:-1])
    site.ask()
    site.row("nid1")
    site.row("nid2", values=[5.0, 6.0])
    _, values = site.answer()
    np.testing.assert_array_equal(values[:, 0, 1], [np.nan, 6.0, 5.0, np.nan])


def test_a_class_may_use_its_names_alone(site):
    site.hello("login1", b"a")
    site.hello("login1", b"b", key="login")
    site.hello("login11", b"c", key="login")
    assert (site.hub.refused["class"], list(site.states())) == (2, ["login1"])
    assert site.states()["login1"].node_class == "login"
    refusals = {route: message["reason"] for route, (_, message) in site.sent}
    assert set(refusals) == {b"a", b"c"}
    assert site.ask() == [b"b"]


def test_a_reload_refuses_connected_nodes_whose_names_their_keys_may_no_longer_use(site):
    for node, key in (("nid1", "compute"), ("nid2", "compute"), ("login1", "login")):
        site.hello(node, key=key)
    # The pattern of one class is narrower, and the key of the other one is a key of the first class now.
    classes = {"compute": ("nid2",)}
    (site.ring.clients / "login.key").rename(site.ring.clients / "compute.2.key")
    site.hub.reload(msgspec.structs.replace(site.config, classes=classes), NodeClasses(site.ring.clients, classes))
    refusals = {route: message["reason"] for route, (_, message) in site.sent}
    assert refusals == {name: f"class: the class compute may not use the name {name.decode()}" for name in (b"nid1", b"login1")}
    site.sent.clear()
    assert site.ask() == [b"nid2"]
    site.row("nid1")
    site.row("nid2")
    assert site.answer()[0].records == 1
    assert {name: state.state for name, state in site.states().items()} == {
        "nid1": "refused: class", "nid2": "connected", "login1": "refused: class",
    }  # fmt: skip
    assert site.hub.refused == {"class": 2, "no hello": 1}
    site.hub.reload(site.config, NodeClasses(site.ring.clients, {"compute": ("nid*",)}))
    site.hello("nid1")
    site.sent.clear()
    assert sorted(site.ask()) == [b"nid1", b"nid2"]


def test_the_newer_session_of_a_name_counts_and_the_older_one_stays_refused(site):
    site.hello("nid1", b"old", session="s1")
    site.hello("nid1", b"new", session="s2")
    site.wait(60)
    site.hello("nid1", b"old", session="s1")
    assert site.ask() == [b"new"]
    site.row("nid1", route=b"old", session="s1")
    site.row("nid1", route=b"new", session="s2")
    answer, _ = site.answer()
    assert (answer.records, site.hub.refused["older session"], site.hub.refused["no hello"]) == (1, 1, 1)
    state = site.states()["nid1"]
    assert (state.others, state.state) == (1, "connected")


def test_the_older_session_counts_again_once_the_newer_one_is_silent(site):
    site.hello("nid1", b"old", session="s1")
    site.hello("nid1", b"new", session="s2")
    site.wait(200)
    site.hello("nid1", b"old", session="s1")
    assert site.ask() == [b"old"]


def test_a_session_that_connects_again_is_asked_on_its_new_connection_and_in_the_window_that_is_asked(site):
    site.hello("nid1", b"one")
    site.hello("nid2")
    site.ask()
    site.hello("nid1", b"two")
    assert [route for route, (_, message) in site.sent if message["type"] == "ask"] == [b"one", b"nid2", b"two"]
    site.row("nid1", route=b"two")
    site.row("nid2")
    assert site.answer()[0].records == 2


@pytest.mark.parametrize("clock", [3600.0, -3600.0, 2.5, -2.5])
def test_rows_of_a_clock_that_is_off_are_refused_and_counted_by_node(site, clock):
    site.hello("nid1")
    site.hello("nid2")
    site.ask()
    site.row("nid1", clock=clock)
    site.row("nid2")
    answer, values = site.answer()
    assert (answer.records, answer.dropped, site.hub.refused["clock"]) == (1, {"clock": 1}, 1)
    assert np.isnan(values[:, 0, 0]).all()
    assert site.states()["nid1"].dropped == {"clock": 1}
    assert site.states()["nid1"].clock == pytest.approx(clock)


@pytest.mark.parametrize("late", [0.0, 1.0, 50.0])
def test_no_delay_on_the_way_makes_a_clock_look_off(site, late):
    site.hello("nid1")
    site.ask()
    site.row("nid1", late=late)
    assert site.answer()[0].records == 1


def test_a_row_that_the_agent_does_not_have_is_a_reason_and_no_value(site):
    site.hello("nid1")
    site.ask()
    site.row("nid1", values=None)
    answer, _ = site.answer()
    assert (answer.records, answer.dropped) == (0, {NO_ROW: 1})
    assert site.count() == 0


@pytest.mark.parametrize(("since", "count"), [(START, 1), (START + 1, 0), (START - 3600, 1)])
def test_a_node_has_the_row_with_which_its_memory_begins(site, since, count):
    site.hello("nid1", since=since)
    assert site.count(START, START + 60) == count


@pytest.mark.parametrize(("ago", "count"), [(KEPT_SECONDS - QUERY_SECONDS, 0), (KEPT_SECONDS - QUERY_SECONDS - 1, 1)])
def test_a_row_that_can_no_longer_be_asked_in_time_counts_only_if_it_was_sent(site, ago, count):
    site.wait(START + ago - site.clock.time())
    site.hello("nid1", since=START - 7200)
    assert site.count(START, START + 60) == count


def test_the_count_of_a_window_is_what_was_sent_and_what_nodes_still_have(site):
    site.hello("nid1")
    site.ask()
    site.row("nid1")
    site.answer()
    site.hello("nid2")
    site.hello("nid3", since=START + 60)
    assert site.count() == 2
    site.wait(4000)
    site.hello("nid2")
    assert site.count() == 1


def test_nodes_are_not_expected_before_they_had_time_to_connect(tmp_path):
    site = Site(tmp_path, gather=Duration(90))
    site.hello("nid1")
    site.ask()
    refusal = site.answer()
    assert isinstance(refusal, Failed)
    assert refusal.outcome == "not_yet"
    site.wait(91)
    assert site.ask() == [b"nid1"]


def test_without_an_agent_there_is_no_window(site):
    site.ask()
    assert site.answer() == Failed(7, "transient", "no agent is connected to the hub")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"start": START + 1}, "other times than 1 to 120 whole rows of 60 s"),
        ({"end": START}, "other times than 1 to 120 whole rows of 60 s"),
        ({"end": START + 121 * 60}, "other times than 1 to 120 whole rows of 60 s"),
        ({"start": -60}, "other times than 1 to 120 whole rows of 60 s"),
        ({"end": 10**400}, "other times than 1 to 120 whole rows of 60 s"),
        ({"start": LATEST // 60 * 60, "end": LATEST // 60 * 60 + 60}, "other times than 1 to 120 whole rows of 60 s"),
        ({"datasets": None}, "all datasets: expected at most 1000 names that begin with nodes/"),
        ({"datasets": ("nodes/cpu", "lmt/x")}, "2 datasets: expected at most 1000 names that begin with nodes/"),
        ({"datasets": tuple(f"nodes/m{number}" for number in range(10_000))}, "10000 datasets: expected at most 1000 names"),
    ],
)
def test_a_request_that_no_node_can_answer_is_refused_and_asks_none(site, fields, words):
    site.hello("nid1")
    request = Collect(7, "n", 1, START, START + 60, 60.0, "nodes", "c.nodes", DATASETS)
    site.hub.request(b"client", msgspec.structs.replace(request, **fields))
    ((_, answer, _),) = site.answers
    assert (answer.id, answer.outcome, words in answer.message) == (7, "fatal", True), answer
    assert not [message for _, (_, message) in site.sent if message["type"] == "ask"]


def test_a_metric_that_no_node_has_is_a_batch_without_cells(site):
    site.hello("nid1")
    site.hub.request(b"client", Collect(7, "n", 1, START, START + 60, 60.0, "nodes", "c.nodes", (*DATASETS, "nodes/none")))
    site.row("nid1")
    site.hub.turn()
    *_, none = decode([frame for _, _, frames in site.answers for frame in frames]).batches
    assert (none.dataset, none.columns, len(none)) == ("nodes/none", ("nid1",), 0)


def test_a_name_that_is_none_of_a_dataset_is_refused(site):
    site.hello("nid1")
    site.hub.request(b"client", Collect(7, "n", 1, START, START + 60, 60.0, "nodes", "c.nodes", ("nodes/a b",)))
    site.row("nid1")
    assert site.answer() == Failed(7, "rejected", "source n: header: 'nodes/a b' is not a name of a dataset")


@pytest.mark.parametrize(
    ("end", "jobs"), [(START + 120 * 60, []), (START + 60, [("slurm:" + "\U0001f600" * 154, None, START + 59.0, False, [1.0, 7.0])] * 3)]
)
def test_a_window_that_is_too_large_is_refused_before_it_is_made(site, monkeypatch, end, jobs):
    """Many rows; and jobs whose names are ten times as long in the table as in a row."""
    monkeypatch.setattr("tokiod.crossing.parts.MAX_WINDOW_BYTES", 9_000)
    monkeypatch.setattr("tokiod.hub.to_window.values_of", lambda *_: pytest.fail("values were made"))
    monkeypatch.setattr("tokiod.hub.to_window.job_rows", lambda *_: pytest.fail("rows were made"))
    site.hello("nid1")
    site.ask(end=end)
    site.row("nid1", jobs=jobs)
    site.wait(61)
    answer = site.answer()
    assert (answer.outcome, answer.message.startswith("source n: a window of 0 MiB or more, the limit is 0 MiB")) == ("rejected", True)


def test_the_parts_after_one_that_a_client_does_not_take_are_not_sent(site, monkeypatch):
    monkeypatch.setattr("tokiod.hub.hub.PART_BYTES", 64)
    nodes = ("nid1", "nid2", "nid3")
    for node in nodes:
        site.hello(node)
    site.ask()
    site.ask(number=8)
    site.takes = 2
    for node in nodes:
        site.row(node)
    site.hub.turn()
    assert [(answer.id, answer.part) for _, answer, _ in site.answers] == [(7, 0), (7, 1)]
    assert (site.refused, site.hub._queries) == (2, [])


def test_more_names_of_a_class_than_allowed_are_refused_and_other_classes_have_their_own(tmp_path):
    site = Site(tmp_path, max_nodes=2)
    for number in range(4):
        site.hello(f"nid{number}")
    site.hello("login1", key="login")
    assert (len(site.states()), site.hub.refused["too many nodes"]) == (3, 2)
    site.wait(90_000)
    for number in (8, 9, 7):
        site.hello(f"nid{number}")
    assert (sorted(site.states()), site.hub.refused["too many nodes"]) == (["nid8", "nid9"], 3)


def test_a_connection_has_one_name(site):
    site.hello("nid1", b"a")
    for number in range(2, 50):
        site.hello(f"nid{number}", b"a")
    assert (list(site.states()), site.hub.refused) == (["nid1"], {"second name": 48})
    assert site.ask() == [b"a"]


def test_a_name_is_a_column_from_its_first_row_on_and_stays_one_in_its_next_session(site):
    for node in ("nid1", "nid2"):
        site.hello(node, row=None)
    site.ask()
    site.row("nid1")
    site.wait(30)
    answer, _ = site.answer()
    assert (answer.nodes, answer.dropped) == (("nid1",), {MISSING: 1})
    site.hello("nid1", session="s2", row=None)
    site.ask(START - 60, START)
    site.row("nid2", START - 60)
    site.wait(30)
    assert site.answer()[0].nodes == ("nid1", "nid2")


def test_a_class_declares_a_bounded_number_of_lists_of_metrics_and_those_of_no_node_are_forgotten(site):
    """Each hello could declare others, which were kept for ever."""
    for number in range(500):
        site.hello("nid1", metrics=[Metric(f"m{number}", "1", "gauge", "")], session=str(number))
    assert (site.hub.refused, len(site.hub.nodes._lists["compute"])) == ({}, 2)
    for number in range(2, 100):
        site.hello(f"nid{number}", metrics=[Metric(f"m{number}", "1", "gauge", "")])
    assert (site.hub.refused, len(site.hub.nodes._lists["compute"])) == ({"other metrics": 99 - 62 - 1}, MAX_LISTS)
    refused, said = next((route, message["reason"]) for route, (_, message) in site.sent if message["type"] == "refuse")
    assert said.startswith("other metrics: the nodes of its class declare 64 other lists of metrics; use one configuration")
    site.hello(refused.decode(), metrics=[Metric("m499", "1", "gauge", "")])
    site.hello("login1", key="login", metrics=METRICS[:1])
    assert {refused.decode(), "login1"} <= site.states().keys()
    site.hello("nid1", metrics=[Metric("new", "1", "gauge", "")])
    assert site.hub.nodes.by_name["nid1"].metrics == ("m499",)


def test_a_message_in_parts_is_one_and_parts_that_follow_no_other_are_malformed(site):
    site.hello("nid1")
    jobs = [(f"slurm:{number}", float(START), START + 59.5, False, [number / 7, 1e9 + number / 3]) for number in range(wire.MAX_JOBS)]
    row = wire.row("nid1", "s1", START, site.clock.time(), 0.0, [1.0] * len(NAMES), {}, jobs)
    parts = wire.parts(row)
    assert (len(parts) > 2, max(map(len, parts)) < wire.MAX_FRAME_BYTES - 64, wire.parts(parts[0][20:])) == (True, True, [parts[0][20:]])

    def send(*frames):
        for frame in frames:
            site.hub.receive(b"nid1", site.keys["compute"], "10.0.0.1", frame)

    send(*parts)  # it was asked for nothing: not one of them is decoded
    assert site.hub.refused == {"malformed": len(parts)}
    site.ask()
    send(*parts[1:], parts[0], parts[2], b"part 0 1\n{}", b"part 0 36\n{}", b"part 7 3\n", *parts[:2], row[:100])
    assert site.hub.refused == {"malformed": 2 * len(parts) + 4}
    send(*parts[:2], *parts)
    answer, _ = site.answer()
    assert (answer.records, len(site.jobs), site.hub.refused["malformed"]) == (1, 2000, 2 * len(parts) + 4)


def test_a_session_that_is_superseded_again_and_again_is_logged_once(site):
    with capture_logs() as logs:
        for number in range(100):
            site.hello(f"nid{number % 3}", session=str(number))
    assert [log["event"] for log in logs] == ["hub.session"]


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"[]",
        b"[1]",
        b'[1,{"type":"row"}]',
        b'[1,{"type":"x"}]',
        b"\xff",
        b"[" * 5000,
        b'[1,{"type":"hello","node":"../x"}]',
        b"[1.5,{}]",
        b'[1,{"type":"hello","node":"nid1","session":"s","tokiod":"1\xff","step":60,"since":0,"metrics":[]}]',
        b'[1,{"type":"hello","node":"nid1\xc3","session":"s","tokiod":"1","step":60,"since":0,"metrics":[]}]',
        b'[1,{"type":"row","node":"nid1","session":"s","start":60,"time":1,"ahead":0,"jobs":[["a:\xff",1,1,false,[]]]}]',
    ],
)
def test_malformed_messages_are_counted(site, frame):
    site.hub.receive(b"x", site.keys["compute"], "10.0.0.1", frame)
    assert site.hub.refused["malformed"] == 1


def test_a_row_of_another_node_on_the_same_connection_is_refused(site):
    site.hello("nid1")
    site.hello("nid2")
    site.ask()
    site.row("nid2", route=b"nid1")
    site.row("nid1")
    site.wait(30)
    answer, values = site.answer()
    assert (answer.records, site.hub.refused["no hello"]) == (1, 1)
    assert np.isnan(values[:, 0, 1]).all()


def test_agents_of_the_version_before_are_answered_in_it_and_others_are_refused(site, monkeypatch):
    monkeypatch.setattr(messages, "VERSIONS", (1, 2))
    site.hello("nid1", version=1)
    site.hello("nid2", version=2)
    site.hello("nid3", version=3)
    site.hello("nid4", version=7)
    site.ask()
    versions = {route: (version, message["type"]) for route, (version, message) in site.sent}
    assert versions == {b"nid1": (1, "ask"), b"nid2": (2, "ask"), b"nid3": (3, "refuse"), b"nid4": (7, "refuse")}
    assert site.hub.refused["version"] == 2


def test_a_connection_that_has_ended_is_not_waited_for(site):
    site.hello("nid1")
    site.hello("nid2")
    site.broken.add(b"nid1")
    site.ask()
    site.row("nid2")
    assert site.answer()[0].records == 1


def test_a_key_of_a_class_that_is_not_configured_is_an_error(site):
    with pytest.raises(ConfigError, match="the class login is not in"):
        NodeClasses(site.ring.clients, {"compute": ("nid*",)})


def test_the_jobs_of_all_nodes_are_in_the_window_with_their_states(site):
    for node in ("nid1", "nid2"):
        site.hello(node)
    site.hello("nid3", job_metrics=JOB_METRICS[1:])  # of another version
    site.ask()
    for node in ("nid1", "nid2"):
        site.row(node, jobs=job_rows(node, START))
    site.row("nid3", jobs=[("pbs:9.server", None, START + 59.0, False, [7.0])])
    site.answer()
    columns = dict(zip(site.jobs.columns, (values.tolist() for values in site.jobs.values), strict=True))
    states = zip(columns["begin"], columns["time"], columns["ended"], columns["cpu.sum"], columns["mem_bytes.max"], strict=True)
    jobs = [job_parts(key)["id"] for key in columns["job"]]
    found = {(node.decode(), job): state for node, job, state in zip(columns["target"], jobs, states, strict=True)}
    billion, million = 10**9, 10**6
    expected = {
        (node, job): (int(begin * billion), int(time), ENDED_REMOVED * ended, round(cpu * million), round(memory))
        for node in ("nid1", "nid2")
        for job, begin, time, ended, (cpu, memory) in job_rows(node, START)
    }
    assert found == expected | {("nid3", "pbs:9.server"): (-1, START + 59, 0, job_columns.UNKNOWN, 7)}


@pytest.mark.parametrize("job", ["a\x1fb", "", "x" * 161, "a\nb"])
def test_a_job_whose_name_no_agent_sends_is_malformed(site, job):
    site.hello("nid1")
    site.ask()
    site.row("nid1", jobs=[(job, None, START + 1.0, False, [1.0, 2.0])])
    assert site.hub.refused["malformed"] == 1


def test_a_job_with_more_values_than_the_agent_declared_is_refused(site):
    site.hello("nid1")
    site.ask()
    site.row("nid1", jobs=[("a", None, START + 1.0, False, [1.0])])
    assert site.answer()[0].dropped == {"other metrics": 1}


def test_an_agent_that_sends_no_jobs_is_understood(site):
    message = json.loads(wire.hello("nid1", "s1", "1.0", 60, START - 3600, METRICS))
    del message[1]["job_metrics"]
    site.hub.receive(b"nid1", site.keys["compute"], "10.0.0.1", json.dumps(message).encode())
    site.ask()
    message = json.loads(wire.row("nid1", "s1", START, site.clock.time(), 0.0, [1.0] * len(NAMES), {}))
    del message[1]["jobs"]
    site.hub.receive(b"nid1", site.keys["compute"], "10.0.0.1", json.dumps(message).encode())
    answer, values = site.answer()
    assert (answer.records, values[:, 0, 0].tolist(), len(site.jobs)) == (1, [1.0] * len(NAMES), 0)


def test_a_node_that_slept_has_no_row_of_that_time_and_its_later_rows(site):
    """As docs/nodes.md says; what counters and jobs are around a sleep is in tests/agent/test_rows.py."""
    site.hello("nid1", since=START - 120)
    site.ask(START - 120, START + 60)
    for start, values in ((START - 120, "known"), (START - 60, None), (START, "known")):
        site.row("nid1", start, values=values)
    answer, values = site.answer()
    assert (answer.records, answer.dropped) == (2, {NO_ROW: 1})
    assert np.isnan(values[:, :, 0]).all(axis=0).tolist() == [False, True, False]


def test_a_node_that_is_renamed_is_a_new_column_and_the_old_one_is_forgotten_after_a_day(site):
    site.hello("nid1")
    site.hello("nid7", b"nid7", session="s2")
    site.ask()
    site.row("nid7", session="s2", jobs=job_rows("nid7", START))
    site.wait(30)
    answer, values = site.answer()
    assert (answer.nodes, answer.dropped) == (("nid1", "nid7"), {MISSING: 1})
    assert np.isnan(values[:, 0, 0]).all()
    site.wait(300)
    assert {name: node.state for name, node in site.states().items()} == {"nid1": "silent", "nid7": "silent"}
    site.wait(86_400)
    site.hello("nid7", b"nid7", session="s2", since=START + 86_400)
    site.ask(START + 86_400, START + 86_460)
    site.row("nid7", START + 86_400, session="s2")
    assert site.answer()[0].nodes == ("nid7",)


def test_a_node_that_is_reimaged_counts_in_its_new_session_and_rows_of_the_old_one_are_counted_as_lost(site):
    site.hello("nid1", b"old", session="before")
    site.hello("nid1", b"new", session="after", since=START)
    site.ask(START - 60, START + 60)
    site.row("nid1", START - 60, b"new", session="after", values=None)
    site.row("nid1", START, b"new", session="after")
    site.row("nid1", START - 60, b"old", session="before")  # not asked, and of a process that has ended
    answer, values = site.answer()
    assert (answer.records, answer.dropped) == (1, {NO_ROW: 1})
    assert np.isnan(values[:, :, 0]).all(axis=0).tolist() == [True, False]
    assert (site.states()["nid1"].others, site.hub.refused["no hello"]) == (1, 1)


@pytest.mark.parametrize("clock", [3600.0, -3600.0])
def test_jobs_of_a_node_whose_clock_is_an_hour_off_are_refused_with_its_row_until_it_is_set(site, clock):
    site.hello("nid1")
    site.ask()
    site.row("nid1", clock=clock, jobs=job_rows("nid1", START))
    answer, _ = site.answer()
    assert (answer.dropped, len(site.jobs)) == ({"clock": 1}, 0)
    site.ask()
    site.row("nid1", jobs=job_rows("nid1", START))
    answer, _ = site.answer()
    assert (answer.records, len(site.jobs)) == (1, 2)


UNKNOWN = "jobs: unknown scheduler cgroup"


def test_what_agents_could_not_read_is_counted_once_by_node_with_an_example(site, monkeypatch):
    counted = []
    monkeypatch.setattr(catalogue.HUB_DROPPED_READINGS, "inc", lambda word, by: counted.append((word, by)))
    site.hello("nid1")
    for start, dropped, examples in (
        (START, {UNKNOWN: 2, "cpu: malformed": 1}, {UNKNOWN: "lsf/a"}),
        (START, {UNKNOWN: 2, "cpu: malformed": 1}, {UNKNOWN: "lsf/a"}),
        (START - 60, {UNKNOWN: 1, "jobs: job without a cgroup in cpuacct: x": 1}, {UNKNOWN: "lsf/b"}),
        (START - 120, {UNKNOWN: 1}, {}),
    ):
        site.ask(start, start + 60)
        site.row("nid1", start, dropped=dropped, examples=examples)
        site.answer()
    readings = {UNKNOWN: 4, "cpu: malformed": 1, "jobs: job without a cgroup in cpuacct: x": 1}
    assert (site.states()["nid1"].readings, site.states()["nid1"].examples[UNKNOWN]) == (readings, "lsf/b")
    assert counted == [
        ("unknown scheduler cgroup", 2), ("other", 1), ("unknown scheduler cgroup", 1), ("job without a cgroup in cpuacct", 1),
        ("unknown scheduler cgroup", 1),
    ]  # fmt: skip
    site.hello("nid1", session="s2")
    assert site.states()["nid1"].readings == readings


def test_a_row_that_is_refused_counts_no_readings_and_a_node_has_a_bounded_number_of_reasons(site):
    site.hello("nid1")
    site.ask()
    site.row("nid1", clock=300.0, dropped={UNKNOWN: 1})
    assert site.states()["nid1"].readings == {}
    for minute in range(3):
        site.ask(START - 60 * minute, START - 60 * minute + 60)
        site.row("nid1", START - 60 * minute, dropped={f"{minute} {number}": 1 for number in range(40)})
    assert len(site.states()["nid1"].readings) == len(site.states()["nid1"].examples) == MAX_REASONS
