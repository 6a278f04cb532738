"""Lustre, as a client of it sees it: `lfs df` and `lctl dl -t`.

df.py        what lfs df prints            dl.py      what lctl dl -t prints
homes.py     which server a target is at home on, and which targets are away
snapshots.py what was seen at one moment, and batches of such
mounted.py   the join of them over the commands; saved.py: over their saved outputs
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import msgspec

from collectors.lustre.saved import Saved, saved
from collectors.lustre.snapshots import FAILOVER, FULLNESS
from tokiod.collector import SourceConfig
from tokiod.units import Duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokiod.collector import Collector, Site

__all__ = ["Config", "Saved", "live", "saved"]


class Config(SourceConfig, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """A Lustre file system that is mounted here, or there where the commands are run.

    mounts: its mount point; several are each asked by themselves, and one that doesn't answer leaves its cells missing.
    lfs, lctl: the commands, with what runs them (sudo, ssh and a host) before them; fullness, failover: which of both is wanted.
    homes: the NID of the server that a target belongs to, where it can't be learned; command_timeout: of each command.
    """

    replayable: ClassVar[bool] = False

    mounts: tuple[str, ...]
    lfs: tuple[str, ...] = ("lfs",)
    lctl: tuple[str, ...] = ("lctl",)
    fullness: bool = True
    failover: bool = True
    homes: dict[str, str] = msgspec.field(default_factory=dict)
    command_timeout: Duration = Duration(20)

    @property
    def step(self) -> int:
        """Seconds of a window: each holds what was seen at one moment of it."""
        return int(self.window)

    def datasets(self) -> frozenset[str]:
        """Return the names of what is wanted."""
        return frozenset((*(FULLNESS if self.fullness else ()), *(FAILOVER if self.failover else ())))

    def faults(self) -> list[str]:
        """Return what is wrong with the commands and between the times."""
        return list(self._faults())

    def _faults(self) -> Iterator[str]:
        if not self.mounts or not all(mount.startswith("/") for mount in self.mounts):
            yield "mounts: name at least one mount point, each with its whole path"
        for name in ("lfs", "lctl"):
            if not all(getattr(self, name) or ("",)):
                yield f'{name}: expected a command as a list, such as ["sudo", "{name}"]'
        if not self.datasets():
            yield "fullness: must be true where failover is not, or there is nothing to do"
        if not 0 < self.command_timeout < min(self.timeout, self.window):
            yield "command_timeout: must be longer than nothing, and shorter than timeout and window"


def live(config: Config, site: Site) -> Collector:
    """Return the collector of a file system that is mounted."""
    from collectors.lustre.mounted import Lustre  # noqa: PLC0415 - saved outputs need no commands

    return Lustre(config, site)
