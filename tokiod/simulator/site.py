"""The simulated site: its components, time zone and seed. They determine everything else."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import msgspec
import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

STEP = 5
"""Seconds between two samples: LMT's own interval."""

OPERATIONS = {
    "open": 1, "close": 2, "mknod": 3, "link": 4, "unlink": 5, "mkdir": 6, "rmdir": 7, "rename": 8, "getxattr": 9, "process_config": 19,
    "connect": 23, "reconnect": 24, "disconnect": 25, "statfs": 26, "create": 33, "destroy": 34, "setattr": 35, "getattr": 37,
    "llog_init": 67, "notify": 72, "quotactl": 75,
}  # fmt: skip
"""The operations that LMT 3 records for each MDT, and their numbers in OPERATION_INFO."""


@dataclass(frozen=True, slots=True)
class Site:
    """File systems, a burst buffer and a network under load.

    epoch: UTC epoch seconds of the first sample ever taken, a multiple of STEP; step k is at epoch + k * STEP.
    OST j belongs to OSS j % osss; two MDTs share an MDS.
    growth: seconds after the epoch at which the last OST is first seen; None: from the start.
    trouble: whether samples come late, counters fall, servers go away (see faults.py).
    interfaces: of the routers that lead to the site's outside, two to a router.
    nsds, nsd_servers: GPFS's disks and the servers that they hang on; the first server holds metadata, on disks of its own.
    moment: seconds for which what Lustre's commands print stays as it is: the window of who asks them.
    acts: steps of a moment in which jobs do something, of which LMT counts the sums; with 1, each poll in a moment sees all that they do
    in it. 0: LMT's load and that of jobs are drawn apart, as an archive of 0.1.0 has them, and jobs act four times in a moment.
    failing: whether, with trouble, ESnet's service and the programs fail now and then, too.
    hosts, devices, cores: the burst buffer's nodes, and the NVMe devices and CPU cores of each; `growth` holds for the last node too.
    late: largest delay in seconds after which a document can be found.
    """

    epoch: int
    seed: int = 1
    timezone: str = "America/Los_Angeles"
    filesystem: str = "snx1"
    osts: int = 24
    osss: int = 24
    mdts: int = 2
    trouble: bool = True
    growth: int | None = None
    hosts: int = 16
    devices: int = 4
    cores: int = 8
    late: int = 25
    interfaces: int = 4
    nsds: int = 6
    nsd_servers: int = 3
    moment: int = 60
    acts: int = 0
    failing: bool = True

    def __post_init__(self) -> None:
        if self.epoch % STEP:
            raise ValueError(f"epoch {self.epoch} is not a multiple of {STEP} s")
        if min(self.osts, self.osss, self.mdts) < 1:
            raise ValueError("a site has at least one OST, one OSS and one MDT")
        if min(self.hosts, self.devices, self.cores) < 1:
            raise ValueError("a burst buffer has at least one host, one device and one core")
        if self.interfaces < 1:
            raise ValueError("a site has at least one interface")
        if min(self.nsds, self.nsd_servers) < 2 or self.nsds < self.nsd_servers:  # noqa: PLR2004 - one for metadata, one for data
            raise ValueError("GPFS has at least two servers, one for metadata and one for data, and a disk for each")
        if self.moment < 1 or 3600 % self.moment:
            raise ValueError(f"moment is {self.moment} s: an hour has a whole number of moments")
        if self.late < 1:
            raise ValueError(f"late is {self.late} s: documents are found 1 s after their time at the earliest")
        if self.seed < 0:
            raise ValueError(f"seed {self.seed} is negative")
        ZoneInfo(self.timezone)

    @property
    def ost_names(self) -> tuple[str, ...]:
        """All OSTs, including one that appears later."""
        return tuple(f"{self.filesystem}-OST{j:04x}" for j in range(self.osts))

    @property
    def oss_names(self) -> tuple[str, ...]:
        """Host names of the object storage servers."""
        return tuple(f"{self.filesystem}n{j + 100:03d}" for j in range(self.osss))

    @property
    def mdt_names(self) -> tuple[str, ...]:
        """All MDTs."""
        return tuple(f"{self.filesystem}-MDT{j:04x}" for j in range(self.mdts))

    @property
    def mds_names(self) -> tuple[str, ...]:
        """Host names of the metadata servers."""
        return tuple(f"{self.filesystem}n{j:03d}" for j in range((self.mdts + 1) // 2))

    @property
    def host_names(self) -> tuple[str, ...]:
        """All nodes of the burst buffer."""
        return tuple(f"bb{j + 1}" for j in range(self.hosts))

    @property
    def device_names(self) -> tuple[str, ...]:
        """The devices of each node of the burst buffer."""
        return tuple(f"nvme{j}n1" for j in range(self.devices))

    @property
    def interface_names(self) -> tuple[str, ...]:
        """The interfaces, ROUTER:IFNAME, with names of ESnet and of a vendor; the latter hold characters that URLs must escape."""
        return tuple(
            f"{self.filesystem}-cr{1 + j // 2}:" + (f"xe-{j}/0/1" if j % 2 else f"to_site_ip-{j}_v4") for j in range(self.interfaces)
        )

    @property
    def nsd_server_names(self) -> tuple[str, ...]:
        """The servers of GPFS's disks, the one for metadata first."""
        return tuple(f"{'md' if j == 0 else 'nsd'}{j:02d}.{self.filesystem}.example" for j in range(self.nsd_servers))

    @property
    def nsd_names(self) -> tuple[str, ...]:
        """GPFS's disks; server j % nsd_servers serves disk j."""
        return tuple(f"na{j:02d}md" if j % self.nsd_servers == 0 else f"ddn{j:02d}dt" for j in range(self.nsds))

    @property
    def oss_of_ost(self) -> NDArray[np.intp]:
        """The OSS of each OST."""
        return np.arange(self.osts) % self.osss

    @property
    def mds_of_mdt(self) -> NDArray[np.intp]:
        """The MDS of each MDT."""
        return np.arange(self.mdts) // 2

    @property
    def appears(self) -> NDArray[np.int64]:
        """The step at which each OST appears."""
        steps = np.zeros(self.osts, np.int64)
        steps[-1] = 0 if self.growth is None else -(-self.growth // STEP)
        return steps

    def step(self, time: float) -> int:
        """Return the step at an epoch second; negative before the site's epoch."""
        return int((time - self.epoch) // STEP)

    @property
    def fingerprint(self) -> int:
        """A 31-bit number that identifies the site."""
        return zlib.crc32(msgspec.json.encode(self)) >> 1

    def save(self, path: Path) -> None:
        """Write as JSON."""
        path.write_bytes(msgspec.json.encode(self))

    @classmethod
    def read(cls, path: Path) -> Site:
        """Read what save() wrote; raises msgspec.DecodeError or ValidationError for anything else."""
        return msgspec.json.decode(path.read_bytes(), type=cls)
