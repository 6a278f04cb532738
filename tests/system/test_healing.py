"""Six hours that a real daemon has missed: healed newest first, behind live polling, no quicker than it may be, every cell right."""

import json
import tempfile
from pathlib import Path

import pytest
from healed_scene import away, heal

from tokiod.simulator.site import Site
from tokiod.simulator.sources import COLLECTD, LMT
from tokiod.window import Window, iso

pytestmark = pytest.mark.system

EPOCH = 1_795_132_800
"""2026-11-20T00:00:00Z."""
HOURS, RATE = 6, 12
HEAL_RATE = 240.0


@pytest.fixture
def scene(request):
    site = Site(EPOCH, osts=3, osss=2, mdts=1, hosts=2, devices=2, cores=2, timezone="UTC", trouble=False)
    with tempfile.TemporaryDirectory(prefix="healing-") as directory:
        scene = away(Path(directory), site, (LMT, COLLECTD), hours=getattr(request, "param", HOURS), rate=RATE, heal_rate=HEAL_RATE)
        try:
            yield scene
        finally:
            scene.close()


def events(log, since=0):
    """What the daemon has logged behind so many bytes."""
    return [json.loads(line) for line in log.read_bytes()[since:].decode().splitlines() if line.startswith("{")]


def collected(found, source):
    """The windows that were collected of a source, as text."""
    return [event["window"] for event in found if event.get("event") == "window.collected" and event.get("source") == source]


def test_six_hours_heal_while_the_present_is_never_two_windows_behind(scene):
    seen = heal(scene, 35)
    assert max(seen.past.values()) < HOURS * 3600 / 4, seen.past
    assert seen.lag < 2, seen.lags
    for source in scene.sources:
        looks = seen.stored[source.name]
        slack = 2 * RATE * HEAL_RATE  # a look may be that much later than what it sees, in real seconds
        for (t0, before), (t1, after) in zip(looks, looks[5:], strict=False):
            assert after - before <= HEAL_RATE * (t1 - t0) + slack + 240, source.name
        past = {window for window in collected(events(scene.log), source.name) if window < f"[{iso(EPOCH + HOURS * 3600)}"}
        assert len(past) < HOURS * 60 / 2
    assert scene.stop_daemon() == 0
    found = scene.compare()
    assert (found.differences, found.filled > 50_000) == ([], True)


@pytest.mark.parametrize("scene", [3], indirect=True)
def test_a_deleted_ledger_is_rebuilt_and_only_what_the_files_do_not_prove_is_asked_for_again(scene):
    heal(scene, 35)
    assert scene.stop_daemon() == 0
    before = {source.name: scene.stored(source) for source in scene.sources}
    for path in scene.config.archive.ledger.parent.glob("ledger.sqlite3*"):
        path.unlink()
    since = scene.log.stat().st_size
    heal(scene, 35)
    assert scene.stop_daemon() == 0
    told = events(scene.log, since)
    (rebuilt,) = [event for event in told if event["event"] == "ledger.rebuilt"]
    assert (rebuilt["files"], rebuilt["windows"] > 300, rebuilt["seconds"] < 3) == (2, True, True)
    for source in scene.sources:
        # The newest hour is asked for again, and the first step of all, which no difference proves.
        middle = Window(before[source.name][0].start + 120, before[source.name][-1].end - 4500)
        assert [w for w in collected(told, source.name) if f"[{iso(middle.start)}" < w < f"[{iso(middle.end)}"] == []
    # The first windows, out of a source's reach by now, are in the file, but nothing proves them.
    first = max(scene.stored(source)[0].start for source in scene.sources)
    assert first < scene.site.epoch + 1800
    found = scene.compare()
    assert ([one for one in found.differences if one.time >= first], found.filled > 20_000) == ([], True)
