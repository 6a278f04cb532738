"""Look up names from the command line: sources, datasets, systems. Each error lists the known names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokiod.cli.common.base import Failed
from tokiod.errors import nearest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from tokiod.collector import SourceConfig
    from tokiod.config.schema import Config


def polled_source(config: Config, name: str, unless: str) -> SourceConfig:
    """Return the section of a polled source. unless: the end of the sentence for a watched folder. Raises Failed."""
    section = configured_source(config, name)
    if not section.polled:
        raise Failed(f"{name} is a watched folder, {unless}")
    return section


def configured_source(config: Config, name: str) -> SourceConfig:
    """Return the section of a source. Raises Failed."""
    sources = {source.name: source for source in config.source}
    if name not in sources:
        raise Failed(f"unknown source {name!r}{instead(name, sources)}")
    return sources[name]


def filled_datasets(section: SourceConfig, names: Iterable[str]) -> frozenset[str]:
    """Return the named datasets, or all that the source fills. Raises Failed for a dataset that it does not fill."""
    for name in names:
        if name not in section.datasets():
            raise Failed(f"--dataset: {section.name} does not fill {name!r}{instead(name, section.datasets())}")
    return frozenset(names) or section.datasets()


def check_system(config: Config, name: str) -> None:
    """Raise Failed for a system that no source fills."""
    check_name(name, {source.system for source in config.source})


def check_name(system: str, known: Collection[str]) -> None:
    """Raise Failed for a system that is not among the known ones."""
    if system not in known:
        raise Failed(f"unknown system {system!r}{instead(system, known)}")


def instead(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence about an unknown name: the nearest known name, or all of them."""
    return nearest(name, known) or f"; known: {', '.join(sorted(known)) or 'none'}"
