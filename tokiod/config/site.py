"""The section [site]: what commands that answer questions about jobs must know of the site. The daemon uses none of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import msgspec

from tokiod.config import checks
from tokiod.config.convert import Fault
from tokiod.option import option

if TYPE_CHECKING:
    from collections.abc import Iterator

KEY = "site"
_AT_ONCE = "at once: commands read it"


class SiteConfig(msgspec.Struct, kw_only=True, frozen=True):
    """Facts about a site: which paths are on which system, its names, its scheduler, and where its archive was."""

    mounts: Annotated[
        dict[str, str],
        option(
            "Which system a path is on: regular expressions of how paths begin, and the system of each. The first one that matches counts. "
            "`tokioctl job JOBID` finds the system by the job's working directory.",
            '{ "/global/cscratch1" = "cscratch" }',
            effect=_AT_ONCE,
        ),
    ] = msgspec.field(default_factory=dict)
    names: Annotated[
        dict[str, str],
        option("The names of systems in tables and pictures.", '{ cscratch = "Cori scratch" }', effect=_AT_ONCE),
    ] = msgspec.field(default_factory=dict)
    sacct: Annotated[
        tuple[str, ...],
        option(
            "Slurm's sacct: the program and the options before its own. It gets SLURM_TIME_FORMAT and TZ; through ssh, pass them on "
            "with env, or else its times are taken for those of the site's zone.",
            '["ssh", "cori", "env", "SLURM_TIME_FORMAT=%s", "sacct"]',
            effect=_AT_ONCE,
        ),
    ] = ("sacct",)
    darshan: Annotated[
        str,
        option(
            "The directory of a day's Darshan logs, with fields of strftime. `tokioctl job JOBID` adds the keys darshan_* of the job's "
            "largest log.",
            '"/global/darshanlogs/%Y/%-m/%-d"',
            values="an absolute path",
            effect=_AT_ONCE,
        ),
    ] = ""
    archives: Annotated[
        tuple[str, ...],
        option(
            "Templates of the files of days that are not at archive.path, where the archive was before. Commands read the first file that "
            "exists; the daemon fills none of them.",
            '["/old/tts/{system}/%Y-%m-%d.hdf5"]',
            values="list: absolute path with {system} and fields that differ each day",
            effect=_AT_ONCE,
        ),
    ] = ()

    def system_of(self, path: str) -> str | None:
        """Return the system that a path is on, None if no expression of `mounts` matches it."""
        return next((system for pattern, system in self.mounts.items() if re.match(pattern, path)), None)

    @property
    def systems(self) -> frozenset[str]:
        """The systems that it names."""
        return frozenset({*self.mounts.values(), *self.names})


def faults(site: SiteConfig, systems: set[str]) -> Iterator[Fault]:
    """Check the expressions, the names of systems and the templates. systems: those of all sources."""
    for pattern, system in site.mounts.items():
        try:
            re.compile(pattern)
        except re.error as error:
            yield Fault((KEY, "mounts", pattern), f"not a regular expression: {error}")
        yield from _name(system, (KEY, "mounts", pattern))
    for name in site.names:
        yield from _name(name, (KEY, "names", name))
    if site.darshan and not site.darshan.startswith("/"):
        yield Fault((KEY, "darshan"), f"expected an absolute path, got {site.darshan!r}")
    if not all(site.sacct) or not site.sacct:
        yield Fault((KEY, "sacct"), 'expected a program and its options, as in ["/usr/bin/sacct"]')
    for number, template in enumerate(site.archives):
        yield from checks.template(template, (KEY, "archives", number), systems | site.systems)


def _name(system: str, key: tuple[str, ...]) -> Iterator[Fault]:
    if not checks.is_name(system):
        yield Fault(key, f"expected letters, digits, '_', '.' and '-', a letter or digit first, got {system!r}")
