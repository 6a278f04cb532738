"""Agents of compute nodes with real sockets and keys: hub, writer, collectors and network are killed, and no cell of the hour is lost."""

import random
import time

import pytest
from node_agents import STEP
from node_site import NodeSite
from waiting import PATIENCE

pytestmark = pytest.mark.system
VICTIMS = ("hub", "writer", "collectors", "network")


def until(condition, seconds=300 * PATIENCE, pause=0.3):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(pause)


def test_no_kill_of_hub_writer_collectors_or_network_loses_a_cell(tmp_path):
    seed = random.randrange(10**6)
    print("seed", seed)
    chance = random.Random(seed)
    site = NodeSite(tmp_path, 30, 2, 10.0, gather=20)
    try:
        until(lambda: site.stored_until() > site.first)
        for victim in chance.sample(VICTIMS, 4):
            time.sleep(chance.uniform(0.2, 1.0))
            until(lambda victim=victim: site.kill(victim))
        end = int(site.clock.time()) // STEP * STEP
        until(lambda: site.stored_until() >= end)
        until(lambda: site.wrong(end)[1:] == (0, 0), pause=1.0)
        assert site.wrong(end)[0] >= 30 * 4
    finally:
        site.close()
