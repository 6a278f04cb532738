"""The collector of nodes, against a hub that the test plays over a real socket: what it asks, takes and refuses."""

import asyncio
import math
import re

import msgspec
import numpy as np
import pytest
import zmq
import zmq.asyncio

from collectors.nodes import Config, Saved, live, saved
from collectors.nodes.config import DEFAULT, METRICS
from tokiod.collector import Site
from tokiod.crossing.dialogue import Asked, Cancel, Collect, Count, Counted, Data, Failed
from tokiod.crossing.parts import encoded
from tokiod.errors import Fatal, NotYet, Refusal, TokiodError, Transient
from tokiod.hub.to_rows import JOB_FIELDS, JOB_METRICS, job_rows
from tokiod.hub.to_window import batches
from tokiod.testing import FakeClock
from tokiod.tts.schema import DATASETS
from tokiod.window import Calendar, Window
from tokiod.window_data import WindowData

START, NAN, UTC = 1_800_000_000 // 60 * 60, math.nan, Calendar("UTC")
WINDOW, NODES, METRIC = Window(START, START + 120), ("nid1", "nid2", "nid3"), ("cpu_user", "net_sent")
VALUES = np.array([[[1, NAN, -0.0], [NAN, 4, 5]], [[NAN] * 3, [7, 8, NAN]]])


