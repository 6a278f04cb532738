"""Clients without a key at every port of a daemon that archives a site: all other clients must stay connected.

    unknown_clients.py [--minutes 5] [--rate 10000] [--directory DIR]

The site has a source on another host, agents of compute nodes, and a subscriber with a key. RATE connections a minute come to each of the
three ports: scans, other protocols, handshakes that stop at each step, frames that are almost complete. They come from addresses of their
own, and stay for as long as the daemon lets them, at most six seconds. At the end the same processes must run, with the same connections
of the host, the agents and the subscriber; no message of the feed may be missing, no window late, no process above the memory that
docs/security.md states, and no cell different. Prints one line; exits 1 if anything of that is not so.
"""

from __future__ import annotations

import argparse
import resource
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from contextlib import suppress
from itertools import count, cycle
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.keyed import Keyring
from tokiod.agent.wire import MAX_FRAME_BYTES
from tokiod.clock import SimulatedClock
from tokiod.errors import TokiodError
from tokiod.feed_proxy import process as feed
from tokiod.hub import process as hub
from tokiod.polling.hosts import relay
from tokiod.runtime.process_setup import python_command
from tokiod.simulator.scene import Scene, wait_for
from tokiod.simulator.site import Site
from tokiod.simulator.sources import LMT, NODES, free_port
from tokiod.subscribe.subscriber import Gap, Subscriber, Update
from tokiod.supervisor.control_socket import Ping, ask

if TYPE_CHECKING:
    from collections.abc import Callable

