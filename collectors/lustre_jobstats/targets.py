"""The targets of a file system, by name and not by server: one that moves to its partner keeps its jobs."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from collectors.lustre_jobstats import parse
from collectors.lustre_jobstats.changes import JobCounts
from collectors.lustre_jobstats.to_rows import TWO_SERVERS, TargetCounts
from tokiod.errors import Transient

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, MutableMapping

    from tokiod.window import Window

UNKNOWN_FORMAT = "target with an unknown format of job_stats"
_SNAPSHOT = re.compile(rb"\n  snapshot_time: *(\d{1,11})")


@dataclass(slots=True)
class Targets:
    """What is known of each target's jobs, and which of it no stored window holds yet.

    cleanup_interval: of targets whose own is unknown, seconds. intervals: those that servers reported.
    """

    cleanup_interval: int
    intervals: dict[str, int] = field(default_factory=dict)
    _counts: dict[str, JobCounts] = field(default_factory=dict)
    _servers: dict[str, str] = field(default_factory=dict)
    _unstored: defaultdict[str, dict[bytes, Window]] = field(default_factory=lambda: defaultdict(dict))

    def update(self, target: str, text: bytes, window: Window, time: int) -> Iterator[TargetCounts]:
        """Yield what changed on a target since its last poll, and what a window that is not stored had of it.

        Raises Transient for a text in an unknown format, of which nothing is used.
        """
        if b"\n- job_id:" in text and not _SNAPSHOT.search(text):
            raise Transient(f"{target}: unknown format of job_stats")
        counts = self._counts.setdefault(target, JobCounts())
        counts.cleanup_interval = self.intervals.get(target, self.cleanup_interval)
        changes = counts.update(text, time)
        unstored = self._unstored[target]
        again = counts.rows(unstored, time, zip(changes.jobs, changes.time.tolist(), strict=True))
        yield TargetCounts(target, time, changes)
        yield TargetCounts(target, time, again)
        unstored.update(dict.fromkeys((*changes.jobs, *again.jobs), window))

    def unanswered(self, targets: set[str], window: Window) -> Iterator[TargetCounts]:
        """Yield what a window that is not stored had of other targets, at the time of their last poll: what they count since is unknown."""
        for target in sorted(self._unstored.keys() - targets):
            counts = self._counts[target]
            again = counts.rows(self._unstored[target], counts.polled)
            yield TargetCounts(target, counts.polled, again, answered=False)
            self._unstored[target].update(dict.fromkeys(again.jobs, window))

    def note_stored(self, window: Window) -> None:
        """Forget what was kept for the case that a window is not stored."""
        for target, unstored in list(self._unstored.items()):
            stored = [job for job, latest in unstored.items() if latest == window]
            for job in stored:
                del unstored[job]
            self._counts[target].forget(stored)
            if not unstored:
                del self._unstored[target]

    def moved(self, servers: Mapping[str, str]) -> list[str]:
        """Note which server lists each target; return a sentence for each that moved."""
        found = [
            f"{target} moved from {self._servers[target]} to {server}"
            for target, server in servers.items()
            if self._servers.get(target, server) != server
        ]
        self._servers.update(servers)
        return found


def filesystem_of(target: str) -> str:
    """Return the file system of FILESYSTEM-OST0000."""
    return target[:-8]


def filesystem_fault(targets: Iterable[str], filesystem: str | None) -> str:
    """Return why the targets of a file system, None for the only one, can't be chosen; empty if they can, and without targets."""
    names = sorted({*map(filesystem_of, targets)})
    listed = '", "'.join(names)
    if filesystem is None and len(names) > 1:
        return (
            f'targets of several file systems: set filesystem (--filesystem) to one of "{listed}", and use a source and a system for each'
        )
    if names and filesystem not in {None, *names}:
        return f'no target of the file system "{filesystem}": set filesystem (--filesystem) to one of "{listed}"'
    return ""


def texts(
    outputs: Mapping[str, bytes], dropped: Counter[str], examples: MutableMapping[str, bytes], until: float = math.inf
) -> tuple[dict[str, tuple[str, bytes]], list[str]]:
    """Return the server and the text of each target, and the servers whose output holds no target's text.

    A target that is moving may be listed by two servers: the text with the newest operation counts, that is not after `until`, epoch
    seconds. examples: of dropped, by reason.
    """
    found: dict[str, tuple[str, bytes]] = {}
    unknown = []
    for server, output in outputs.items():
        listed = list(parse.targets(parse.without_prefix(output), dropped, examples))
        if output.strip() and not listed:
            unknown.append(server)
        for target, text in listed:
            if target in found:
                dropped[TWO_SERVERS] += 1
                examples.setdefault(TWO_SERVERS, target.encode())
                if _rank(text, until) <= _rank(found[target][1], until):
                    continue
            found[target] = server, text
    return found, unknown


def newest(text: bytes) -> int:
    """Return the time of the last operation of all jobs of a target, epoch seconds."""
    return max(map(int, _SNAPSHOT.findall(text)), default=0)


def _rank(text: bytes, until: float) -> tuple[bool, int]:
    last = newest(text)
    return last <= until, last
