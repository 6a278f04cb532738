"""The live collector against a real HTTP server that plays ESnet's service, and everything that can be between us and it."""

import asyncio
import json
import time

import pytest
from aiohttp import web
from esnet_server import INTERVAL, EsnetServer, rate

from collectors import esnet_snmp
from collectors.esnet_snmp.parse import INFINITE, MALFORMED, NEGATIVE
from tokiod.collector import Site
from tokiod.errors import Fatal, Transient
from tokiod.testing.clock import FakeClock
from tokiod.testing.collector_contract import CollectorContract, collected, samples, within
from tokiod.window import Calendar, Window

START = 1_549_875_600
WINDOW = Window(START, START + 600)
INTERFACES = {"sunn-cr5": ["to_nersc_ip-d_v4", "xe-0_1_0"], "sacr-cr5": ["4_2_1"]}
NAMES = ("sunn-cr5:to_nersc_ip-d_v4", "sunn-cr5:xe-0/1 0", "sacr-cr5:4_2_1")
SITE = Site(Calendar("America/Los_Angeles"), FakeClock(START))
CALLED = {name: name.replace("/", "_").replace(" ", "_") for name in NAMES}


@pytest.fixture
def server():
    with EsnetServer(INTERFACES) as running:
        yield running


def live(server, **options):
    given = {"url": server.url, "interfaces": NAMES, "rate": 10_000.0, "request_timeout": 5}
    return esnet_snmp.live(esnet_snmp.Config(name="e", kind="esnet_snmp", system="s", **(given | options)), SITE)


def outcome(collector, window=WINDOW):
    data = within(collector, lambda c: c.collect(window))
    cells = {
        b.dataset: {(t, b.columns[i]): v for t, i, v in zip(b.time.tolist(), b.column, b.value.tolist(), strict=True)} for b in data.batches
    }
    return cells, data


def right(window=WINDOW, names=NAMES, step=INTERVAL):
    cells = {}
    for direction, dataset in (("in", "datatargets/readrates"), ("out", "datatargets/writerates")):
        cells[dataset] = {}
        for name in names:
            router, interface = CALLED[name].split(":", 1)
            for t in range(window.start, window.end, step):
                points = [rate(router, interface, direction, p) for p in range(t, t + step, INTERVAL)]
                cells[dataset][t, name] = pytest.approx(sum(points) / len(points), rel=1e-12)
    return cells


class TestContract(CollectorContract):
    @pytest.fixture
    def collector(self, server):
        server.known = WINDOW.end
        server.faults.append(self.nothing_before)
        return lambda: live(server)

    async def nothing_before(self, request):
        return web.json_response({"agg": "30", "data": []}) if int(request.query["end"]) < WINDOW.start else None

    @pytest.fixture
    def saved(self, tmp_path):
        document = {}
        for name in NAMES:
            router, interface = CALLED[name].split(":", 1)
            points = {way: {t: rate(router, interface, way, t) for t in range(WINDOW.start, WINDOW.end, INTERVAL)} for way in ("in", "out")}
            document.setdefault(router, {})[interface] = {**points, "units": "bytes/sec"}
        (tmp_path / "saved.json").write_text(json.dumps(document))
        return lambda: esnet_snmp.saved([tmp_path / "saved.json"], esnet_snmp.Saved(interface=NAMES), SITE)

    @pytest.fixture
    def window(self):
        return WINDOW

    @pytest.fixture
    def datasets(self):
        return frozenset({"datatargets/readrates", "datatargets/writerates"})