def asking(message, number, window=WINDOW, **fields):
    """A request as the collector sends it, of no lane: the hub has none."""
    return message(number, "n", 0, window.start, window.end, 60.0 * (window.seconds // 60), **fields)


def without_lane(frame):
    request = msgspec.json.decode(frame, type=Asked)
    return msgspec.structs.replace(request, lane=0) if isinstance(request, Collect | Count) else request


def config(**values):
    return Config(name="n", kind="nodes", **({"system": "c.nodes", "metrics": METRIC} | values))


@pytest.fixture
def asked(tmp_path):
    """Let a collector ask a hub that answers each request with frames; return what it made of that, and the requests."""
    endpoint = f"ipc://{tmp_path}/hub"

    def asked(*answers, call=lambda nodes: nodes.collect(WINDOW)):
        requests = []

        async def hub(router):
            for answer in answers:
                sender, request = await router.recv_multipart()
                requests.append(without_lane(request))
                for frames in answer(requests[-1].id):
                    await router.send_multipart([sender, *frames])

        async def both():
            with zmq.asyncio.Context() as context, context.socket(zmq.ROUTER) as router:
                router.linger = 0
                router.bind(endpoint)
                playing, nodes = asyncio.create_task(hub(router)), live(config(), Site(UTC, FakeClock(), hub=endpoint))
                try:
                    return [await asyncio.wait_for(call(nodes), 20) for _ in answers]
                finally:
                    await nodes.close()
                    playing.cancel()

        return asyncio.run(both()), requests

    return asked


def collected(number, *, values=VALUES, states=(), records=9, size=2**20):
    """The messages of a window, in parts of so many bytes."""
    rows = job_rows(np.hstack([np.empty((JOB_FIELDS + len(JOB_METRICS), 0)), *states]), ("slurm:7",), NODES, WINDOW)
    data = WindowData(list(batches(values, METRIC, NODES, START)), records, {"late": 1}, [rows])
    parts = encoded("n", data, size)
    return [[msgspec.json.encode(Data(number, part, len(parts))), *frames] for part, frames in enumerate(parts)]


def counted(number, records=5):
    return [[msgspec.json.encode(Counted(number, records))]]


def failed(outcome, text):
    return lambda number: [[msgspec.json.encode(Failed(number, outcome, text))]]


def edited(number, edit):
    """The messages of a window, of which the last one's frames were edited."""
    *others, (head, *frames) = collected(number)
    return [*others, [head, *edit([bytes(frame) for frame in frames])]]


def job_state(*, node):
    found = np.full((JOB_FIELDS + len(JOB_METRICS), 1), NAN)
    found[:JOB_FIELDS, 0] = node, 0, START, START + 70, 0
    found[JOB_FIELDS, 0] = 1.5
    return found


def test_a_request_that_is_given_up_is_cancelled_at_the_hub_and_the_next_one_goes_on(tmp_path):
    endpoint = f"ipc://{tmp_path}/hub"

    async def both():
        with zmq.asyncio.Context() as context, context.socket(zmq.ROUTER) as router:
            router.linger = 0
            router.bind(endpoint)
            nodes = live(config(), Site(UTC, FakeClock(), hub=endpoint))
            try:
                given_up = asyncio.create_task(nodes.collect(WINDOW))
                sender, _ = await router.recv_multipart()
                given_up.cancel()
                (_, cancel), next_one = await router.recv_multipart(), asyncio.create_task(nodes.count(WINDOW))
                _, count = await router.recv_multipart()
                for frames in (*collected(1), *counted(2)):
                    await router.send_multipart([sender, *frames])
                return [without_lane(frame) for frame in (cancel, count)], await asyncio.wait_for(next_one, 20)
            finally:
                await nodes.close()

    assert asyncio.run(both()) == ([Cancel(1), asking(Count, 2)], 5)


def test_a_request_that_is_given_up_after_the_end_of_its_connection_is_only_cancelled(tmp_path):
    endpoint = f"ipc://{tmp_path}/hub"

    async def both():
        with zmq.asyncio.Context() as context, context.socket(zmq.ROUTER) as router:
            router.linger = 0
            router.bind(endpoint)
            nodes = live(config(), Site(UTC, FakeClock(), hub=endpoint))
            given_up = asyncio.create_task(nodes.collect(WINDOW))
            await router.recv_multipart()
            given_up.cancel()
            await nodes.close()
            await given_up

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(both())


def test_a_request_that_waits_for_the_hub_fails_when_its_connection_is_closed(tmp_path):
    endpoint = f"ipc://{tmp_path}/hub"

    async def both():
        with zmq.asyncio.Context() as context, context.socket(zmq.ROUTER) as router:
            router.linger = 0
            router.bind(endpoint)
            nodes = live(config(), Site(UTC, FakeClock(), hub=endpoint))
            waiting = asyncio.create_task(nodes.collect(WINDOW))
            await router.recv_multipart()
            await nodes.close()
            await asyncio.wait_for(waiting, 20)

    with pytest.raises(Transient, match="the connection to the hub was closed"):
        asyncio.run(both())


def test_a_window_has_the_cells_of_each_metric_and_the_rows_of_jobs(asked):
    (first, second), requests = asked(lambda n: collected(n, states=[job_state(node=1)]), collected)
    datasets = ("nodes/cpu_user", "nodes/net_sent")
    assert requests == [asking(Collect, n, kind="nodes", system="c.nodes", datasets=datasets) for n in (1, 2)]
    assert not any(np.signbit(one.value).any() for one in first.batches), "the archive uses -0.0 for missing cells"
    assert (first.records, first.dropped) == (9, {"late": 1})
    found = {
        one.dataset: (one.form, one.step, one.columns, one.time.tolist(), one.column.tolist(), one.value.tolist()) for one in first.batches
    }
    assert found == {
        "nodes/cpu_user": ("gauge", 60, NODES, [START, START, START + 60, START + 60], [0, 2, 1, 2], [1, 0, 4, 5]),
        "nodes/net_sent": ("gauge", 60, NODES, [START + 60] * 2, [0, 1], [7, 8]),
    }
    (rows,), (none,) = first.tables, second.tables
    values = dict(zip(rows.columns, rows.values, strict=True))
    assert (len(rows), values["target"].tolist(), values["time"].tolist(), values["cpu.sum"].tolist()) == (
        1,
        [b"nid2"],
        [START + 70],
        [1_500_000],
    )
    assert len(none) == 0


def test_a_window_of_many_parts_is_whole_in_whatever_order_they_come(asked):
    values = np.arange(18.0).reshape(2, 3, 3)
    states = [job_state(node=node) for node in (0, 2)]
    (found,), _ = asked(lambda n: collected(n, values=values, states=states, size=64)[::-1], call=lambda nodes: nodes.collect(WINDOW))
    assert [one.value.tolist() for one in found.batches] == [part.ravel().tolist() for part in values]
    assert dict(zip(found.tables[0].columns, found.tables[0].values, strict=True))["target"].tolist() == [b"nid1", b"nid3"]


def test_a_request_that_no_hub_takes_holds_up_no_end(tmp_path):
    """Its socket is there, as of a hub that was killed."""
    (tmp_path / "hub").touch()
    nodes = live(config(), Site(UTC, FakeClock(), hub=f"ipc://{tmp_path}/hub"))

    async def ask():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(nodes.count(WINDOW), 0.01)
        await nodes.close()

    asyncio.run(ask())


def test_answers_to_earlier_requests_are_skipped(asked):
    (found,), _ = asked(lambda n: [*collected(n - 1, records=1), *collected(n + 1, records=2), *collected(n)])
    assert found.records == 9


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (failed("not_yet", "starting"), NotYet, "starting"),
        (failed("transient", "no agent"), Transient, "no agent"),
        (failed("fatal", "rows of 61 s"), Fatal, "rows of 61 s"),
        (failed("rejected", "too large"), Refusal, "too large"),
        (counted, Transient, "the hub sent Counted for a request of Collect"),
        (lambda n: edited(n, lambda frames: [frames[0][:-8]]), Transient, "the hub sent a malformed window: shape"),
        (lambda n: edited(n, lambda frames: [*frames, bytes(8)]), Transient, "the hub sent a malformed window: shape"),
        (lambda n: edited(n, lambda _: []), Transient, "the hub sent a malformed window: header"),
        (lambda n: edited(n, lambda frames: [frames[0].replace(b"gauge", b"guage")]), Transient, "malformed window: header"),
        (lambda n: [[msgspec.json.encode(Data(n, 1, 1))]], Transient, "malformed window: parts: part 1 of 1"),
        (lambda _: [[b'{"type":"window"}']], Transient, "the hub's answer is of another version than this process: Invalid value 'window'"),
        (lambda _: [[b"\xff"]], Transient, "the hub's answer is of another version than this process"),
        (
            lambda n: [[msgspec.json.encode(Data(n, part, parts))] for part, parts in ((0, 3), (1, 2))],
            Transient, "malformed window: parts: 2 parts, and 3 by another",
        ),
    ],
)  # fmt: skip
def test_what_is_not_the_window_is_refused_and_the_next_one_is_taken(asked, answer, error, words):
    async def call(nodes):
        try:
            return await nodes.collect(WINDOW)
        except (TokiodError, Refusal) as raised:
            return raised

    (raised, found), _ = asked(answer, collected, call=call)
    assert type(raised) is error
    assert re.search(words, str(raised)), raised
    assert found.records == 9


