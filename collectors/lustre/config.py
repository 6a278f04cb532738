"""What a [[source]] of this kind, and `tokioctl archive`, may be told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

import msgspec

from collectors.lustre.datasets import FAILOVER, FULLNESS
from tokiod.collector import SavedOptions, SourceConfig
from tokiod.units import Duration

if TYPE_CHECKING:
    from collections.abc import Iterator


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


class Saved(SavedOptions, kw_only=True, frozen=True):
    """How to read saved outputs."""

    step: Annotated[int, msgspec.Meta(ge=1, description="Seconds between rows.")] = 60
    time: Annotated[
        int | None, msgspec.Meta(ge=0, description="When plain outputs were made, epoch seconds.  [default: their files' times]")
    ] = None
    filesystem: Annotated[tuple[str, ...], msgspec.Meta(description="Which file systems.  [default: all]")] = ()
    home: Annotated[tuple[str, ...], msgspec.Meta(description="TARGET=NID: the server that a target belongs to.  [default: learned]")] = ()

    def datasets(self) -> frozenset[str]:
        """Return the names of both outputs' datasets."""
        return frozenset((*FULLNESS, *FAILOVER))

    def faults(self) -> list[str]:
        """Return what is wrong with homes."""
        return [f"home: expected TARGET=NID, got {one!r}" for one in self.home if not all(one.partition("=")[::2])]
