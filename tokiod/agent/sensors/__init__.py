"""The sensors: one module for each source of figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokiod.agent.job_patterns import site_forms
from tokiod.agent.sensors.cpu import Cpu
from tokiod.agent.sensors.disk import Disk
from tokiod.agent.sensors.hwmon import Hwmon
from tokiod.agent.sensors.infiniband import Infiniband
from tokiod.agent.sensors.ipmi import Ipmi
from tokiod.agent.sensors.jobs import Jobs
from tokiod.agent.sensors.load import Load
from tokiod.agent.sensors.lustre_client import LustreClient
from tokiod.agent.sensors.lustre_jobs import LustreJobs
from tokiod.agent.sensors.memory import Memory
from tokiod.agent.sensors.network import Network
from tokiod.agent.sensors.nvidia import Nvidia
from tokiod.agent.sensors.paging import Paging
from tokiod.agent.sensors.perf import Perf
from tokiod.agent.sensors.rapl import Rapl

if TYPE_CHECKING:
    from collections.abc import Collection

    from tokiod.agent.sensor import Sensor
    from tokiod.agent.settings import Settings
    from tokiod.agent.tree import Tree

SENSORS: tuple[type[Sensor], ...] = (
    Cpu, Load, Memory, Paging, Disk, Network, Infiniband, Rapl, Hwmon, LustreClient, Nvidia, Ipmi, Perf, Jobs, LustreJobs,
)  # fmt: skip
"""All of them, in the order of a report."""


def sensors_of(tree: Tree, settings: Settings | None, without: Collection[str] = ()) -> list[Sensor]:
    """Return the sensors of a node, by its settings if it has any. without: names of further ones that do not run."""
    left_out = {*without, *(settings.without if settings else ())}
    perf: dict[type[Sensor], Sensor] = {
        Perf: Perf(tree, settings.perf_node if settings else ()),
        Jobs: Jobs(tree, settings.perf_jobs, site_forms(settings.job_cgroups)) if settings else Jobs(tree),
    }
    return [perf[sensor] if sensor in perf else sensor(tree) for sensor in SENSORS if sensor.name not in left_out]