NOON = 1_517_184_000 + 12 * 3600
RATE = 20.0
HOST = "zone-b"
GREETING = b"\xff" + b"\0" * 8 + b"\x7f\x03\0"
CURVE = GREETING + b"CURVE" + b"\0" * 47
FIRST_BYTES = (
    b"",
    b"\xff",
    b"GET / HTTP/1.0\r\n\r\n" * 5,
    GREETING + b"NULL" + b"\0" * 48,
    CURVE,
    CURVE + b"\x04\xc8\x05HELLO" + bytes(194),
    CURVE + struct.pack(">BQ", 6, MAX_FRAME_BYTES - 100) + bytes(MAX_FRAME_BYTES - 200),
    b"\xff" * 500,
)
STAY_SECONDS = 6.0
ADDRESSES = 8
"""127.0.0.2 and so on. Those who notice nothing are at 127.0.0.1."""
QUIET_SECONDS = 20.0
SLACK_SECONDS = 5.0
"""Real seconds by which windows may be later than in the quiet time: the clients have their processor time from the same machine."""
MIB = 1 << 20
ROOM_MIB = 64
"""By which the other processes may grow meanwhile: they archive."""
LIMITS_MIB = {"feed": feed.MAX_RESIDENT_BYTES // MIB, "hub": hub.MAX_RESIDENT_BYTES // MIB, "relay": relay.MAX_RESIDENT_BYTES // MIB}


def visit(ports: list[int], rate: float, seconds: float) -> None:
    """Make connections to each port. rate: per minute. Prints how many were made."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    open_ones: deque[tuple[float, socket.socket]] = deque()
    said, begun, made = cycle(FIRST_BYTES), time.monotonic(), 0
    for number in count():
        now = time.monotonic()
        if now - begun >= seconds:
            break
        while open_ones and now - open_ones[0][0] > STAY_SECONDS:
            open_ones.popleft()[1].close()
        time.sleep(max(0.0, number * 60 / rate - (now - begun)))
        data = next(said)
        for port in ports:
            client = socket.socket()
            client.settimeout(1.0)
            with suppress(OSError):
                client.bind((f"127.0.0.{2 + number % ADDRESSES}", 0))
                client.connect(("127.0.0.1", port))
                made += 1
                client.setblocking(False)
                client.send(data)
            open_ones.append((now, client))
    print(made)


class Play:
    """The site with its ports, the process of the other host, and the subscriber."""

    def __init__(self, directory: Path) -> None:
        self.clock = SimulatedClock(float(NOON), time.time(), RATE)
        site = Site(epoch=NOON - 300, timezone="UTC", osts=24, osss=4, mdts=1)
        self.scene = Scene(directory, site, self.clock, retention=4 * 3600, sources=(LMT, NODES))
        self.ports = {"feed": free_port(), "hub": free_port(), "relay": free_port()}
        self.scene.ports[NODES.name] = self.ports["hub"]
        self.keys = Keyring(directory / "own")
        self.holes = self.messages = 0
        self._host: subprocess.Popen[bytes] | None = None
        self._is_over = False

    def begin(self) -> None:
        """Start all, and wait until everybody is connected and nothing is late."""
        self._configure()
        self.scene.start_simulator()
        self.scene.start_daemon()
        with self.scene.log.open("ab") as log:
            words = ("collectors", "--host", HOST, "--config", str(self.scene.config_path), "--clock", str(self.clock))
            self._host = subprocess.Popen(python_command("tokiod.cli.tokiod", *words), stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self._wait(lambda: ask(self.scene.config.control, Ping(), 5).ready, 120, "not ready")
        threading.Thread(target=self._follow, daemon=True).start()
        self._wait(lambda: self.lag() < SLACK_SECONDS and self.messages > 0, 180, "does not catch up")
        self._wait(lambda: bool(self.friends("hub") and self.friends("relay")), 120, "agents and host are not connected")

    def _configure(self) -> None:
        self.scene.prepare()
        (self.keys.directory / "hosts").mkdir()
        here = socket.gethostname()
        for name in (here, HOST):
            self.keys.made(name)
            (self.keys.directory / "hosts" / f"{name}.key").write_bytes((self.keys.directory / f"{name}.key").read_bytes())
        self._friend = self.keys.allowed("friend")
        access = 'secret_key_file = "server.key_secret"\nclients = "clients"'
        text = self.scene.config_path.read_text()
        text = text.replace(f'"ipc://{self.scene.directory}/feed"', f'"tcp://127.0.0.1:{self.ports["feed"]}"\n{access}')
        text += f'[[host]]\nname = "{here}"\nendpoint = "tcp://127.0.0.1:{self.ports["relay"]}"\n'
        text += f'[[host]]\nname = "{HOST}"\nsources = ["{LMT.name}"]\n'
        self.scene.config_path.write_text(f'secrets = "own"\n{text}')

    def _follow(self) -> None:
        for event in Subscriber(f"tcp://127.0.0.1:{self.ports['feed']}", keys=self._friend):
            match event:
                case Update():
                    self.messages += 1
                case Gap(since=int()):
                    self.holes += 1
            if self._is_over:
                return

    def lag(self) -> float:
        """Return the age of the newest stored window in real seconds."""
        stored = self.scene.stored(LMT)
        return (self.clock.time() - stored[-1].end) / RATE if stored else float("inf")

    def friends(self, name: str) -> frozenset[int]:
        """Return the ports of those at 127.0.0.1 that are connected to a port of the daemon."""
        here, found = "0100007F", set()
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            _, local, remote, state, *_ = line.split()
            if local == f"{here}:{self.ports[name]:04X}" and remote.startswith(here) and state == "01":
                found.add(int(remote.rpartition(":")[2], 16))
        return frozenset(found)

    def resident(self) -> dict[str, int]:
        """Return the MiB of each process."""
        pids = {name: self.scene.pid(name) for name in (*LIMITS_MIB, "writer", "collectors")}
        return {name: int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 // MIB for name, pid in pids.items()}

    def watch(self, seconds: float) -> tuple[float, dict[str, int]]:
        """Return the largest lag of a time, and the most that each process had resident."""
        end, lag, most = time.monotonic() + seconds, 0.0, self.resident()
        while time.monotonic() < end:
            lag = max(lag, self.lag())
            most = {name: max(most[name], now) for name, now in self.resident().items()}
            time.sleep(0.2)
        return lag, most

    def run(self, rate: float, seconds: float) -> tuple[str, bool]:
        """Have the clients come; return a line, and whether no other client, process or cell was disturbed."""
        quiet, before = self.watch(QUIET_SECONDS)
        processes, friends = self.scene.processes(), {name: self.friends(name) for name in self.ports}
        words = (__file__, "--visit", *map(str, self.ports.values()), "--rate", str(rate), "--minutes", str(seconds / 60))
        with subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True) as clients:
            late, most = self.watch(seconds)
            made = int(clients.communicate(timeout=60)[0])
        kept = {name: friends[name] == self.friends(name) for name in self.ports}
        same = processes == self.scene.processes()
        self._wait(lambda: self.lag() < SLACK_SECONDS, 60, "does not catch up")
        log = self.scene.log.read_text()
        ended = [event for event in ("overloaded", "host.lost") if event in log]
        self.scene.stop_daemon()
        compared = self.scene.compare()
        grown = [name for name in ("writer", "collectors") if most[name] - before[name] > ROOM_MIB]
        beyond = [name for name, limit in LIMITS_MIB.items() if most[name] > limit]
        is_well = all(kept.values()) and same and not (ended or grown or beyond or self.holes) and compared.equal
        is_well = is_well and compared.filled > 0 and late <= quiet + SLACK_SECONDS
        others = sum(map(len, friends.values()))
        lost = ", ".join(name for name, is_kept in kept.items() if not is_kept)
        sizes = ", ".join(f"{name} {before[name]} to {most[name]}" for name in most)
        line = (
            f"{made} connections to {len(self.ports)} ports in {seconds:.0f} s; {others} others "
            f"{f'lost theirs at {lost}' if lost else 'kept theirs'}, {self.holes} messages missed of {self.messages}; windows late by "
            f"{quiet:.1f} s before and {late:.1f} s then; MiB at most: {sizes}; processes {'the same' if same else 'restarted'}"
            f"{''.join(f', {event}' for event in ended)}; {compared.filled} cells, {'0' if compared.equal else compared.counts} different"
        )
        return line, is_well

    def _wait(self, condition: Callable[[], bool], seconds: float, message: str) -> None:
        def holds() -> bool:
            with suppress(OSError, TokiodError):
                return condition()
            return False

        wait_for(holds, seconds, f"{message}; see {self.scene.log}")

    def close(self) -> None:
        """End all."""
        self._is_over = True
        if self._host is not None:
            self._host.terminate()
            self._host.wait(30)
        self.scene.close()


def main() -> int:
    """Run the script."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--rate", type=float, default=10_000)
    parser.add_argument("--visit", type=int, nargs="+", metavar="PORT", help="be these clients")
    options = parser.parse_args()
    if options.visit:
        visit(options.visit, options.rate, options.minutes * 60)
        return 0
    with tempfile.TemporaryDirectory(prefix="unknown-") as directory:
        play = Play(Path(directory))
        try:
            play.begin()
            line, is_well = play.run(options.rate, options.minutes * 60)
        except TokiodError as error:
            print(play.scene.log.read_text()[-3000:], file=sys.stderr)
            line, is_well = str(error), False
        finally:
            play.close()
    print(line)
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
