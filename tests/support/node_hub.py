"""A hub with real sockets and keys in a thread of this process, for agents that run elsewhere."""

import asyncio
import threading

from keyed import Keyring

from collectors.nodes.collector import Nodes
from tokiod.clock import SystemClock
from tokiod.collector import Site
from tokiod.config import load as configuration
from tokiod.hub.process import HubProcess
from tokiod.runtime.sd_notify import Notifier
from tokiod.simulator.sources import free_port
from tokiod.window import Calendar, Window

CONFIG = """\
timezone = "UTC"
secrets = "keys"
[archive]
path = "{directory}/tts/%Y-%m-%d/{{system}}.hdf5"
[bus]
endpoint = "ipc://{directory}/run/bus"
[hub]
endpoint = "tcp://127.0.0.1:{port}"
secret_key_file = "server.key_secret"
clients = "clients"
classes = {{ compute = ["nid*"] }}
gather = "0s"
[[source]]
name = "nodes"
kind = "nodes"
system = "cluster.nodes"
"""


class HubOutside:
    """nodes: those that greeted, by name."""

    def __init__(self, directory):
        self.ring = Keyring(directory / "keys")
        self.ring.allowed("compute")
        self.port = free_port()
        path = directory / "tokiod.toml"
        path.write_text(CONFIG.format(directory=directory, port=self.port))
        (directory / "run").mkdir(mode=0o700)
        self.config, self._stopping = configuration.load(path), threading.Event()
        self._process = HubProcess(lambda: configuration.load(path), SystemClock(), Notifier())
        self._thread = threading.Thread(target=self._process.serve, args=(self._stopping.is_set, _Never()))
        self._thread.start()

    @property
    def nodes(self):
        return dict(self._process.hub.nodes.by_name)

    def collect(self, start):
        """Return the WindowData of a minute."""

        async def run():
            collector = Nodes(self.config.source[0], Site(Calendar("UTC"), SystemClock(), hub=self.config.hub_inner))
            try:
                return await asyncio.wait_for(collector.collect(Window(start, start + 60)), 90)
            finally:
                await collector.close()

        return asyncio.run(run())

    def close(self):
        self._stopping.set()
        self._thread.join()
        self._process.close()


class _Never:
    def __call__(self):
        return False

    def clear(self):
        pass
