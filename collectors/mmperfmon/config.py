"""What a [[source]] of this kind and `tokioctl archive` take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

import msgspec

from collectors.mmperfmon.datasets import LOAD, PERCENT, counters, datasets_of, map_faults, maps
from tokiod.collector import SavedOptions, SourceConfig
from tokiod.errors import TokiodError
from tokiod.option import option
from tokiod.units import Duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

COMMAND = ("/usr/lpp/mmfs/bin/mmperfmon", "query")
QUERIES = ("usage", "gpfs_nsdds_bytes_read,gpfs_nsdds_bytes_written,gpfs_nsdds_read_ops,gpfs_nsdds_write_ops")

MIN_SETTLE_BUCKETS = 2
"""The last bucket may lack what nodes have not sent yet."""


def scaled_units(cpu_scale: float) -> Mapping[str, str]:
    """Return the units of CPU figures that were multiplied, of which percentages' bounds don't hold; none if they were not."""
    names = [f"{group}/{name}" for group in ("dataservers", "mdservers") for name in (LOAD, *PERCENT)]
    return {} if cpu_scale == 1.0 else dict.fromkeys(names, f"{1 / cpu_scale:g} %")


class Config(SourceConfig, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """A command that prints what mmperfmon measured."""

    selected_by: ClassVar[tuple[str, ...]] = ("queries", "arguments")

    settle: Annotated[
        Duration,
        option("Delay before a window is queried, because the last bucket may be incomplete.", values="at least two buckets"),
    ] = Duration(120)
    window: Annotated[Duration, option("Length of one query.", values="a whole number of buckets that divides 24 h")] = Duration(300)
    command: Annotated[
        tuple[str, ...], option("The command, without a shell. It runs once per query and window.", values="a program and its arguments")
    ] = COMMAND
    prefix: Annotated[
        tuple[str, ...],
        option(
            "What runs the command on another host. The daemon's user needs a key without a passphrase there, and the permission to query.",
            '["ssh", "-o", "BatchMode=yes", "nsd1"]',
        ),
    ] = ()
    queries: Annotated[
        tuple[str, ...],
        option(
            "The queries: each is a list of metrics, joined by commas, or the name of a query that mmperfmon knows.",
            '["usage"]',
            values="at least one",
        ),
    ] = QUERIES
    arguments: Annotated[
        tuple[str, ...],
        option(
            'Further arguments. They follow the query, the window\'s start and end in UTC, and "-b" with the bucket.',
            '["-N", "nsdservers"]',
        ),
    ] = ()
    bucket: Annotated[
        Duration,
        option(
            "The length of mmperfmon's buckets, and the step of the archive's rows.",
            values="greater than zero",
            effect="reload; new steps from the next day",
        ),
    ] = Duration(60)
    run_timeout: Annotated[
        Duration,
        option("Time limit of one run.", values="greater than zero; all runs of a window must fit into timeout"),
    ] = Duration(25)
    lun_map: Annotated[
        tuple[str, ...],
        option(
            "Which NSDs hold data, and which metadata; the first match counts, at the beginning of a name. Without any, all NSDs hold "
            "data. NSDs that match none are dropped and counted.",
            "['na\\d+md=mdtarget', '.*=datatarget']",
            values="REGEX=datatarget or REGEX=mdtarget",
        ),
    ] = ()
    server_map: Annotated[
        tuple[str, ...],
        option(
            "Which servers serve data, and which metadata. A server that matches none is a data server.",
            "['ngfsv49[23]=mdserver']",
            values="REGEX=dataserver or REGEX=mdserver",
        ),
    ] = ()
    cpu_scale: Annotated[
        float,
        option("CPU values are multiplied by it. mmperfmon's are percent; pytokio's archives contain 100 times as much.", "100.0", gt=0),
    ] = 1.0

    @property
    def units(self) -> Mapping[str, str]:  # type: ignore[override]  # a class's own for all other kinds
        """The units of scaled CPU figures."""
        return scaled_units(self.cpu_scale)

    @property
    def step(self) -> int:
        """Seconds of a bucket."""
        return int(self.bucket)

    def datasets(self) -> frozenset[str]:
        """Return the datasets that the queries fill."""
        try:
            return datasets_of(counters(self.queries), maps(self.lun_map, self.server_map))
        except TokiodError:
            return frozenset()

    def only(self, datasets: frozenset[str]) -> SourceConfig:
        """Return the same source without the queries that fill other datasets only."""
        known = maps(self.lun_map, self.server_map)
        wanted = tuple(query for query in self.queries if datasets & datasets_of(counters([query]), known))
        return msgspec.structs.replace(self, queries=wanted or self.queries)

    def faults(self) -> list[str]:
        """Return the errors of maps, queries and time limits."""
        return [*map_faults(self.lun_map, self.server_map), *self._other_faults()]

    def _other_faults(self) -> Iterator[str]:
        if not self.command or not self.command[0]:
            yield "command: a program is required"
        if not self.queries:
            yield "queries: at least one is required"
        for query in self.queries:
            if not query or query.startswith("-") or any(letter.isspace() for letter in query):
                yield f"queries: {query!r} is neither a metric, nor metrics joined by commas, nor the name of a query"
        for name in ("bucket", "run_timeout"):
            if getattr(self, name) <= 0:
                yield f"{name}: must be greater than zero"
        if self.settle < MIN_SETTLE_BUCKETS * self.bucket:
            yield f"settle: must be at least {MIN_SETTLE_BUCKETS} buckets of {self.bucket} s: the last one may be incomplete"
        if self.run_timeout * len(self.queries) > self.timeout:
            yield f"timeout: {self.timeout} s is too short for {len(self.queries)} consecutive runs of up to {self.run_timeout} s"


class Saved(SavedOptions, kw_only=True, frozen=True):
    """How to read saved outputs, whose time stamps are local to the site."""

    example: ClassVar[str] = "mmperfmon.tgz --lun-map '.*=datatarget'"

    step: Annotated[int, msgspec.Meta(ge=1, description="Seconds between rows: the length of the query's buckets.")] = 60
    lun_map: Annotated[
        tuple[str, ...], msgspec.Meta(description="REGEX=datatarget or REGEX=mdtarget for NSD names; NSDs that match none are dropped.")
    ] = ()
    server_map: Annotated[
        tuple[str, ...], msgspec.Meta(description="REGEX=dataserver or REGEX=mdserver for host names; default: data server.")
    ] = ()
    cpu_scale: Annotated[float, msgspec.Meta(gt=0, description="CPU values are multiplied by this; pytokio's are 100 times percent.")] = 1.0

    @property
    def units(self) -> Mapping[str, str]:  # type: ignore[override]  # as above
        """The units of scaled CPU figures."""
        return scaled_units(self.cpu_scale)

    def datasets(self) -> frozenset[str]:
        """Return the datasets of all metrics, as far as the maps allow."""
        try:
            return datasets_of(["usage"], maps(self.lun_map, self.server_map))
        except TokiodError:
            return frozenset()

    def faults(self) -> list[str]:
        """Return the errors of the maps."""
        return map_faults(self.lun_map, self.server_map)
