"""The dataset of each metric, and what is metadata."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, NamedTuple

from tokiod.errors import TokiodError

if TYPE_CHECKING:
    from collections.abc import Sequence

Kind = Literal["data", "md"]

USUAL_OF_SERVER = {
    "cpu_user": "cpuuser",
    "cpu_sys": "cpusys",
    "mem_free": "memfree",
    "mem_total": "memtotal",
    "net_r": "netinbytes",
    "net_s": "netoutbytes",
}
USUAL_OF_TARGET = {
    f"gpfs_{sensor}_{counter}": dataset
    for sensor in ("nsdds", "fs")
    for counter, dataset in {
        "bytes_read": "readbytes",
        "bytes_written": "writebytes",
        "read_ops": "readops",
        "write_ops": "writeops",
    }.items()
}
# Those that a site must ask for by name. Where TTS has no name, tokiod.tts.schema declares one: waits in seconds, and iowait.
OF_SERVER = USUAL_OF_SERVER | {
    "cpu_idle": "cpuidle",
    "cpu_iowait": "cpuiowait",
    "mem_buffers": "membuffered",
    "mem_cached": "memcached",
}
OF_TARGET = USUAL_OF_TARGET | {
    f"gpfs_{sensor}_tot_{what}_wait_{way[:1]}{last}": f"{way}{prefix}waits"
    for sensor in ("nsdds", "fs")
    for what, prefix in (("disk", ""), ("queue", "queue"))
    for way, last in (("read", "d"), ("write", "r"))
}
NAMED = {
    "usage": ("cpu_user", "cpu_sys", "mem_total", "mem_free", "net_r", "net_s"),
    "cpu": ("cpu_user", "cpu_sys"),
    "netDetails": ("net_r", "net_s"),
    "gpfsNSDDS": ("gpfs_nsdds_bytes_read", "gpfs_nsdds_bytes_written"),
    "gpfsNumberOperations": ("gpfs_fs_read_ops", "gpfs_fs_write_ops"),
    "gpfsFSWaits": tuple(f"gpfs_fs_tot_{what}_wait_{way}" for what in ("disk", "queue") for way in ("rd", "wr")),
    "gpfsNSDWaits": tuple(f"gpfs_nsdds_tot_{what}_wait_{way}" for what in ("disk", "queue") for way in ("rd", "wr")),
}
"""The metrics of mmperfmon's own queries, as far as they have a dataset."""
LOAD = "cpuload"
OF_LOAD = ("cpuuser", "cpusys")
PERCENT = (*OF_LOAD, "cpuidle", "cpuiowait")
KINDS: tuple[Kind, ...] = ("data", "md")


class Maps(NamedTuple):
    """What is metadata: patterns that are matched at the beginning of the name of an NSD or server; the first match counts."""

    nsds: tuple[tuple[re.Pattern[str], Kind], ...] = ()
    servers: tuple[tuple[re.Pattern[str], Kind], ...] = ()

    def nsd(self, name: str) -> Kind | None:
        """Return what an NSD holds: by the first pattern that matches, None if no pattern does; data if there are no patterns."""
        return _first(self.nsds, name) if self.nsds else "data"

    def server(self, name: str) -> Kind:
        """Return what a server serves; data where no pattern matches."""
        return _first(self.servers, name) or "data"


def _first(patterns: tuple[tuple[re.Pattern[str], Kind], ...], name: str) -> Kind | None:
    return next((kind for pattern, kind in patterns if pattern.match(name)), None)


def maps(nsds: Sequence[str], servers: Sequence[str]) -> Maps:
    """Parse REGEX=datatarget|mdtarget and REGEX=dataserver|mdserver. Raises TokiodError with "lun_map: " or "server_map: " in front."""
    return Maps(
        tuple(_pattern(text, "lun_map", "target") for text in nsds), tuple(_pattern(text, "server_map", "server") for text in servers)
    )


def _pattern(text: str, option: str, what: str) -> tuple[re.Pattern[str], Kind]:
    expression, _, name = text.rpartition("=")
    kind = next((kind for kind in KINDS if name == f"{kind}{what}"), None)
    if kind is None or not expression:
        raise TokiodError(f"{option}: {text!r} is not REGEX=data{what} or REGEX=md{what}")
    try:
        return re.compile(expression), kind
    except (re.error, OverflowError, RecursionError) as error:
        raise TokiodError(f"{option}: {expression!r} is not a regular expression: {error}") from None


def datasets_of(counters: Sequence[str], maps: Maps) -> frozenset[str]:
    """Return the datasets that counters can fill; all usual ones, too, if one of the names is not a counter."""
    wanted = set(counters)
    if not wanted <= OF_SERVER.keys() | OF_TARGET.keys():
        wanted |= USUAL_OF_SERVER.keys() | USUAL_OF_TARGET.keys()
    server = {OF_SERVER[name] for name in wanted & set(OF_SERVER)}
    if server.issuperset(OF_LOAD):
        server.add(LOAD)
    target = {OF_TARGET[name] for name in wanted & set(OF_TARGET)}
    servers = {"data", *(kind for _, kind in maps.servers)}
    targets = {kind for _, kind in maps.nsds} or {"data"}
    return frozenset(
        [f"{kind}servers/{name}" for kind in servers for name in server] + [f"{kind}targets/{name}" for kind in targets for name in target]
    )


def map_faults(nsds: Sequence[str], servers: Sequence[str]) -> list[str]:
    """Return the errors of maps, each as "field: sentence"."""
    found = []
    for text in nsds:
        found += _faults([text], [])
    for text in servers:
        found += _faults([], [text])
    return found


def _faults(nsds: Sequence[str], servers: Sequence[str]) -> list[str]:
    try:
        maps(nsds, servers)
    except TokiodError as error:
        return [str(error)]
    return []


def counters(queries: Sequence[str]) -> list[str]:
    """Return the counters of queries."""
    return [counter for query in queries for counter in NAMED.get(query, query.split(","))]
