"""A [[source]] with `watch`: it has the keys of every source and the options of `tokioctl archive KIND`."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, cast

import msgspec

from tokiod.collector import SavedOptions, SourceConfig
from tokiod.config.checks import is_writable_by_others
from tokiod.option import option
from tokiod.units import Duration, Size

if TYPE_CHECKING:
    from collections.abc import Mapping


class Watched(SourceConfig, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """A folder into which files of a kind are put. Window, settle and retention do not apply: each file is collected whole, once."""

    polled: ClassVar[bool] = False
    of_files: ClassVar[type[SavedOptions]] = SavedOptions

    watch: Annotated[
        str,
        option(
            "The folder. Each file that is put into it is collected whole, once; window, settle, retention and recount do not apply.",
            '"/var/spool/tokiod/cscratch"',
            values="an absolute path",
        ),
    ]
    scan: Annotated[
        Duration,
        option(
            "Time between two scans of all files: inotify does not report changes on network file systems, and loses events under load.",
            values="greater than zero",
        ),
    ] = Duration(300)
    max_size: Annotated[Size, option("Size of a file, also after decompression; a larger one is rejected.", values="greater than zero")] = (
        Size(256 * 2**20)
    )
    max_time: Annotated[Duration, option("Time limit for reading one file.", values="greater than zero")] = Duration(600)

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
        if self.of_files.no_files:
            return [f"watch: {self.of_files.no_files}"]
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
        namespace={"of_files": saved, "units": saved.units, "tables": saved.tables, "__doc__": Watched.__doc__},
        module=saved.__module__,
        kw_only=True,
        frozen=True,
        forbid_unknown_fields=True,
    )
    return cast("type[Watched]", made)
