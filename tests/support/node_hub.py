"""A hub with real sockets and keys in a thread of this process, for agents that run elsewhere."""

import asyncio
import json
import threading

from keyed import Keyring

from collectors.nodes.collector import Nodes
from tokiod.clock import SystemClock
from tokiod.collector import Site
from tokiod.config import load as configuration
from tokiod.hub.process import HubProcess
from tokiod.runtime.service import Service
from tokiod.simulator.sources import free_port
from tokiod.window import Calendar, Window

COMPUTE = {"compute": ["nid*"]}
"""Classes of nodes, and the names that they may have."""
CONFIG = """\
timezone = "UTC"
secrets = "keys"
[archive]
path = "{directory}/tts/%Y-%m-%d/{{system}}.hdf5"
[bus]
endpoint = "ipc://{directory}/run/bus"
{feed}
[hub]
endpoint = "tcp://127.0.0.1:{port}"
secret_key_file = "server.key_secret"
clients = "clients"
classes = {{ {classes} }}
gather = "{gather}s"
{hub}
[[source]]
name = "nodes"
kind = "nodes"
system = "cluster.nodes"
{source}
"""


def configured(directory, port, *, classes=COMPUTE, gather=0, metrics=(), feed="", hub="", source=""):
    """Write the configuration of a site with a hub, and return its path. feed, hub, source: further lines; metrics: names."""
    if metrics:
        source += f"\nmetrics = {json.dumps(metrics)}"
    (directory / "run").mkdir(mode=0o700)
    of_classes = ", ".join(f"{name} = {json.dumps(nodes)}" for name, nodes in classes.items())
    path = directory / "tokiod.toml"
    lines = {"feed": feed, "hub": hub, "source": source}
    path.write_text(CONFIG.format(directory=directory, port=port, classes=of_classes, gather=gather, **lines))
    return path


class HubOutside:
    """config, process, service: of the hub; nodes: those that greeted, by name."""

    def __init__(self, directory, classes=COMPUTE, metrics=()):
        self.ring = Keyring(directory / "keys")
        for name in classes:
            self.ring.allowed(name)
        self.port = free_port()
        path = configured(directory, self.port, classes=classes, metrics=metrics)
        self.service = Service(lambda: configuration.load(path))
        self.config, self.process = self.service.load(), HubProcess(self.service, SystemClock())
        # Its limit is for a process of its own, and this one has run many tests.
        self.process._memory.nbytes = lambda: 0
        self._thread = threading.Thread(target=self.process.serve)
        self._thread.start()

    @property
    def nodes(self):
        return dict(self.process.hub.nodes.by_name)

    def collect(self, start):
        """Return the WindowData of a minute."""
        return self.asked(Window(start, start + 60))[0]

    def asked(self, window):
        """Return the WindowData of a window, and how many nodes have it by now."""

        async def run():
            collector = Nodes(self.config.source[0], Site(Calendar("UTC"), SystemClock(), hub=self.config.hub_inner))
            try:
                return await asyncio.wait_for(collector.collect(window), 90), await collector.count(window)
            finally:
                await collector.close()

        return asyncio.run(run())

    def close(self):
        self.service.request_stop()
        self._thread.join()
        self.process.close()
