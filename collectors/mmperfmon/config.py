"""What a [[source]] of this kind, and `tokioctl archive`, may be told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from collectors.mmperfmon.command import COMMAND, QUERIES, counters
from collectors.mmperfmon.datasets import datasets_of, map_faults, maps
from tokiod.collector import SavedOptions, SourceConfig
from tokiod.errors import TokiodError
from tokiod.units import Duration

if TYPE_CHECKING:
    from collections.abc import Iterator

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


class Saved(SavedOptions, kw_only=True, frozen=True):
    """How to read saved outputs, whose time stamps are local to the site."""

    step: Annotated[int, msgspec.Meta(ge=1, description="Seconds between rows: the length of the query's buckets.")] = 60
    lun_map: Annotated[
        tuple[str, ...], msgspec.Meta(description="REGEX=datatarget or REGEX=mdtarget, of NSDs' names; if given, others are left out.")
    ] = ()
    server_map: Annotated[
        tuple[str, ...], msgspec.Meta(description="REGEX=dataserver or REGEX=mdserver, of hosts' names; others are data servers.")
    ] = ()
    cpu_scale: Annotated[
        float, msgspec.Meta(gt=0, description="What CPU figures are multiplied with; pytokio's are 100 times percent.")
    ] = 1.0

    def datasets(self) -> frozenset[str]:
        """Return the names of all that mmperfmon measures of what the maps know."""
        try:
            return datasets_of(["usage"], maps(self.lun_map, self.server_map))
        except TokiodError:
            return frozenset()

    def faults(self) -> list[str]:
        """Return what is wrong with the maps."""
        return map_faults(self.lun_map, self.server_map)