@pytest.mark.parametrize(("age", "ended_at"), [(3599, None), (3600, START)])
def test_a_window_that_no_agent_keeps_any_more_is_where_a_backfill_ends(tmp_path, age, ended_at):
    """While no agent is connected, or no hub is there."""
    nodes = live(config(), Site(UTC, FakeClock(WINDOW.end + age), hub=f"ipc://{tmp_path}/hub"))
    with pytest.raises(Transient, match="no hub at") as raised:
        asyncio.run(nodes.collect(WINDOW))
    assert raised.value.ended_at == ended_at


def test_a_count_is_a_number_or_unknown(asked):
    found, requests = asked(counted, lambda n: counted(n, None), call=lambda nodes: nodes.count(WINDOW))
    assert found == [5, None]
    assert requests == [asking(Count, n) for n in (1, 2)]


def test_a_window_in_the_place_of_a_count_is_refused(asked):
    with pytest.raises(Transient, match="the hub sent Data for a request of Count"):
        asked(collected, call=lambda nodes: nodes.count(WINDOW))


def test_without_a_hub_the_reason_is_its_address_and_a_closed_collector_asks_again(tmp_path, asked):
    nodes = live(config(), Site(UTC, FakeClock(), hub=f"ipc://{tmp_path}/none"))
    with pytest.raises(Transient, match=rf"no hub at ipc://{tmp_path}/none: does the daemon run with the table \[hub\]"):
        asyncio.run(nodes.collect(WINDOW))
    asyncio.run(nodes.close())

    async def twice(nodes):
        before = await nodes.count(WINDOW)
        await nodes.close()
        await nodes.close()
        return before

    assert asked(counted, counted, call=twice)[0] == [5, 5]


def test_a_section_has_the_metrics_of_nodes_and_the_times_of_the_agents():
    every = {name for name in DATASETS if name.startswith("nodes/")}
    plain = Config(name="n", kind="nodes", system="c.nodes")
    assert (plain.step, plain.retention, plain.recount, plain.metrics) == (60, 3600, (300, 1200, 3000), DEFAULT)
    assert {f"nodes/{name}" for name in METRICS} == every == Saved().datasets()
    assert {*DEFAULT} < {*METRICS}
    assert config().datasets() == {"nodes/cpu_user", "nodes/net_sent"}
    assert (plain.needs_hub, plain.tables, plain.selected_by, plain.reporters()) == (True, {"jobs/operations"}, ("metrics",), {"the hub"})
    assert (Saved().step, plain.faults(), config(retention=3600).faults()) == (60, [], [])
    with pytest.raises(TokiodError, match="kind nodes has no saved files"):
        saved([], Saved(), Site(UTC, FakeClock()))


def test_all_faults_of_a_section_are_reported():
    wrong = config(system="c", metrics=("cpu_user", "cpu_usr"), retention=3601)
    assert wrong.faults() == [
        "system: expected a name that ends in .nodes, as in c.nodes: nodes have files of their own",
        "metrics: unknown metric 'cpu_usr', did you mean cpu_user?",
        "retention: agents keep 3600 s, got 3601 s",
    ]
    assert config(metrics=()).faults() == ["metrics: at least one metric is required"]


def test_a_collector_says_that_its_past_can_be_asked_for(tmp_path):
    nodes = live(config(), Site(UTC, FakeClock(), hub=f"ipc://{tmp_path}/hub"))
    assert (nodes.replayable, nodes.needs_sample_at_end, nodes.step) == (True, False, 60)
