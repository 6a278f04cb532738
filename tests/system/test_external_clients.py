"""A real daemon with its feed on the network, with keys: allowed clients receive all, others nothing, and a crowd delays nothing.

Judged by EXTERNAL_CLIENTS=10000/100000 (connections to the feed/messages to each of feed and bus) and CROWD=1000/100/600
(subscribers/those that never read/seconds); it prints the figures.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import pytest
from keyed import Keyring
from waiting import wait_for

from tests.support.faulty_scene import FaultyScene
from tokiod.clock import SimulatedClock
from tokiod.reader.followed_file import FollowedFile
from tokiod.simulator.site import Site
from tokiod.simulator.sources import LMT, free_port
from tokiod.subscribe.subscriber import Gap, Subscriber, Update
from tokiod.supervisor.control_socket import Ping, Reload, Reloaded, ask

pytestmark = pytest.mark.system

NOON = 1_517_184_000 + 12 * 3600
RATE = 30
SCRIPT = Path(__file__).with_name("external_clients.py")
CONNECTIONS, MESSAGES = map(int, os.environ.get("EXTERNAL_CLIENTS", "500/5000").split("/"))
CROWD, UNREAD, SECONDS = map(int, os.environ.get("CROWD", "100/10/10").split("/"))
SLACK = 2.0
"""Real seconds by which windows may be stored later than in the quiet time: other processes work on the machine."""
ROOM = 30.0
"""Megabytes."""


class Place:
    """A scene with keys, and its lag."""

    def __init__(self, directory, *, keyed):
        self.clock = SimulatedClock(float(NOON), time.time(), RATE)
        site = Site(epoch=NOON - 300, timezone="UTC", osts=24, osss=4, mdts=1)
        self.scene = FaultyScene(directory, site, self.clock, retention=4 * 3600, sources=(LMT,), log_level="info")
        self.scene.prepare()
        self.keyring = Keyring(directory / "keys")
        self.friend = self.keyring.allowed("friend")
        self.feed, self.metrics = f"tcp://127.0.0.1:{free_port()}", free_port()
        text = f'secrets = "keys"\n{self.scene.config_path.read_text()}'
        access = 'secret_key_file = "server.key_secret"\nclients = "clients"' if keyed else "allow_anyone = true"
        text = text.replace(f'"ipc://{directory}/feed"', f'"{self.feed}"\n{access}')
        self.scene.config_path.write_text(text.replace("[[source]]", f'[metrics]\naddress = "127.0.0.1:{self.metrics}"\n[[source]]', 1))

    def lag(self):
        """Return the age of the newest stored cell in real seconds."""
        stored = self.scene.stored()
        return (self.clock.time() - stored[-1].end) / RATE if stored else float("inf")

    def count(self, name):
        with urlopen(f"http://127.0.0.1:{self.metrics}/metrics", timeout=50) as answer:
            lines = answer.read().decode()
        return sum(float(value) for value in re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", lines, re.MULTILINE))

    def logged(self, event):
        lines = (json.loads(line) for line in self.scene.log.read_text().splitlines() if line.startswith("{"))
        return [line for line in lines if line["event"] == event]

    @contextmanager
    def lags(self):
        """Watch the lag; yield a list of all its values."""
        seen, over = [], threading.Event()

        def watch():
            while not over.wait(0.1):
                seen.append(self.lag())

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield seen
        finally:
            over.set()
            thread.join()


@contextmanager
def playing(*, keyed):
    with tempfile.TemporaryDirectory(prefix="clients-") as directory:
        place = Place(Path(directory), keyed=keyed)
        try:
            place.scene.start_simulator()
            place.scene.start_daemon()
            wait_for(lambda: is_ready(place), 60, f"not ready; see {place.scene.log}")
            wait_for(lambda: place.lag() < 5, 60, f"does not catch up; see {place.scene.log}")
            yield place
        except BaseException:
            print(place.scene.log.read_text()[-5000:])
            raise
        finally:
            place.scene.close()


def is_ready(place):
    try:
        return ask(place.scene.config.control, Ping(), 5).ready
    except Exception:  # noqa: BLE001 - not there yet
        return False


class Follower:
    """Keeps a picture of what a subscriber receives."""

    def __init__(self, endpoint, keys, silence=1.0):
        self.picture, self.missed, self.updates = {}, 0, 0
        self._subscriber = Subscriber(endpoint, silence=silence, keys=keys)
        self._over = False
        self._thread = threading.Thread(target=self._follow)
        self._thread.start()

    def _follow(self):
        for event in self._subscriber:
            match event:
                case Update(batch=batch):
                    self.updates += 1
                    for stamp, column, value in zip(batch.time.tolist(), batch.column.tolist(), batch.value.tolist(), strict=True):
                        self.picture[batch.dataset, batch.columns[column], stamp] = value
                case Gap(since=int()):
                    self.missed += 1
            if self._over:
                return

    def end(self):
        self._over = True
        self._thread.join()
        self._subscriber.close()

    def check(self, scene, begun):
        """Compare the picture with the files, from a time on that is well after its beginning."""
        (path,) = scene.files()
        with FollowedFile(path) as reader:
            for dataset in reader.datasets():
                stamps, columns, values = reader.read(dataset, begun, NOON + 86400)
                held = {(columns[c], int(stamps[r])): float(values[r, c]) for r, c in np.argwhere(~np.isnan(values)).tolist()}
                found = {(column, stamp): v for (name, column, stamp), v in self.picture.items() if name == dataset and stamp >= begun}
                assert {key: value for key, value in found.items() if not np.isnan(value)} == held, dataset


def run(*arguments, **options):
    return subprocess.Popen([sys.executable, str(SCRIPT), *map(str, arguments)], **options)


def in_short(memory, lags, quiet):
    """Describe what a crowd cost."""
    grown = f"{max(memory):+.1f} MB at most, {memory[-1]:+.1f} MB at the end"
    return (
        f"\n{CROWD} subscribers, {UNREAD} of them never read, for {SECONDS} s: {grown}, lag {spread(lags)}; as long before: {spread(quiet)}"
    )


def spread(lags):
    """Describe the distribution of lags."""
    middle, high, highest = np.quantile(lags, [0.5, 0.99, 1])
    return f"median {middle:.2f} s, 99 % {high:.2f} s, at most {highest:.2f} s"


def test_refused_clients_and_malformed_messages_are_counted_and_change_nothing(capsys):
    with playing(keyed=True) as place:
        scene, keys = place.scene, place.keyring.directory
        # With the feed's own interval as the limit it would reconnect on a busy machine, and miss what comes meanwhile.
        follower = Follower(place.feed, place.friend, silence=5.0)
        with place.lags() as quiet:
            time.sleep(6)
        since = scene.stored()[-1].end
        memory, refused = scene.memory(), place.count("tokiod_refused_connections_total")
        assert refused == 0
        begun = time.monotonic()
        with place.lags() as lags:
            malformed = [
                run("malformed", what, endpoint, keys, MESSAGES, stdin=subprocess.PIPE)
                for what, endpoint in (("feed", place.feed), ("bus", scene.config.bus.endpoint))
            ]
            assert run("connect", place.feed, keys, CONNECTIONS).wait(400) == 0
            for name, least in (("refused_connections", CONNECTIONS), ("feed_malformed_messages", MESSAGES)):
                wait_for(lambda name=name, least=least: place.count(f"tokiod_{name}_total") >= least, 60, f"not all are counted: {name}")
            wait_for(lambda: place.count("tokiod_bus_dropped_messages_total") >= MESSAGES, 60, "not all of the bus's are counted")
            took = time.monotonic() - begun
            for process in malformed:
                process.communicate(timeout=100)
        grown = scene.memory() - memory
        counts = [
            place.count(f"tokiod_{name}_total") for name in ("refused_connections", "feed_malformed_messages", "bus_dropped_messages")
        ]
        assert [one.restarts for one in ask(scene.config.control, Ping(), 5).processes] == [0, 0, 0]
        with capsys.disabled():
            print(f"\n{CONNECTIONS} connections, 2 x {MESSAGES} messages in {took:.0f} s: counted {counts}, {grown:+.1f} MB, "
                  f"lag at most {max(lags):.1f} s, {max(quiet):.1f} s before")  # fmt: skip
        # On a machine so slow that the collectors reconnect, the parts of the old connection are dropped and counted too, and sent again.
        resent = place.count("tokiod_bus_resent_windows_total")
        assert counts[:2] == [CONNECTIONS, MESSAGES]
        assert counts[2] == MESSAGES or (resent and counts[2] > MESSAGES)
        assert max(lags) < max(quiet) + SLACK
        assert grown < ROOM
        lines = place.logged("feed.refused")
        assert len(lines) == len({line["reason"] for line in lines})
        assert scene.stop_daemon() == 0
        time.sleep(1)
        follower.end()
        assert follower.missed == 0
        follower.check(scene, since)
        comparison = scene.compare()
        assert (comparison.differences, comparison.equal, comparison.filled > 1000) == ([], True, True)


def test_a_key_that_a_reload_removes_receives_nothing_and_is_accepted_again_once_added():
    with playing(keyed=True) as place:
        revoked = Follower(place.feed, place.keyring.allowed("other"))
        friend = Follower(place.feed, place.friend)
        wait_for(lambda: friend.updates > 3, 30, "nothing received")
        assert revoked.updates == 0

        def reload(*, is_accepted):
            assert isinstance(answer := ask(place.scene.config.control, Reload(), 60), Reloaded), answer
            assert not answer.restarted
            before = friend.updates
            time.sleep(0.5)
            known = revoked.updates
            wait_for(lambda: friend.updates > before + 20, 30, "nothing received any more")
            if is_accepted:
                wait_for(lambda: revoked.updates > known, 30, "not accepted")
            else:
                assert revoked.updates == known

        reload(is_accepted=True)
        place.keyring.revoke("other")
        reload(is_accepted=False)
        place.keyring.allowed("third")
        (place.keyring.clients / "other.key").write_bytes((place.keyring.directory / "other.key").read_bytes())
        reload(is_accepted=True)
        assert [one.restarts for one in ask(place.scene.config.control, Ping(), 5).processes] == [0, 0, 0]
        for one in (revoked, friend):
            one.end()
        assert place.count("tokiod_refused_connections_total") > 0
        assert place.scene.stop_daemon() == 0
        assert place.scene.compare().equal


@pytest.mark.timeout(900 + 3 * SECONDS)
def test_a_crowd_of_subscribers_of_which_some_never_read_delays_nothing_and_misses_nothing(capsys):
    with playing(keyed=False) as place:
        scene = place.scene
        # As long as with the crowd: delays by other processes come with time.
        with place.lags() as quiet:
            time.sleep(SECONDS)
        before, pipes = scene.memory(), {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        crowd = run("subscribe", place.feed, CROWD, UNREAD, **pipes)
        memory = []
        with place.lags() as lags:
            begun = time.monotonic()
            while time.monotonic() < begun + SECONDS:
                time.sleep(1)
                memory.append(scene.memory() - before)
        with capsys.disabled():
            print(in_short(memory, lags, quiet))
        try:
            # One process for all of them: on a busy machine it is late.
            output, _ = crowd.communicate("\n", timeout=600 + SECONDS)
        except subprocess.TimeoutExpired:
            crowd.kill()
            crowd.communicate()
            raise
        first, last = map(json.loads, output.splitlines())
        with capsys.disabled():
            print(f"connected in {first['connected']:.1f} s, {last['messages']} messages to {last['live']}, {last['holes']} missed, "
                  f"{last['cpu']:.0f} s of processor for them")  # fmt: skip
        assert (last["live"], last["holes"]) == (CROWD - UNREAD, 0)
        assert last["messages"] > 5 * CROWD
        assert max(lags) < max(quiet) + SLACK
        assert np.median(lags) < np.median(quiet) + SLACK / 2
        assert max(memory) < ROOM + CROWD / 10
        assert scene.stop_daemon() == 0
        assert scene.compare().equal
