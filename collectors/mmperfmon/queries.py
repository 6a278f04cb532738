"""What mmperfmon is asked for."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokiod.window import Window

COMMAND = ("/usr/lpp/mmfs/bin/mmperfmon", "query")
QUERIES = ("usage", "gpfs_nsdds_bytes_read,gpfs_nsdds_bytes_written,gpfs_nsdds_read_ops,gpfs_nsdds_write_ops")
NAMED = {
    "usage": ("cpu_user", "cpu_sys", "mem_total", "mem_free", "net_r", "net_s"),
    "cpu": ("cpu_user", "cpu_sys"),
    "netDetails": ("net_r", "net_s"),
    "gpfsNSDDS": ("gpfs_nsdds_bytes_read", "gpfs_nsdds_bytes_written"),
    "gpfsNumberOperations": ("gpfs_fs_read_ops", "gpfs_fs_write_ops"),
}
"""What mmperfmon's own queries bring of what is known here."""

REMOTE = ("env", "LC_ALL=C", "TZ=UTC", "COLUMNS=30000")
"""What runs a command elsewhere, where our environment does not come along."""


class Asked(NamedTuple):
    """What is run, see Config; bucket: seconds."""

    prefix: tuple[str, ...]
    command: tuple[str, ...]
    queries: tuple[str, ...]
    arguments: tuple[str, ...]
    bucket: int


# Documentation does not say whether a time is that of a bucket's end, nor whether the end time's own belongs to the answer; so a bucket
# more is asked for than needed, and what is in the window is taken by its time stamp.
def command_line(asked: Asked, query: str, window: Window) -> list[str]:
    """Return the command and arguments of one run."""
    elsewhere = [*asked.prefix, *REMOTE] if asked.prefix else []
    times = (_time(window.start), _time(window.end + asked.bucket))
    return [*elsewhere, *asked.command, query, *times, "-b", str(asked.bucket), *asked.arguments]


def counters(queries: Sequence[str]) -> list[str]:
    """Return the counters that queries ask for."""
    return [counter for query in queries for counter in NAMED.get(query, query.split(","))]


def _time(epoch: int) -> str:
    return dt.datetime.fromtimestamp(epoch, dt.UTC).strftime("%Y-%m-%d-%H:%M:%S")
