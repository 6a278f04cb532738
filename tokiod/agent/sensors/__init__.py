"""The sensors: one module for each source of figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from tokiod.agent.sensors.rapl import Rapl

if TYPE_CHECKING:
    from tokiod.agent.sensor import Sensor

SENSORS: tuple[type[Sensor], ...] = (
    Cpu, Load, Memory, Paging, Disk, Network, Infiniband, Rapl, Hwmon, LustreClient, Nvidia, Ipmi, Jobs, LustreJobs,
)  # fmt: skip
"""All of them, in the order of a report."""
