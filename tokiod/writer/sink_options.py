"""What the sources of a configuration say of their datasets, as the sink takes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tokiod.config.schema import Config


def steps(config: Config) -> dict[str, dict[str, set[int]]]:
    """Return the steps of the configured sources, by system and kind."""
    found: dict[str, dict[str, set[int]]] = {}
    for source in config.source:
        found.setdefault(source.system, {}).setdefault(source.kind, set()).add(source.step)
    return found


def max_open(config: Config) -> int:
    """Return how many day files stay open: of each system a day and those around it, and as many as a backfill of a few days needs."""
    return max(8, 3 * len({source.system for source in config.source}))


def units(config: Config) -> dict[str, Mapping[str, str]]:
    """Return the units that the configured kinds declare, by kind."""
    return {source.kind: source.units for source in config.source}


def max_rates(config: Config) -> dict[str, dict[str, float]]:
    """Return the largest plausible rates of counters, by system and dataset; each dataset of a system has one source."""
    rates: dict[str, dict[str, float]] = {}
    for source in config.source:
        rates.setdefault(source.system, {}).update(source.max_rates())
    return rates


def sources_of_tables(config: Config) -> frozenset[str]:
    """Return the names of the sources whose windows are rows of tables alone."""
    return frozenset(source.name for source in config.source if source.tables and not source.datasets())
