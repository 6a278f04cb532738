"""A [[source]] with `watch`: its keys are those of every source, and the options that `tokioctl archive KIND` has."""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar, cast

import msgspec

from tokiod.collector import SavedOptions, SourceConfig
from tokiod.units import Duration


class Watched(SourceConfig, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """A folder that files of a kind are put into. Windows, settle and retention mean nothing to it: a file is collected whole, once.

    watch: the folder; scan: how often everything in it is looked at, because inotify sees neither what happens on a network file
    system nor everything when very much happens at once.
    """

    polled: ClassVar[bool] = False
    of_files: ClassVar[type[SavedOptions]] = SavedOptions

    watch: str
    scan: Duration = Duration(300)

    @property
    def options(self) -> SavedOptions:
        """How its files are read."""
        return self.of_files(**{field.name: getattr(self, field.name) for field in msgspec.structs.fields(self.of_files)})

    @property
    def step(self) -> int:
        """Seconds between the rows of the files' datasets."""
        return self.options.step

    def datasets(self) -> frozenset[str]:
        """Return the names of what the files can fill."""
        return self.options.datasets()

    def faults(self) -> list[str]:
        """Return what is wrong with the folder and the options."""
        faults = [] if self.watch.startswith("/") else [f"watch: expected an absolute path, got {self.watch!r}"]
        if self.scan <= 0:
            faults.append("scan: must be longer than nothing")
        return [*faults, *self.options.faults()]


@lru_cache
def watched(saved: type[SavedOptions]) -> type[Watched]:
    """Return the stanza of watched folders of a kind, whose Saved is given."""
    own = [
        (field.name, field.type) if field.required else (field.name, field.type, msgspec.field(default=field.default))
        for field in msgspec.structs.fields(saved)
    ]
    made = msgspec.defstruct(
        "Watched",
        own,
        bases=(Watched,),
        namespace={"of_files": saved, "__doc__": Watched.__doc__},
        module=saved.__module__,
        kw_only=True,
        frozen=True,
        forbid_unknown_fields=True,
    )
    return cast("type[Watched]", made)
