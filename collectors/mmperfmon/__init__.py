"""Spectrum Scale (GPFS): what `mmperfmon query` prints.

inputs.py   the outputs in files and archives          legend.py   what columns are
tables.py   an output's tables; rows.py: an odd one's  stamps.py   local time stamps to UTC
series.py   metrics to datasets and columns            cells.py    tables to batches
saved.py    the join of them over saved outputs, whose rows wait in spool.py; parsing.py: where there are many
queries.py  what is asked; collector.py: the join of them over the command
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from collectors.mmperfmon.queries import COMMAND, QUERIES, Asked, counters
from collectors.mmperfmon.saved import Saved, map_faults, saved
from collectors.mmperfmon.series import datasets_of, maps
from tokiod.collector import SourceConfig
from tokiod.errors import TokiodError
from tokiod.units import Duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokiod.collector import Collector, Site

__all__ = ["Config", "Saved", "live", "saved"]

LEAST_SETTLE = 2
"""Buckets: the last one may lack what nodes have not sent yet."""


class Config(SourceConfig, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """A command that prints what mmperfmon measured.

    command: what runs, without a shell; prefix: what runs it, such as ssh and a node's name.
    queries: metrics, joined by commas, or names of queries that mmperfmon knows; each is a run of the command per window.
    arguments: what else every run is given; bucket: the archive's step; run_timeout: of a run.
    lun_map, server_map: which NSDs and servers are metadata, as REGEX=mdtarget and REGEX=mdserver.
    cpu_scale: what CPU figures are multiplied with.
    """

    settle: Duration = Duration(120)
    window: Duration = Duration(300)
    command: tuple[str, ...] = COMMAND
    prefix: tuple[str, ...] = ()
    queries: tuple[str, ...] = QUERIES
    arguments: tuple[str, ...] = ()
    bucket: Duration = Duration(60)
    run_timeout: Duration = Duration(25)
    lun_map: tuple[str, ...] = ()
    server_map: tuple[str, ...] = ()
    cpu_scale: Annotated[float, msgspec.Meta(gt=0)] = 1.0

    @property
    def step(self) -> int:
        """Seconds of a bucket."""
        return int(self.bucket)

    def datasets(self) -> frozenset[str]:
        """Return the names of what the queries bring."""
        try:
            return datasets_of(counters(self.queries), maps(self.lun_map, self.server_map))
        except TokiodError:
            return frozenset()

    def only(self, datasets: frozenset[str]) -> SourceConfig:
        """Return the same source without the queries that bring none of some datasets."""
        known = maps(self.lun_map, self.server_map)
        wanted = tuple(query for query in self.queries if datasets & datasets_of(counters([query]), known))
        return msgspec.structs.replace(self, queries=wanted or self.queries)

    def faults(self) -> list[str]:
        """Return what is wrong with the maps and the queries."""
        return [*map_faults(self.lun_map, self.server_map), *self._other_faults()]

    def _other_faults(self) -> Iterator[str]:
        if not self.command or not self.command[0]:
            yield "command: name the program that is to be run"
        if not self.queries:
            yield "queries: name at least one"
        for query in self.queries:
            if not query or query.startswith("-") or any(letter.isspace() for letter in query):
                yield f"queries: {query!r} is no metric, no metrics joined by commas and no query's name"
        for name in ("bucket", "run_timeout"):
            if getattr(self, name) <= 0:
                yield f"{name}: must be longer than nothing"
        if self.settle < LEAST_SETTLE * self.bucket:
            yield f"settle: must be {LEAST_SETTLE} buckets of {self.bucket} s at least: the last may not be whole yet"
        if self.run_timeout * len(self.queries) > self.timeout:
            yield f"timeout: {self.timeout} s are not enough for {len(self.queries)} runs of {self.run_timeout} s, one after the other"


def live(config: Config, site: Site) -> Collector:  # noqa: ARG001 - mmperfmon is asked in UTC
    """Return the collector that runs mmperfmon."""
    from collectors.mmperfmon.collector import Mmperfmon  # noqa: PLC0415 - asyncio's subprocesses are the daemon's alone

    asked = Asked(config.prefix, config.command, config.queries, config.arguments, config.step)
    return Mmperfmon(asked, maps(config.lun_map, config.server_map), config.cpu_scale, config.run_timeout)
