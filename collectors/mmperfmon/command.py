"""What mmperfmon is asked for."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING, NamedTuple

from tokiod.errors import Fatal, Transient

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokiod.toolkit.commands import Output
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


REMOTE_FAILED = 255
CANNOT_RUN = (126, 127)
TOLD = 4096
_NO_DATA = re.compile(r"(?i)no data (is )?available|no data (was )?found")
_OURS = re.compile(
    r"(?i)\busage:|\b(invalid|unknown|incorrect|unrecognized|not a valid|not found in metric|permission denied|not authorized)\b"
)


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


# IBM documents no more than that a failure is not 0, so what it says decides: of what a person must mend, and of no data, which is an
# answer. 126 and 127 are what env and shells say of a program that can't be run; 255 is ssh's own, of a node that can't be reached.
def printed(output: Output, query: str) -> bytes:
    """Return what a run printed, nothing where there is no data. Raises Fatal for what waits for a person, Transient for the rest."""
    said = f"{output.stderr}\n{output.stdout[-TOLD:].decode(errors='replace') if output.code else ''}"
    if not output.code:
        return output.stdout
    if output.code != REMOTE_FAILED and _NO_DATA.search(said):
        return b""
    complaint = output.complaint or next((line.strip() for line in reversed(said.splitlines()) if line.strip()), "nothing")
    sentence = f"query {query}: ended with {output.code}, and said: {complaint[:400]}"
    if output.code in CANNOT_RUN or (output.code != REMOTE_FAILED and _OURS.search(said)):
        raise Fatal(sentence)
    raise Transient(sentence)


def counters(queries: Sequence[str]) -> list[str]:
    """Return the counters that queries ask for."""
    return [counter for query in queries for counter in NAMED.get(query, query.split(","))]


def _time(epoch: int) -> str:
    return dt.datetime.fromtimestamp(epoch, dt.UTC).strftime("%Y-%m-%d-%H:%M:%S")
