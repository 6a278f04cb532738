"""The sources of a simulated site: how to start each, its configuration in the daemon, and its expected cells."""

from __future__ import annotations

import json
import os
import random
import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokiod.simulator.elastic.expected import CollectdAnswers
from tokiod.simulator.esnet.rates import EsnetAnswers
from tokiod.simulator.fake_commands import address
from tokiod.simulator.gpfs import GpfsAnswers
from tokiod.simulator.jobs.work import SERVERS, Work
from tokiod.simulator.lmt.expected import Answers
from tokiod.simulator.lustre import MOUNTS, Lustre, LustreAnswers
from tokiod.simulator.nodes import METRICS, NodeAnswers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from tokiod.simulator.expected import Expected
    from tokiod.simulator.site import Site
    from tokiod.window import Window


@dataclass(frozen=True, slots=True)
class Source:
    """One source of a simulated site.

    config, arguments: texts with {directory} and {port} in them, for the daemon and for `python -m tokiod.simulator`; and in config with
    the values of told(). replayable: all of the past can be queried, so all of it must be stored in the end.
    fills_table: it fills the job table, not a file; answers are not used.
    retention: seconds of the past that it has at most. is_patchy: cells may be missing in what is stored, never wrong.
    shown: a dataset to look at; ready: whether it can be asked, by directory and port; answers: what its system's files hold, by site
    and stored windows.
    """

    name: str
    system: str
    shown: str
    config: str
    arguments: tuple[str, ...]
    ready: Callable[[Path, int], bool]
    answers: Callable[[Site, Iterable[Window]], Expected]
    replayable: bool = True
    fills_table: bool = False
    retention: int = 10**9
    is_patchy: bool = False


def _database_exists(directory: Path, _port: int) -> bool:
    return (directory / "lmt.sqlite3").exists()


def _listens(_directory: Path, port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def _has_keys(directory: Path, _port: int) -> bool:
    return (directory / "keys" / "clients" / "compute.key").exists()


def _programs(*names: str) -> Callable[[Path, int], bool]:
    def answer(directory: Path, _port: int) -> bool:
        place = directory / "bin"
        with socket.socket(socket.AF_UNIX) as client:
            answers = client.connect_ex(str(address(place, names[0]))) == 0
        return answers and all(os.access(place / name, os.X_OK) for name in names)

    return answer


LMT = Source(
    name="demo-lmt",
    system="demo",
    shown="datatargets/readbytes",
    config="""\
kind = "lmt"
url = "sqlite://{directory}/lmt.sqlite3"
settle = "5s"
""",
    arguments=("lmt", "--database", "{directory}/lmt.sqlite3"),
    ready=_database_exists,
    answers=Answers,
)

COLLECTD = Source(
    name="demo-collectd",
    system="bb",
    shown="datatargets/readrates",
    config="""\
kind = "collectd_es"
url = "http://127.0.0.1:{port}"
index = "cori-collectd-*"
host_prefix = "bb"
device_prefix = "nvme"
settle = "30s"
""",
    arguments=("collectd", "--listen", "127.0.0.1:{port}"),
    ready=_listens,
    answers=CollectdAnswers,
)


ESNET = Source(
    name="demo-esnet",
    system="net",
    shown="datatargets/readrates",
    config="""\
kind = "esnet_snmp"
url = "http://127.0.0.1:{port}/snmp/west"
interfaces = {interfaces}
rate = 100
settle = "60s"
""",
    arguments=("esnet", "--listen", "127.0.0.1:{port}"),
    ready=_listens,
    answers=EsnetAnswers,
)

MMPERFMON = Source(
    name="demo-gpfs",
    system="gpfs",
    shown="datatargets/readbytes",
    config="""\
kind = "mmperfmon"
command = ["{directory}/bin/mmperfmon", "query"]
lun_map = ['na\\d+md=mdtarget', '.*=datatarget']
server_map = ['md\\d=mdserver']
run_timeout = "{command_timeout}s"
settle = "120s"
""",
    arguments=("mmperfmon", "--bin", "{directory}/bin"),
    ready=_programs("mmperfmon"),
    answers=GpfsAnswers,
)

LUSTRE = Source(
    name="demo-lustre",
    system="lustre",
    shown="fullness/bytes",
    config="""\
kind = "lustre"
mounts = {mounts}
lfs = ["{directory}/bin/lfs"]
lctl = ["{directory}/bin/lctl"]
command_timeout = "{command_timeout}s"
homes = {homes}
""",
    arguments=("lustre", "--bin", "{directory}/bin"),
    ready=_programs("lfs", "lctl"),
    answers=LustreAnswers,
    replayable=False,
)

JOBS = Source(
    name="demo-jobs",
    system="demo",
    shown="jobs/operations",
    config="""\
kind = "lustre_jobstats"
servers = {servers}
lctl = ["{directory}/bin/lctl-jobs", "{{server}}"]
jobid_name = ["%j:%u:%H", "%e.%u"]
cleanup_interval = "{cleanup_interval}s"
command_timeout = "{command_timeout}s"
""",
    arguments=("jobs", "--bin", "{directory}/bin"),
    ready=_programs("lctl-jobs"),
    answers=Answers,
    replayable=False,
    fills_table=True,
)

NODES = Source(
    name="demo-nodes",
    system="demo.nodes",
    shown="nodes/cpu_user",
    config="""\
kind = "nodes"
metrics = {node_metrics}
recount = ["2m", "5m", "15m", "40m"]

[hub]
endpoint = "tcp://127.0.0.1:{port}"
secret_key_file = "{directory}/keys/hub.key_secret"
clients = "{directory}/keys/clients"
classes = {{ compute = ["nid*"] }}

""",
    arguments=("nodes", "--keys", "{directory}/keys", "--hub", "tcp://127.0.0.1:{port}"),
    ready=_has_keys,
    answers=NodeAnswers,
    replayable=False,
    retention=3600,
    is_patchy=True,
)
"""Its agents answer the hub of the daemon itself. A busy machine delays some answers: they are asked again later."""

SOURCES = (LMT, COLLECTD, ESNET, MMPERFMON, LUSTRE)
"""The sources of the demo and the torture test that fill files of days."""
ALL = (*SOURCES, JOBS)
"""With that of the job table."""


def told(site: Site, command_timeout: int) -> dict[str, str]:
    """Return the values of a site for the configuration templates. command_timeout: real seconds that each command may take."""
    homes = ", ".join(f'"{target}" = "{nid}"' for target, nid in Lustre(site).homes().items())
    return {
        "interfaces": str(list(site.interface_names)),
        "mounts": str(list(MOUNTS)),
        "homes": f"{{ {homes} }}",
        "command_timeout": str(command_timeout),
        "servers": json.dumps(SERVERS),
        "cleanup_interval": str(Work(site).cleanup),
        "node_metrics": json.dumps([metric.name for metric in METRICS]),
    }


def accepts(address: tuple[str, int]) -> bool:
    """Return whether a process listens on an address."""
    with socket.socket() as client:
        client.settimeout(1)
        return client.connect_ex(address) == 0


def free_port() -> int:
    """Return an unused port, of those that the kernel gives to no client: a server that restarts finds it unused again."""
    for port in random.SystemRandom().sample(range(10_000, 32_768), 100):
        with socket.socket() as listener, suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port
    raise OSError("no port below 32768 is unused")
