"""One run of mmperfmon: its command line, and the meaning of its end."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING, NamedTuple

from tokiod.errors import Fatal, Transient

if TYPE_CHECKING:
    from tokiod.toolkit.commands import Output
    from tokiod.window import Window

REMOTE = ("env", "LC_ALL=C", "TZ=UTC", "COLUMNS=30000")
"""Runs a command on another host, which does not inherit our environment."""


SSH_FAILED = 255
CANNOT_RUN = (126, 127)
MESSAGE_BYTES = 4096
_NO_DATA = re.compile(r"(?i)no data (is )?available|no data (was )?found")
_CONFIGURATION_ERROR = re.compile(
    r"(?i)\busage:|\b(invalid|unknown|incorrect|unrecognized|not a valid|not found in metric|permission denied|not authorized)\b"
)


class CommandOptions(NamedTuple):
    """What is run, see Config. bucket: seconds."""

    prefix: tuple[str, ...]
    command: tuple[str, ...]
    queries: tuple[str, ...]
    arguments: tuple[str, ...]
    bucket: int


# The documentation does not state whether a time is that of a bucket's end, nor whether the end itself is included. So one more bucket is
# queried, and the time stamps decide what belongs to the window.
def command_line(options: CommandOptions, query: str, window: Window) -> list[str]:
    """Return the command and arguments of one run."""
    remote = [*options.prefix, *REMOTE] if options.prefix else []
    times = (_time(window.start), _time(window.end + options.bucket))
    return [*remote, *options.command, query, *times, "-b", str(options.bucket), *options.arguments]


# IBM documents only that a failure exits with another code than 0, so the text decides: errors that an administrator must fix, and "no
# data", which is an answer. 126 and 127 are what env and shells return for a program that cannot run; 255 is ssh's, for a node that it
# cannot reach.
def printed(output: Output, query: str) -> bytes:
    """Return what a run printed, nothing if there is no data. Raises Fatal for errors of the configuration, Transient for others."""
    text = f"{output.stderr}\n{output.stdout[-MESSAGE_BYTES:].decode(errors='replace') if output.code else ''}"
    if not output.code:
        return output.stdout
    if output.code != SSH_FAILED and _NO_DATA.search(text):
        return b""
    complaint = output.complaint or next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "nothing")
    sentence = f"query {query}: exit code {output.code}: {complaint[:400]}"
    if output.code in CANNOT_RUN or (output.code != SSH_FAILED and _CONFIGURATION_ERROR.search(text)):
        raise Fatal(sentence)
    raise Transient(sentence)


def _time(epoch: int) -> str:
    return dt.datetime.fromtimestamp(epoch, dt.UTC).strftime("%Y-%m-%d-%H:%M:%S")
