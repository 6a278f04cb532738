"""What a command line names: a [[source]] of the configuration, datasets that it fills, systems; each fault says what there is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokiod.cli.common.base import Failed
from tokiod.config.convert import nearest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tokiod.collector import SourceConfig
    from tokiod.config.load import Config


def polled_source(config: Config, name: str, unless: str) -> SourceConfig:
    """Return the stanza of a source that is polled; unless: what to say, behind its name, of a watched folder. Raises Failed."""
    sources = {source.name: source for source in config.source}
    if name not in sources:
        raise Failed(f"no source is called {name!r}{instead(name, sources)}")
    if not sources[name].polled:
        raise Failed(f"{name} is a watched folder, {unless}")
    return sources[name]


def filled_datasets(stanza: SourceConfig, names: Iterable[str]) -> frozenset[str]:
    """Return the datasets that are named, all that the source fills where none is. Raises Failed for one that it doesn't fill."""
    for name in names:
        if name not in stanza.datasets():
            raise Failed(f"--dataset: {stanza.name} does not fill {name!r}{instead(name, stanza.datasets())}")
    return frozenset(names) or stanza.datasets()


def check_system(config: Config, name: str) -> None:
    """Raise Failed where no source has this system."""
    systems = {source.system for source in config.source}
    if name not in systems:
        raise Failed(f"no source has the system {name!r}{instead(name, systems)}")


def instead(name: str, known: Iterable[str]) -> str:
    """Return what to say behind a name that is none: the nearest known one, or all of them."""
    return nearest(name, known) or f": there is {', '.join(sorted(known)) or 'none'}"
