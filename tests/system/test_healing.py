"""Six hours that a real daemon has missed: healed newest first, behind live polling, no quicker than it may be, every cell right."""

import json
import tempfile
from pathlib import Path

import pytest
from healed_scene import away, heal

from tokiod.simulator.site import Site
from tokiod.simulator.sources import COLLECTD, LMT

pytestmark = pytest.mark.system

EPOCH = 1_795_132_800
"""2026-11-20T00:00:00Z."""
HOURS, RATE = 6, 12
HEAL_RATE = 240.0


@pytest.fixture
def scene():
    site = Site(EPOCH, osts=3, osss=2, mdts=1, hosts=2, devices=2, cores=2, timezone="UTC", trouble=False)
    with tempfile.TemporaryDirectory(prefix="healing-") as directory:
        scene = away(Path(directory), site, (LMT, COLLECTD), hours=HOURS, rate=RATE, heal_rate=HEAL_RATE)
        try:
            yield scene
        finally:
            scene.close()


def questions(log, source):
    """How many windows were collected of a source, from the daemon's log."""
    events = (json.loads(line) for line in log.read_text().splitlines() if line.startswith("{"))
    return sum(event.get("event") == "window.collected" and event.get("source") == source for event in events)


def test_six_hours_heal_while_the_present_is_never_two_windows_behind(scene):
    seen = heal(scene, 35)
    assert seen.live < 10
    assert seen.lag < 2, seen.lags
    for source in scene.sources:
        looks = seen.stored[source.name]
        slack = 2 * RATE * HEAL_RATE  # a look may be that much later than what it sees, in real seconds
        for (t0, before), (t1, after) in zip(looks, looks[5:], strict=False):
            assert after - before <= HEAL_RATE * (t1 - t0) + slack + 240, source.name
        assert questions(scene.log, source.name) < HOURS * 60 / 2
    assert scene.stop_daemon() == 0
    found = scene.compare()
    assert (found.differences, found.filled > 50_000) == ([], True)
