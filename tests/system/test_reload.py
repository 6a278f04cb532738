"""A running daemon takes other configurations: what did not change goes on, what can't work is refused, nothing is lost or asked twice.

RELOADS=200 makes the loop as long as it is judged; the seed is printed.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest
from waiting import wait_for

from tokiod.clock import SimulatedClock
from tokiod.simulator.scene import Scene
from tokiod.simulator.site import Site
from tokiod.simulator.sources import COLLECTD, LMT
from tokiod.supervisor.control_socket import Ping, Refused, Reload, Reloaded, ask

pytestmark = pytest.mark.system

NOON = 1_517_184_000 + 12 * 3600
HISTORY = 600
RATE = 60
RELOADS = int(os.environ.get("RELOADS", "25"))
THIRD = '[[source]]\nname = "third"\nsystem = "third"\nkind = "lmt"\nurl = "sqlite://{0}/lmt.sqlite3"\nsettle = "5s"\nretention = "{1}s"\n'
BROKEN = (
    '[archive\npath = "x"\n',
    'windo = "1m"\n',
    '[[source]]\nname = "fourth"\n',
    '[[source]]\nname = "demo-lmt"\nkind = "lmt"\nsystem = "twice"\nurl = "sqlite:///x"\n',
    '[[source]]\nname = "fifth"\nkind = "nonsense"\nsystem = "s"\n',
    "\xff".encode("latin-1").decode("latin-1") + "= 1\n",
)


@pytest.fixture
def scene():
    with tempfile.TemporaryDirectory(prefix="tokiod-reload-") as directory:
        clock = SimulatedClock(float(NOON), time.time(), RATE)
        site = Site(epoch=NOON - HISTORY, timezone="UTC", osts=4, osss=2, mdts=1, hosts=2, devices=1, cores=2)
        made = Scene(Path(directory), site, clock, retention=4 * 3600, sources=(LMT, COLLECTD), log_level="debug")
        made.prepare()
        try:
            made.start_simulator()
            made.start_daemon()
            wait_for(lambda: is_ready(made), 60, f"not ready; see {made.log}")
            yield made
        finally:
            made.close()


def is_ready(scene):
    try:
        return ask(scene.config.control, Ping(), 5).ready
    except Exception:  # noqa: BLE001 - not there yet
        return False


def restarts(scene):
    return [one.restarts for one in ask(scene.config.control, Ping(), 5).processes]


def wait_stored(scene):
    end = int(scene.clock.time()) // scene.window * scene.window
    wait_for(lambda: scene.complete_to(scene.site.epoch, end), 60, f"not complete up to {end}; see {scene.log}")


def told(scene):
    return [json.loads(line) for line in scene.log.read_text().splitlines() if line.startswith("{") and line.endswith("}")]


def asked_for_nothing(scene, source):
    """Return the windows that were asked for again although the last answer was on its way or was stored."""
    settled, again = Counter(), []
    for event in (event for event in told(scene) if event.get("source") == source):
        match event["event"]:
            case "window.collected":
                again += [event["window"]] if settled[event["window"]] else []
                settled[event["window"]] += 1
            case "window.postponed" | "window.refused":
                settled[event["window"]] = 0
    return again


def descriptors(scene):
    return [len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in scene.processes()]


def test_in_many_reloads_right_and_wrong_no_window_is_lost_or_asked_twice_and_no_descriptor_leaks(scene):
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    rng, good = random.Random(seed), scene.config_path.read_text()
    lmt, collectd = good.index('[[source]]\nname = "demo-lmt"'), good.index('[[source]]\nname = "demo-collectd"')
    head, first, second = good[:lmt], good[lmt:collectd], good[collectd:]
    wait_stored(scene)
    before, pids = descriptors(scene), scene.processes()
    known = {"demo-lmt", "demo-collectd"}
    for number in range(RELOADS):
        wrong = rng.choice(BROKEN) if rng.random() < 0.4 else ""
        changed = second.replace('settle = "30s"', f'settle = "{rng.randrange(30, 60)}s"')
        third = THIRD.format(scene.directory, rng.randrange(3, 9) * 600) if rng.random() < 0.5 else ""
        stanzas = [first, changed, third]
        rng.shuffle(stanzas)
        scene.config_path.write_text(head + "".join(stanzas) + wrong)
        answer = ask(scene.config.control, Reload(), 60)
        if wrong:
            assert isinstance(answer, Refused), (number, wrong, answer)
            assert answer.faults[0].startswith(str(scene.config_path)), answer
        else:
            assert isinstance(answer, Reloaded), (number, answer)
            assert (answer.restarted, "demo-lmt" in answer.unchanged) == (False, True), (number, answer)
            known = {*answer.added, *answer.changed, *answer.unchanged}
        if rng.random() < 0.2:
            os.kill(scene.processes()[0], 1)
        time.sleep(rng.uniform(0, 0.3))
    scene.config_path.write_text(good)
    assert isinstance(ask(scene.config.control, Reload(), 60), Reloaded), known
    wait_stored(scene)
    assert scene.processes() == pids
    after = descriptors(scene)
    assert all(now <= then + 3 for then, now in zip(before, after, strict=True)), (before, after)
    assert asked_for_nothing(scene, "demo-lmt") == []
    assert scene.stop_daemon() == 0
    comparison = scene.compare()
    assert (comparison.differences, comparison.equal, comparison.filled > 1000) == ([], True, True)


def tokioctl(scene, *arguments):
    command = [sys.executable, "-m", "tokiod.cli.tokioctl", *arguments, "--config", str(scene.config_path)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


def test_the_command_says_what_changed_and_what_is_wrong_with_its_line(scene):
    good = scene.config_path.read_text()
    done = tokioctl(scene, "reload")
    assert (done.returncode, done.stdout) == (0, "nothing changed\n"), done.stderr
    scene.config_path.write_text(good + 'windo = "1m"\n')
    done = tokioctl(scene, "reload")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{scene.config_path}:{good.count(chr(10)) + 1}: source demo-collectd: windo: unknown key, did you mean window?" in done.stderr
    assert "the daemon keeps its current configuration" in done.stderr
    scene.config_path.write_text(good + THIRD.format(scene.directory, 600))
    done = tokioctl(scene, "reload", "--json")
    assert json.loads(done.stdout)["added"] == ["third"]
    done = tokioctl(scene, "ping", "--json")
    assert (done.returncode, msg := json.loads(done.stdout), [one["restarts"] for one in msg["processes"]]) == (0, msg, [0, 0, 0])
    scene.stop_daemon()
    for command in ("reload", "ping"):
        done = tokioctl(scene, command)
        assert (done.returncode, done.stdout, "no daemon answers at" in done.stderr) == (2, "", True)


def test_what_concerns_more_than_sources_restarts_all_and_what_can_not_run_is_taken_back(scene):
    wait_stored(scene)
    good = scene.config_path.read_text()
    scene.config_path.write_text(good.replace("[bus]\n", "[bus]\nmax_windows = 3\n"))
    answer = ask(scene.config.control, Reload(), 60)
    assert (answer.restarted, answer.keys, restarts(scene)) == (True, ["bus.max_windows"], [0, 0, 0])
    (scene.directory / "file").write_text("no directory")
    scene.config_path.write_text(good.replace(f"{scene.directory}/tts/", f"{scene.directory}/file/tts/"))
    answer = ask(scene.config.control, Reload(), 120)
    assert isinstance(answer, Refused), answer
    assert "keeps its current configuration" in answer.faults[-1]
    wait_for(lambda: is_ready(scene), 60, f"not ready again; see {scene.log}")
    scene.config_path.write_text(good)
    wait_stored(scene)
    assert scene.stop_daemon() == 0
    assert scene.compare().equal


def test_the_level_of_the_log_changes_and_nothing_restarts(scene):
    scene.stop_daemon()
    scene.log_level = None
    scene.start_daemon()
    wait_for(lambda: is_ready(scene), 60, f"not ready; see {scene.log}")
    lines = len(told(scene))
    scene.config_path.write_text('log_level = "debug"\n' + scene.config_path.read_text())
    answer = ask(scene.config.control, Reload(), 60)
    assert (answer.restarted, answer.changed, answer.keys) == (False, [], ["log_level"])
    wait_for(lambda: {"window.collected", "window.stored"} <= {event["event"] for event in told(scene)[lines:]}, 60, "nothing said")
    assert restarts(scene) == [0, 0, 0]


def test_a_file_that_is_being_edited_stops_no_process_that_is_just_restarted(scene):
    scene.config_path.write_text("half a li")
    assert scene.kill("writer")
    assert scene.kill("collectors")
    wait_for(lambda: restarts(scene) == [0, 1, 1] and is_ready(scene), 60, f"not ready again; see {scene.log}")
    wait_stored(scene)
