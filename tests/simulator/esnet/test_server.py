import asyncio
import json
import math
from dataclasses import replace

import aiohttp
import numpy as np
import pytest
from aiohttp.test_utils import TestServer

from tokiod.simulator.esnet.rates import DATASETS, Esnet, EsnetAnswers
from tokiod.simulator.esnet.server import BASE, FAULTS, Service, fault
from tokiod.simulator.site import Site
from tokiod.testing.clock import FakeClock
from tokiod.window import Window

MIDNIGHT = 1_517_126_400
EPOCH = MIDNIGHT - 1795
"""Not on the grid of half minutes."""
SITE = Site(EPOCH, interfaces=3)
FILE = Window(MIDNIGHT - 3600, MIDNIGHT + 3600)


def quiet(site, begin):
    """A time from `begin` on at which nothing is wrong with the service."""
    return next(time for time in range(begin, begin + 3600) if fault(site, time) is None)


def asked(site, now, *requests):
    """Return (status, text) of requests, each a path below the base and its parameters, at a time."""

    async def ask():
        service = Service(site, FakeClock(now))
        async with TestServer(service.application()) as server, aiohttp.ClientSession() as client:
            answers = []
            for path, parameters in requests:
                async with client.get(server.make_url(BASE + path), params=parameters) as answer:
                    answers.append((answer.status, await answer.text()))
            return answers

    return asyncio.run(ask())


def path(name, direction):
    router, _, interface = name.partition(":")
    return f"/{router}/interface/{interface.replace('/', '_')}/{direction}"


def points(site, now, begin, end):
    requests = [
        (path(name, direction), {"begin": begin, "end": end, "agg": 30}) for name in site.interface_names for direction in ("in", "out")
    ]
    answers = asked(site, now, *requests)
    assert {status for status, _ in answers} == {200}
    return [json.loads(text)["data"] for _, text in answers]


@pytest.mark.parametrize("seed", [1, 2])
def test_every_cell_is_what_the_service_tells_when_all_is_told(seed):
    site = replace(SITE, seed=seed)
    stored = [Window(FILE.start, MIDNIGHT), Window(MIDNIGHT + 600, MIDNIGHT + 1200)]
    answers = EsnetAnswers(site, stored).of(FILE)
    told = points(site, quiet(site, FILE.end + 120), FILE.start, FILE.end)
    for number, series in enumerate(told):
        column, direction = divmod(number, 2)
        want = {time: rate for time, rate in series if rate is not None and any(w.start <= time < w.end for w in stored)}
        answer = answers[DATASETS[direction]]
        assert answer.columns == site.interface_names
        cells = zip(answer.timestamps.tolist(), answer.values[:, column].tolist(), strict=True)
        assert {time: rate for time, rate in cells if not math.isnan(rate)} == want
        assert min(want) >= EPOCH
    values = np.concatenate([answer.values for answer in answers.values()])
    assert (values == 0).any()
    assert np.nanmax(values) > 1e9


def test_stored_windows_and_what_lies_before_the_first_are_determined():
    for answer in EsnetAnswers(SITE, [Window(MIDNIGHT, MIDNIGHT + 60)]).of(FILE).values():
        known = answer.timestamps[answer.determined[:, 0]]
        assert known.tolist() == [*range(FILE.start, EPOCH, 30), MIDNIGHT, MIDNIGHT + 30]


def test_the_newest_points_are_null_until_they_are_told_and_only_those_that_never_are_stay_so():
    first = {}
    for now in range(MIDNIGHT, MIDNIGHT + 300):
        if fault(SITE, now) is None:
            for number, series in enumerate(points(SITE, now, MIDNIGHT - 60, now)):
                for time, rate in series:
                    if rate is not None:
                        assert first.setdefault((number, time), (now, rate))[1] == rate
    late = {now - time for (_, time), (now, _) in first.items() if time >= MIDNIGHT}
    assert min(late) >= 30
    assert max(late) <= 30 + SITE.late + 20
    assert len(late) > 5


def test_the_first_point_lies_before_the_begin_and_the_last_one_at_the_end():
    now = quiet(SITE, MIDNIGHT + 600)
    for series in points(SITE, now, MIDNIGHT + 10, MIDNIGHT + 60):
        assert [time for time, _ in series] == [MIDNIGHT, MIDNIGHT + 30, MIDNIGHT + 60]


@pytest.mark.parametrize(
    ("place", "parameters", "status"),
    [
        ("/snx1-cr1/interface/eth7/in", {}, 404),
        ("/nowhere/interface/xe-1_0_1/in", {}, 404),
        ("/snx1-cr1/interface/xe-1_0_1/sideways", {}, 404),
        ("/snx1-cr1/interface/xe-1_0_1/in", {"agg": "60"}, 400),
        ("/snx1-cr1/interface/xe-1_0_1/in", {"calc": "60"}, 400),
        ("/snx1-cr1/interface/xe-1_0_1/in", {"begin": "noon"}, 400),
        ("/snx1-cr1/interface/xe-1_0_1/in", {}, 200),
    ],
)
def test_what_is_not_there_or_not_known_is_refused(place, parameters, status):
    assert asked(SITE, quiet(SITE, MIDNIGHT), (place, parameters))[0][0] == status


def test_every_fault_happens_and_none_at_a_calm_site():
    faults = {fault(SITE, EPOCH + 60 * minute) for minute in range(1000)}
    assert faults == {None, *FAULTS}
    assert {fault(replace(SITE, trouble=False), EPOCH + 60 * minute) for minute in range(1000)} == {None}


@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_leaves_nothing_that_reads_like_an_answer(kind):
    now = next(time for time in range(EPOCH // 60 * 60, EPOCH + 10**6, 60) if fault(SITE, time) == kind)
    request = (path(SITE.interface_names[0], "in"), {})
    if kind == "reset":
        with pytest.raises(aiohttp.ClientConnectionError):
            asked(SITE, now, request)
        return
    status, text = asked(SITE, now, request)[0]
    assert status == {"refused": 503, "broken": 500}.get(kind, 200)
    with pytest.raises(json.JSONDecodeError):
        json.loads(text)


def test_rates_are_the_same_in_whatever_pieces_they_are_asked_for():
    whole = Esnet(SITE).rates(0, 600)
    pieces = np.concatenate([Esnet(SITE).rates(k, k + 7) for k in range(0, 600, 7)], axis=1)[:, :600]
    assert np.array_equal(whole, pieces, equal_nan=True)
    assert np.isnan(whole).any()
    assert not np.isnan(Esnet(replace(SITE, trouble=False)).rates(0, 600)).any()
