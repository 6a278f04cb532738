"""What a [[source]] of this kind and `tokioctl archive` take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

import msgspec

from collectors.lustre.datasets import FAILOVER, FULLNESS, INODES
from tokiod.collector import SavedOptions, SourceConfig
from tokiod.option import option
from tokiod.units import Duration

if TYPE_CHECKING:
    from collections.abc import Iterator


class Config(SourceConfig, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """A Lustre file system that is mounted on this host, or on the host where the commands run."""

    selected_by: ClassVar[tuple[str, ...]] = ("mounts",)
    replayable: ClassVar[bool] = False

    mounts: Annotated[
        tuple[str, ...],
        option(
            "The mount point. Several are queried one by one, and the cells of one that does not answer are missing. One source per file "
            "system is best: then a dead one delays no other.",
            '["/global/cscratch1"]',
            values="at least one absolute path",
        ),
    ]
    lfs: Annotated[
        tuple[str, ...],
        option(
            "The command lfs, after what runs it. `lfs df` needs no privileges.",
            '["ssh", "-o", "BatchMode=yes", "login1", "lfs"]',
            values="a command without a shell",
        ),
    ] = ("lfs",)
    lctl: Annotated[
        tuple[str, ...],
        option(
            "The command lctl, after what runs it. Some versions of `lctl dl` need root.",
            '["sudo", "-n", "/usr/sbin/lctl"]',
            values="a command without a shell",
        ),
    ] = ("lctl",)
    fullness: Annotated[bool, option("Whether fullness is collected: used and total KiB of each target.")] = True
    inodes: Annotated[bool, option("Whether fullness includes used and total inodes, by `lfs df -i`.")] = True
    failover: Annotated[
        bool,
        option("Whether failover is collected: 1 where a target is served by another server than its home; OSTs per server."),
    ] = True
    homes: Annotated[
        dict[str, str],
        option(
            "The NIDs of targets' home servers. Others are learned while no server has more targets than the rest, or guessed by order.",
            '{ snx11168-OST0003 = "10.100.104.9@o2ib4" }',
        ),
    ] = msgspec.field(default_factory=dict)
    command_timeout: Annotated[
        Duration,
        option(
            "Time limit of a command; then it is killed with all processes that it started.",
            values="greater than zero, less than timeout and window",
        ),
    ] = Duration(20)

    @property
    def step(self) -> int:
        """Seconds of a window: each holds what was seen at one moment of it."""
        return int(self.window)

    def datasets(self) -> frozenset[str]:
        """Return the names of the configured datasets."""
        inodes = INODES if self.fullness and self.inodes else ()
        return frozenset((*(FULLNESS if self.fullness else ()), *inodes, *(FAILOVER if self.failover else ())))

    def faults(self) -> list[str]:
        """Return the errors of commands and time limits."""
        return list(self._faults())

    def _faults(self) -> Iterator[str]:
        if not self.mounts or not all(mount.startswith("/") for mount in self.mounts):
            yield "mounts: at least one mount point is required, each an absolute path"
        for name in ("lfs", "lctl"):
            if not all(getattr(self, name) or ("",)):
                yield f'{name}: expected a command as a list, such as ["sudo", "{name}"]'
        if not self.datasets():
            yield "fullness: must be true where failover is false, or nothing is collected"
        if not 0 < self.command_timeout < min(self.timeout, self.window):
            yield "command_timeout: must be greater than zero, and less than timeout and window"


class Saved(SavedOptions, kw_only=True, frozen=True):
    """How to read saved outputs."""

    example: ClassVar[str] = "lfs-df.txt.gz lctl-dl-t.txt.gz"

    step: Annotated[int, msgspec.Meta(ge=1, description="Seconds between rows.")] = 60
    time: Annotated[
        Annotated[int, msgspec.Meta(ge=0)] | None,
        msgspec.Meta(description="Time of plain outputs, epoch seconds.  [default: that of their files]"),
    ] = None
    filesystem: Annotated[tuple[str, ...], msgspec.Meta(description="File systems to read.  [default: all]")] = ()
    home: Annotated[tuple[str, ...], msgspec.Meta(description="TARGET=NID: the home server of a target.  [default: learned]")] = ()

    def datasets(self) -> frozenset[str]:
        """Return the datasets of both outputs."""
        return frozenset((*FULLNESS, *INODES, *FAILOVER))

    def faults(self) -> list[str]:
        """Return the errors of homes."""
        return [f"home: expected TARGET=NID, got {one!r}" for one in self.home if not all(one.partition("=")[::2])]
