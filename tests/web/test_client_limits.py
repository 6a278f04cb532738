"""The requests of each client, by a clock that the test moves."""

from contextlib import suppress

import pytest

from tokiod.web.client_limits import (
    BURST_REQUESTS,
    MAX_AT_ONCE,
    MAX_CLIENTS,
    MAX_STREAMS,
    REQUESTS_PER_SECOND,
    ClientLimits,
)
from tokiod.web.refusal import Refused


def answered(limits, name, now, count):
    """How many of some requests are answered."""
    found = 0
    for _ in range(count):
        with suppress(Refused), limits.request(name, now):
            found += 1
    return found


def test_a_client_has_a_burst_and_then_its_rate_and_takes_nothing_from_others():
    limits = ClientLimits()
    assert answered(limits, "a", 0.0, 1000) == BURST_REQUESTS
    assert answered(limits, "b", 0.0, 10) == 10
    assert answered(limits, "a", 2.0, 1000) == 2 * REQUESTS_PER_SECOND
    assert answered(limits, "a", 1e6, 1000) == BURST_REQUESTS


def test_only_so_many_requests_of_a_client_run_at_the_same_time():
    limits = ClientLimits()
    running = [limits.request("a", 0.0) for _ in range(MAX_AT_ONCE)]
    for one in running:
        one.__enter__()
    with pytest.raises(Refused, match="at the same time") as refused, limits.request("a", 0.0):
        pass
    assert (refused.value.kind.status, refused.value.headers["Retry-After"]) == (429, "1")
    assert answered(limits, "b", 0.0, 1) == 1
    running[0].__exit__(None, None, None)
    assert answered(limits, "a", 0.0, 1) == 1


def test_clients_that_ask_no_more_are_forgotten():
    limits = ClientLimits()
    assert answered(limits, "first", 0.0, 1000) == BURST_REQUESTS
    for number in range(MAX_CLIENTS):
        answered(limits, f"{number}", 0.0, 1)
    assert answered(limits, "first", 0.0, 1000) == BURST_REQUESTS


def test_a_client_that_is_forgotten_keeps_the_count_of_its_streams():
    limits = ClientLimits()
    streams = [limits.stream("first") for _ in range(MAX_STREAMS)]
    for one in streams:
        one.__enter__()
    for number in range(MAX_CLIENTS + 1):
        answered(limits, f"{number}", 0.0, 1)
    with pytest.raises(Refused, match="256 connections of this client"), limits.stream("first"):
        pass
    streams[0].__exit__(None, None, None)
    with limits.stream("first"):
        pass
