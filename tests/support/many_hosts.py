"""A configuration with a writer's host and other hosts, their keys, and the processes of both ends of their connections in one loop."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import asynccontextmanager, contextmanager
from functools import wraps
from typing import TYPE_CHECKING

from keyed import Keyring

from tokiod.clock import SystemClock
from tokiod.config import load as configuration
from tokiod.config.hosts import this_host
from tokiod.polling.hosts.host_process import HostProcess
from tokiod.polling.hosts.links import HostLinks
from tokiod.polling.hosts.relay import Relay
from tokiod.runtime.service import Service
from tokiod.simulator.sources import free_port

if TYPE_CHECKING:
    from pathlib import Path

KIND = """
import asyncio
import msgspec
import numpy as np
from tokiod.batch import Batch
from tokiod.collector import SourceConfig
from tokiod.errors import Fatal, NotYet, Transient
from tokiod.window_data import WindowData

class Config(SourceConfig, frozen=True):
    columns_wanted: int = 3
    prefix: str = "OST"

    @property
    def step(self):
        return 5

    def datasets(self):
        return frozenset({"datatargets/readbytes", "datatargets/writebytes"})

class Saved(msgspec.Struct):
    pass

class Counters:
    step = 5
    replayable = True
    needs_sample_at_end = True

    def __init__(self, config, site):
        self.config, self.site, self.stored, self.seen = config, site, [], []

    async def collect(self, window):
        failures = {1: Transient("down", 1_700_000_000), 2: NotYet("lags", 1_800_000_000), 3: Fatal("no right"), 4: ValueError("a bug")}
        # The second of a window's start is the failure that it is to have.
        if (error := failures.get(window.start % 5)) is not None:
            raise error
        if window.start % 3600 == 1800:
            await asyncio.sleep(3600)
        rows, width = window.seconds // 5, self.config.columns_wanted
        columns = tuple(f"{self.config.prefix}{n:04x}" for n in range(width))
        time = np.repeat(np.arange(window.start, window.end, 5), width)
        column = np.tile(np.arange(width, dtype=np.uint32), rows)
        batches = [
            Batch(name, "counter", 5, columns, time, column, time * 10 + column + place)
            for place, name in enumerate(sorted(self.config.datasets()))
        ]
        return WindowData(batches, rows, {"late": 2}, trouble="one OSS is silent")

    async def count(self, window):
        return window.seconds // 5

    def note_stored(self, window):
        self.stored.append(window)

    async def close(self):
        pass

def live(config, site):
    made.append(Counters(config, site))
    return made[-1]

def saved(inputs, options, site):
    raise NotImplementedError

made = []
"""


class ManyHosts:
    """The hosts admin (the writer's), zone-b with b-one and b-two, and zone-c with c-one."""

    def __init__(self, directory: Path, kind: str = "many_hosts", own: str = "") -> None:
        self.directory, self.kind, self.own = directory, kind, own
        self.path = directory / "tokiod.toml"
        self.port = free_port()
        self.keys = Keyring(directory / "keys")
        (directory / "keys" / "hosts").mkdir()
        (directory / "run").mkdir(0o700)
        for name in ("admin", "zone-b", "zone-c"):
            self.make_key(name)
        self.write()

    def make_key(self, name: str) -> None:
        """Make a pair of keys, in place of one that there is."""
        for suffix in ("key", "key_secret"):
            (self.directory / "keys" / f"{name}.{suffix}").unlink(missing_ok=True)
        self.keys.made(name)
        public = self.directory / "keys" / f"{name}.key"
        public.rename(self.public_key(name))

    def public_key(self, name: str) -> Path:
        """Return the file of a host's public key."""
        return self.directory / "keys" / "hosts" / f"{name}.key"

    def write(self, zone_b: str = '"b-one", "b-two"', extra: str = "", more: str = "") -> None:
        """Write the configuration. more: of zone-b's section."""
        sources = "".join(
            f'[[source]]\nname = "{name}"\nkind = "{self.kind}"\nsystem = "{name}-files"\nretention = "1h"\ntimeout = "5s"\n{self.own}'
            for name in ("a-one", "b-one", "b-two", "c-one")
        )
        self.path.write_text(
            f'timezone = "UTC"\nsecrets = "keys"\n[archive]\npath = "{self.directory}/tts/%Y-%m-%d/{{system}}.hdf5"\n'
            f'[bus]\nendpoint = "ipc://{self.directory}/run/bus"\n[feed]\nendpoint = "ipc://{self.directory}/feed"\n'
            f'[[host]]\nname = "admin"\nendpoint = "tcp://127.0.0.1:{self.port}"\n'
            f'[[host]]\nname = "zone-b"\nsources = [{zone_b}]\n{more}'
            f'[[host]]\nname = "zone-c"\nsources = ["c-one"]\n{sources}{extra}'
        )

    def load(self) -> configuration.Config:
        """Read the configuration."""
        return configuration.load(self.path)

    def links(self, clock=None) -> HostLinks:
        """Return the end of the writer's host."""
        return HostLinks(self.load(), clock or SystemClock())

    @contextmanager
    def relay(self):
        """Run the relay in a thread; yield it."""
        service = Service(self.load)
        self._relay = relay = Relay(service)
        # Its limit is for a process of its own, and this one has run many tests.
        relay._memory.nbytes = lambda: 0
        thread = threading.Thread(target=relay.serve)
        thread.start()
        try:
            yield relay, service
        finally:
            service.request_stop()
            thread.join()
            relay.close()

    def refused(self, reason: str) -> int:
        """Return how many connections the relay refused for a reason since it opened its port."""
        return 0 if self._relay.hosts is None else self._relay.hosts.refused[reason]

    def reload(self, links: HostLinks) -> None:
        """Have both processes of the writer's host read the configuration and the keys again."""
        links.configure(self.load())
        self.service.request_reload()

    def host(self, name: str, clock=None) -> HostProcess:
        """Return the process of another host."""
        return HostProcess(Service(self.load), lambda config: this_host(config.host, name, ""), clock or SystemClock(), "0.1.0")

    @asynccontextmanager
    async def running(self, *names: str, links: HostLinks | None = None, connected: bool = True):
        """Run the writer's end, its relay and the hosts; yield the first once they are connected."""
        links = links or self.links()
        with self.relay() as (relay, self.service):
            tasks = [asyncio.create_task(links.run()), *(asyncio.create_task(self.host(name).run()) for name in names)]
            try:
                await until(lambda: relay.hosts is not None)
                if connected:
                    await until(lambda: all(links.hosts[name].route for name in names))
                yield links
            finally:
                for task in reversed(tasks):
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)


def in_loop(test):
    """Run an asynchronous test in a loop of its own."""

    @wraps(test)
    def run(*arguments, **named):
        asyncio.run(test(*arguments, **named))

    return run


async def until(condition, seconds: float = 20) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)
