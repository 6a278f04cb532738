"""A [[source]] with `watch`: it has the keys of every source and the options of `tokioctl archive KIND`."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

import msgspec

from tokiod.collector import SavedOptions, SourceConfig
from tokiod.config.checks import is_writable_by_others
from tokiod.units import Duration, Size

if TYPE_CHECKING:
    from collections.abc import Mapping


class Watched(SourceConfig, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """A folder into which files of a kind are put. Window, settle and retention do not apply: each file is collected whole, once.

    watch: the folder; scan: seconds between two scans of all its files, because inotify does not report changes on network file systems
    and loses events under load. empty_after: by default the folder counts as empty if none of its files was ever collected. max_size:
    bytes of a file, larger ones are rejected; max_time: seconds that reading a file may take.
    """

    polled: ClassVar[bool] = False
    of_files: ClassVar[type[SavedOptions]] = SavedOptions

    watch: str
    scan: Duration = Duration(300)
    max_size: Size = Size(256 * 2**20)
    max_time: Duration = Duration(600)

    @property
    def options(self) -> SavedOptions:
        """The options with which its files are read."""
        return self.of_files(**{field.name: getattr(self, field.name) for field in msgspec.structs.fields(self.of_files)})

    @property
    def step(self) -> int:
        """Seconds between the rows of the files' datasets."""
        return self.options.step

    def datasets(self) -> frozenset[str]:
        """Return the names of the datasets that the files can fill."""
        return self.options.datasets()

    def max_rates(self) -> Mapping[str, float]:
        """Return the largest plausible rates of the files' counters."""
        return self.options.max_rates()

    def faults(self) -> list[str]:
        """Return the errors of the folder and the options."""
        faults = [] if self.watch.startswith("/") else [f"watch: expected an absolute path, got {self.watch!r}"]
        faults += [f"{name}: must be greater than zero" for name in ("scan", "max_size", "max_time") if getattr(self, name) <= 0]
        return [*faults, *self.options.faults()]

    def warnings(self) -> list[str]:
        """Return a warning if all users can put files into the folder."""
        return [f"watch: all users can put files into {self.watch}"] if is_writable_by_others(Path(self.watch)) else []


@lru_cache
def watched(saved: type[SavedOptions]) -> type[Watched]:
    """Return the struct of a section for watched folders of a kind. saved: the options of the kind's saved files."""
    own = [
        (field.name, field.type) if field.required else (field.name, field.type, msgspec.field(default=field.default))
        for field in msgspec.structs.fields(saved)
    ]
    made = msgspec.defstruct(
        "Watched",
        own,
        bases=(Watched,),
        namespace={"of_files": saved, "units": saved.units, "__doc__": Watched.__doc__},
        module=saved.__module__,
        kw_only=True,
        frozen=True,
        forbid_unknown_fields=True,
    )
    return cast("type[Watched]", made)
