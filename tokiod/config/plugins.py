"""The kinds of sources: the packages in collectors/, and the entry points `tokiod.collectors` of other distributions.

The kinds of sinks are found in the same way: the packages in sinks/, and the entry points `tokiod.sinks`. Nothing lists the
kinds. An entry point names a module (or an object) with the same parts as a package in collectors/:

    [project.entry-points."tokiod.collectors"]
    ost_files = "tokiod_ost_files"

A kind that can't be loaded is an error for the sources, or the sinks, of that kind alone.
"""

from __future__ import annotations

import importlib
import os
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import msgspec

import collectors
import sinks
from tokiod.errors import ConfigError, nearest

if TYPE_CHECKING:
    from types import ModuleType

    from tokiod.change_sink import SinkPlugin
    from tokiod.collector import Plugin, RawSource, Site, SourceConfig


class Provider(msgspec.Struct, frozen=True):
    """What provides a kind. target: `module` or `module:attribute`; distribution: its name and version, "" for tokiod itself."""

    kind: str
    target: str
    distribution: str = ""

    def __str__(self) -> str:
        return f"distribution {self.distribution} ({self.target})" if self.distribution else f"tokiod ({self.target})"

    def load(self) -> Any:
        """Return the module or object; raises whatever its import raises."""
        module, _, attributes = self.target.partition(":")
        loaded: Any = importlib.import_module(module)
        for attribute in filter(None, attributes.split(".")):
            loaded = getattr(loaded, attribute)
        return loaded


class Family(msgspec.Struct, frozen=True):
    """What has kinds. package: whose modules are kinds, but for `others`; parts: that the module of a kind has."""

    noun: str
    package: ModuleType
    entry_points: str
    parts: tuple[str, ...]
    others: tuple[str, ...] = ()

    def kinds(self) -> list[str]:
        """Return the known kinds in alphabetical order, without importing them."""
        return sorted(self._providers())

    def load(self, kind: str) -> Any:
        """Return the plugin of a kind.

        Raises ConfigError for an unknown kind, one that several distributions provide, one that can't be imported, and one that lacks a
        part of a plugin.
        """
        known, noun = self._providers(), self.noun
        if kind not in known:
            raise ConfigError([f"unknown {noun} kind {kind!r}{_instead(kind, sorted(known))}"])
        provider, *others = known[kind]
        if others:
            raise ConfigError([f"{noun} kind {kind!r} is provided more than once, by {' and '.join(map(str, known[kind]))}: uninstall one"])
        if not _is_kind(kind):
            raise ConfigError([f"{noun} kind {kind!r} of {provider}: its name must be letters, digits and underscores"])
        try:
            plugin = provider.load()
        except Exception as error:  # a plugin is foreign code: any error of its import is reported and stops nothing else
            raise ConfigError([f"{noun} kind {kind!r} of {provider} cannot be imported: {type(error).__name__}: {error}"]) from error
        if missing := [part for part in self.parts if not hasattr(plugin, part)]:
            raise ConfigError([f"{noun} kind {kind!r} of {provider} is not a plugin: it has no {', '.join(missing)}"])
        return plugin

    def _providers(self) -> dict[str, list[Provider]]:
        """Return who provides each kind."""
        modules = tuple((entry.name, entry.stat().st_mtime_ns) for place in self.package.__path__ for entry in os.scandir(place))
        return _provided(self, modules, tuple((place, _changed(place)) for place in sys.path))

    def built_in(self) -> list[Provider]:
        """Return those of tokiod itself."""
        # pkgutil.iter_modules() would find the same, and takes half a millisecond to import.
        names = {entry.name.removesuffix(".py") for place in self.package.__path__ for entry in os.scandir(place)}
        return [Provider(name, f"{self.package.__name__}.{name}") for name in sorted(filter(_is_kind, names - {*self.others}))]


SOURCES = Family("source", collectors, "tokiod.collectors", ("Config", "Saved", "live", "saved"))
SINKS = Family("sink", sinks, "tokiod.sinks", ("Config", "sink"), others=("tts",))
"""sinks.tts is the archive, which the writer fills."""


def kinds() -> list[str]:
    """Return the known kinds of sources in alphabetical order, without importing them."""
    return SOURCES.kinds()


def load(kind: str) -> Plugin:
    """Return the plugin of a kind of source. Raises as Family.load()."""
    return cast("Plugin", SOURCES.load(kind))


def load_sink(kind: str) -> SinkPlugin:
    """Return the plugin of a kind of sink. Raises as Family.load()."""
    return cast("SinkPlugin", SINKS.load(kind))


def raw_source(config: SourceConfig, site: Site) -> RawSource:
    """Return what fetches the raw output of a source. Raises ConfigError for a kind that can't."""
    make = getattr(load(config.kind), "raw", None)
    if make is None:
        raise ConfigError([f"{config.name}: raw output of kind {config.kind!r} can't be fetched: it has no raw()"])
    return cast("RawSource", make(config, site))


def _changed(place: str) -> int:
    """Return when a directory of sys.path changed, 0 where there is none: an installation changes it."""
    try:
        return os.stat(place).st_mtime_ns  # noqa: PTH116 - a quarter of the time of pathlib's, for each source six times
    except OSError:
        return 0


# Every source of a configuration asks for its kind, and each process reads the configuration.
@lru_cache(maxsize=4)
def _provided(family: Family, modules: tuple[tuple[str, int], ...], places: tuple[tuple[str, int], ...]) -> dict[str, list[Provider]]:  # noqa: ARG001 - modules: part of the key
    """Return who provides each kind of a family, given what is in its package and in sys.path, with the times of the last changes."""
    found: dict[str, list[Provider]] = {}
    for provider in (*family.built_in(), *_from_distributions(family.entry_points, places)):
        found.setdefault(provider.kind, []).append(provider)
    return found


@lru_cache(maxsize=2)
def _from_distributions(group: str, places: tuple[tuple[str, int], ...]) -> list[Provider]:
    """Return the entry points of the distributions in the directories of sys.path, each given with the time of its last change."""
    if not any(_mentions(group, f"{path}/entry_points.txt") for place, _ in places for path in _distributions(place)):
        return []
    from importlib.metadata import entry_points  # noqa: PLC0415 - 30 ms, for installations with other kinds

    found = entry_points(group=group)
    return [Provider(one.name, one.value, f"{one.dist.name} {one.dist.version}" if one.dist else "unknown") for one in found]


# By os: glob() takes ten times as long for a hundred distributions, and pathlib twice.
def _distributions(place: str) -> list[str]:
    """Return the directories of the distributions that are installed in a directory."""
    try:
        return [entry.path for entry in os.scandir(place) if entry.name.endswith("-info")]
    except OSError:
        return []


def _mentions(group: str, path: str) -> bool:
    # Most files are missing, and to look takes less time than an exception. The others are short: open() would take three times as long.
    if not os.access(path, os.F_OK):
        return False
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return group.encode() in os.read(fd, os.fstat(fd).st_size)
    finally:
        os.close(fd)


def _is_kind(name: str) -> bool:
    return name.isascii() and name.isidentifier() and not name.startswith("_")


def _instead(kind: str, known: list[str]) -> str:
    return nearest(kind, known) or (f"; known kinds: {', '.join(known)}" if known else "; no kind is installed")
