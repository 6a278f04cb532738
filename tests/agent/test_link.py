"""When an agent dials: nodes that lose their hub together do not dial together."""

from random import Random

import pytest
import zmq

from tokiod.agent.keys import AgentKeys
from tokiod.agent.link import MAX_DELAY_SECONDS, SPREAD_SECONDS, Link

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