class TestContractOfPointsThatComeTwiceAtTimes(CollectorContract):
    """A point more stands there twice with each answer, as long as a row or longer."""

    @pytest.fixture(params=[INTERVAL, INTERVAL // 3])
    def collector(self, server, request):
        server.faults.append(self.repeated)
        return lambda: live(server, timestep=request.param)

    async def repeated(self, request):
        if int(request.query["end"]) < WINDOW.start:
            return web.json_response({"agg": str(INTERVAL), "data": []})
        self.turn = getattr(self, "turn", 0) + 1
        _, _, router, _, name, way = request.path.split("/")[1:]
        times = range(WINDOW.start, min(WINDOW.end, int(request.query["end"]) + 1), INTERVAL)
        data = [[t, rate(router, name, way, t)] for t in times if t + INTERVAL > int(request.query["begin"])]
        return web.json_response({"agg": str(INTERVAL), "data": data + data[: self.turn % 4]})

    @pytest.fixture
    def window(self):
        return Window(WINDOW.start, WINDOW.start + 10 * INTERVAL)

    @pytest.fixture
    def datasets(self):
        return frozenset({"datatargets/readrates", "datatargets/writerates"})


def test_exactly_the_points_of_the_window_are_cells(server):
    cells, data = outcome(live(server))
    assert cells == right()
    assert (data.records, data.dropped) == (2 * 3 * 20, {})


def test_aggregate_interval_begin_and_end_reach_the_server(server):
    outcome(live(server, aggregate="max", interval=60, timestep=60), Window(START, START + 120))
    queries = dict(server.requests)
    assert len(queries) == 6
    assert all(query == {"begin": str(START), "end": str(START + 119), "cf": "max", "agg": "60"} for query in queries.values())
    assert "/snmp/west/sunn-cr5/interface/xe-0_1_0/in" in queries


def test_rows_longer_than_points_are_means_of_our_own(server):
    cells, _ = outcome(live(server, timestep=120))
    assert cells == right(step=120)
    assert not any("calc" in query for _, query in server.requests)


def test_the_interval_that_the_service_reports_replaces_the_requested_one(server):
    async def coarse(request):
        times = range(int(request.query["begin"]) // 60 * 60, int(request.query["end"]) + 1, 60)
        return web.json_response({"agg": "60", "data": [[t, float(t)] for t in times]})

    server.faults.append(coarse)
    cells, _ = outcome(live(server), Window(START, START + 120))
    assert {t: v for (t, name), v in cells["datatargets/readrates"].items() if name == NAMES[0]} == {
        START + offset: float(START + offset // 60 * 60) for offset in (0, 30, 60, 90)
    }


def test_null_is_not_yet_and_counted_again_it_has_grown(server):
    server.known = START + 300
    collector = live(server)

    async def use(c):
        data = await c.collect(WINDOW)
        first = [len(batch) for batch in data.batches]
        server.known = 2**40
        return first, data.records, await c.count(WINDOW), sum(len(batch) for batch in await collected(c, WINDOW))

    assert within(collector, use) == ([30, 30], 60, 120, 120)


def test_an_unknown_interface_is_left_out_and_queried_again_after_a_while(server):
    clock = FakeClock(START)
    config = esnet_snmp.Config(name="e", kind="esnet_snmp", system="s", url=server.url, interfaces=(*NAMES, "x:y"), rate=10_000.0)

    async def use(c):
        columns, dropped = [], []
        for _ in range(3):
            data = await c.collect(WINDOW)
            columns += [batch.columns for batch in data.batches]
            dropped.append(data.dropped)
            before = len([path for path, _ in server.requests if "/x/" in path])
            await clock.advance(601 if len(columns) == 4 else 0)
        return {*columns}, dropped, before

    columns, dropped, times = within(esnet_snmp.live(config, Site(Calendar("UTC"), clock)), use)
    assert columns == {(*NAMES, "x:y")}
    assert dropped == [{"interface that the service does not know": 1}] * 3
    assert times == 4  # both directions, first and after ten minutes


def test_where_no_interface_is_known_a_person_must_look(server):
    with pytest.raises(Fatal, match="does not know any of the interfaces, such as a:b"):
        outcome(live(server, interfaces=("a:b", "c:d")))


async def _reset(request):
    request.transport.abort()
    return web.Response()


async def _torn(request):
    response = web.StreamResponse(headers={"Content-Length": "5000"})
    await response.prepare(request)
    await response.write(b'{"agg": "30", "data": [[')
    request.transport.abort()
    return response


async def _slow(request):
    response = web.StreamResponse()
    await response.prepare(request)
    for _ in range(100):
        await response.write(b" ")
        await asyncio.sleep(0.1)
    return response


def answers(**response):
    async def fault(_request):
        return web.Response(**response)

    return fault


def moves(where, status=302):
    async def fault(request):
        return web.Response(status=status, headers={"Location": where}) if "moved" not in request.path else None

    return fault


@pytest.mark.parametrize(
    ("fault", "error", "sentence"),
    [
        (answers(status=503, headers={"Retry-After": "7"}), Transient, "HTTP status 503 Service Unavailable; retry after 7 s"),
        (answers(status=429), Transient, "429"),
        (answers(status=500, text="oops"), Transient, "500"),
        (answers(status=400, text="bad calc_func"), Fatal, "400"),
        (answers(status=403), Fatal, "access is denied"),
        (answers(text="<html><body>log in</body></html>", content_type="text/html"), Transient, "answered with HTML"),
        (answers(text='{"agg": "30", "data": [[1549875600, 1.0], [15498'), Transient, "without a list of points"),
        (answers(text='{"error": "none"}'), Transient, "without a list of points"),
        (answers(text=""), Transient, "without a list of points"),
        (answers(text="[" * 100_000), Transient, "without a list of points"),
        (_reset, Transient, "the request failed"),
        (_torn, Transient, "the request failed"),
        (_slow, Transient, "did not answer within 1 s"),
        (moves("http://elsewhere.example/x"), Fatal, r"redirects to http://elsewhere\.example/x; set url to that"),
        (moves("/snmp/again"), Fatal, "more than 3 redirects"),
        (moves("ftp://127.0.0.1/x"), Fatal, "redirects to"),
    ],
)
def test_a_failed_request_fails_the_window_by_its_class_and_the_next_one_succeeds(server, fault, error, sentence):
    server.faults.append(fault)
    collector = live(server, request_timeout=1)

    async def use(c):
        with pytest.raises(error, match=sentence) as raised:
            await samples(c, WINDOW)
        server.faults.clear()
        return type(raised.value), await samples(c, WINDOW)

    kind, cells = within(collector, use)
    assert kind is error
    assert {dataset: len(values) for dataset, values in cells.items()} == dict.fromkeys(right(), 60)


def test_one_interface_that_fails_fails_the_window_for_it_is_whole_or_not_at_all(server):
    async def one(request):
        return web.Response(status=500) if "4_2_1" in request.path else None

    server.faults.append(one)
    with pytest.raises(Transient, match="500"):
        outcome(live(server))


def test_a_redirect_on_the_same_host_is_followed(server):
    async def once(request):
        if "/new/" in request.path:
            parts = request.path.split("/")
            return web.Response(body=server.body(parts[-4], parts[-2], parts[-1], request.query), content_type="application/json")
        return web.Response(status=301, headers={"Location": request.path_qs.replace("/snmp/", "/new/", 1)})

    server.faults.append(once)
    assert outcome(live(server))[0] == right()


def test_malformed_points_are_counted_and_the_others_used(server):
    points = [[START, 1.5], [START + 30, "many"], [START + 60, -1], [START + 90, None], ["x", 2], [START + 120], [START + 150, True], 7]
    text = json.dumps({"agg": "30", "data": points})[:-2] + f", [{START + 180}, NaN], [{START + 210}, Infinity], [{START + 240}, 3]]" + "}"
    server.faults.append(answers(text=text))
    cells, data = outcome(live(server, interfaces=NAMES[:1]))
    assert cells["datatargets/readrates"] == {(START, NAMES[0]): 1.5, (START + 240, NAMES[0]): 3.0}
    assert data.dropped == {MALFORMED: 10, NEGATIVE: 2, INFINITE: 2}


def test_no_data_is_a_value(server):
    server.faults.append(answers(text='{"agg": "30", "data": []}'))
    cells, data = outcome(live(server))
    assert ({dataset: len(values) for dataset, values in cells.items()}, data.records) == (dict.fromkeys(right(), 0), 0)


def test_only_so_many_requests_are_underway_and_only_so_many_are_sent_in_a_second(server):
    async def wait(_request):
        await asyncio.sleep(0.05)

    server.faults.append(wait)
    outcome(live(server, connections=2))
    assert server.most == 2
    begun = time.monotonic()
    outcome(live(server, rate=10.0, connections=6))
    assert time.monotonic() - begun > 0.5


def test_a_server_that_is_not_there_is_transient():
    config = esnet_snmp.Config(name="e", kind="esnet_snmp", system="s", url="http://127.0.0.1:9/x", interfaces=NAMES)
    with pytest.raises(Transient, match="the request failed"):
        outcome(esnet_snmp.live(config, SITE))


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"url": "ftp://x"}, 'url: expected "https://host/path"'),
        ({"url": "http://x:y/"}, "url: is malformed"),
        ({"interfaces": ()}, "interfaces: at least one is required"),
        ({"interfaces": ("sunn-cr5",)}, "interfaces: 'sunn-cr5' is not ROUTER:IFNAME"),
        ({"interval": 0}, "interval: must be greater than zero"),
    ],
)
def test_the_errors_of_a_section_are_reported(options, fault):
    given = {"name": "e", "kind": "esnet_snmp", "system": "s", "url": "http://x/", "interfaces": NAMES}
    assert [found for found in esnet_snmp.Config(**(given | options)).faults() if found.startswith(fault)]
