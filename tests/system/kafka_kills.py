"""Kill the sink, the broker and the writer in turn while a daemon stores windows: what consumers fold is what the files hold.

PYTHONPATH=tests/support python -m tests.system.kafka_kills [--kills 300] [--seed N]    prints one line
"""

from __future__ import annotations

import argparse
import random
import signal
import tempfile
import time
from pathlib import Path

from kafka_server import KafkaServer
from kafka_topics import create_topic, messages
from topic_scene import KAFKA, FollowingConsumer, TopicScene
from waiting import wait_for

from tokiod.clock import SimulatedClock
from tokiod.simulator.site import Site
from tokiod.simulator.sources import LMT

EPOCH = 1_517_184_000
RATE = 30
HISTORY = 600
BEFORE_MIDNIGHT = 900
"""Seconds of the clock: the file of another day begins, and the first one is sealed."""
VICTIMS = ("sink", "broker", "writer")
SET_ASIDE_EVERY = 25
"""Kills after which the live file is lost, too."""


def run(server: KafkaServer, topic: str, kills: int, seed: int) -> str:
    """Return a sentence with figures. Raises AssertionError for the first difference."""
    chance = random.Random(seed)
    begun = time.monotonic()
    create_topic(server.address, f"{topic}-{LMT.system}")
    with tempfile.TemporaryDirectory(prefix="kafka-kills-") as name:
        clock = SimulatedClock(EPOCH + 86400.0 - BEFORE_MIDNIGHT, time.time(), RATE)
        site = Site(epoch=int(clock.epoch) - HISTORY, timezone="UTC", osts=4, osss=2, mdts=1, moment=60)
        scene = TopicScene(Path(name), site, clock, retention=86400, sources=(LMT,), log_level="warning", server=server, topic=topic)
        scene.prepare()
        try:
            scene.start_simulator()
            scene.start_daemon()
            scene.start_sink(KAFKA)
            done = _killed(scene, server, kills, chance, seed)
        finally:
            scene.close()
    return f"seed {seed}: {kills} kills of sink, broker and writer in {(time.monotonic() - begun) / 60:.0f} min, {done}"


def _killed(scene: TopicScene, server: KafkaServer, kills: int, chance: random.Random, seed: int) -> str:
    consumer = FollowingConsumer(scene)
    wait_for(lambda: bool(consumer.cells), 60, f"nothing is consumed; see {scene.sink_log(KAFKA).read_text()[-2000:]}")
    lost = 0
    for number in range(kills):
        time.sleep(chance.choice([0, 0.05, 0.3, 1, 2]) * chance.random())
        _kill(scene, server, VICTIMS[number % len(VICTIMS)], chance)
        if number % SET_ASIDE_EVERY == SET_ASIDE_EVERY - 1:
            lost += _lose_a_file(scene, chance)
    # The writer that was killed last must have stored windows again: one that is stopped while it starts publishes nothing.
    end = (int(scene.clock.time()) // scene.window + 2) * scene.window
    wait_for(lambda: scene.complete_to(scene.site.epoch, end), 120, f"seed {seed}: not complete; see {scene.log.read_text()[-2000:]}")
    assert scene.stop_daemon() == 0
    held = scene.held()
    cells = sum(len(times) for times, _ in held.values())
    assert cells > 1000
    wait_for(lambda: consumer.cells == held, 60, f"seed {seed}: the consumer differs; see {scene.sink_log(KAFKA).read_text()[-2000:]}")
    assert scene.consumed() == held, f"seed {seed}: a new consumer differs"
    fold = consumer.stop()
    assert fold.malformed == 0
    assert scene.stop_sink(KAFKA) == 0
    sent = len(messages(server.address, scene.topic_name))
    return f"{lost} files lost, {sent} messages, {fold.outdated} outdated; {cells} cells equal in the files and in two consumers"


def _kill(scene: TopicScene, server: KafkaServer, victim: str, chance: random.Random) -> None:
    if victim == "sink":
        scene.kill_sink(KAFKA)
        scene.start_sink(KAFKA)
    elif victim == "writer":
        # Its supervisor starts it again.
        wait_for(lambda: scene.kill("writer"), 30, f"the writer does not run; see {scene.log.read_text()[-2000:]}")
    else:
        server.signal(signal.SIGKILL)
        time.sleep(chance.random())
        server.start()


def _lose_a_file(scene: TopicScene, chance: random.Random) -> int:
    """Remove a file: its windows are collected again."""
    files = scene.files()
    if files:
        chance.choice(files).unlink(missing_ok=True)
    return bool(files)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=None)
    wanted = parser.parse_args()
    seed = random.randrange(10**6) if wanted.seed is None else wanted.seed
    with KafkaServer() as server:
        print(run(server, "kills", wanted.kills, seed))


if __name__ == "__main__":
    main()
