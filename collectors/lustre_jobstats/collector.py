"""Query the servers of a file system for what its jobs did."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, ClassVar

from collectors.lustre_jobstats.command import ServerCommands
from collectors.lustre_jobstats.targets import UNKNOWN_FORMAT, Targets, filesystem_fault, filesystem_of, texts
from collectors.lustre_jobstats.to_rows import OTHER_FILESYSTEM, REMEDIES, JobKeys, rows
from tokiod.dropped import Dropped
from tokiod.errors import CollectError, Fatal, Transient
from tokiod.toolkit.commands import CommandTimeout, Stuck
from tokiod.window_data import WindowData

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from collectors.lustre_jobstats.config import Config
    from collectors.lustre_jobstats.to_rows import TargetCounts
    from tokiod.collector import Site
    from tokiod.window import Window

INTERVAL_SECONDS = 3600.0
"""Between two queries of job_cleanup_interval."""


class JobStats:
    """The collector of a file system's servers. It has no past: a window holds what was read at one moment of it."""

    replayable: ClassVar[bool] = False
    needs_sample_at_end: ClassVar[bool] = False

    def __init__(self, config: Config, site: Site) -> None:
        self.step = config.step
        self._config = config
        self._clock = site.clock
        self._commands = ServerCommands(config)
        self._targets = Targets(int(config.cleanup_interval))
        self._keys = JobKeys(config.jobid_name, site)
        self._intervals_read: dict[str, float] = {}

    async def collect(self, window: Window) -> WindowData:
        """Return one table: the jobs whose counts changed, on the servers that answered.

        Raises Transient for a window that is not the current one, or ended before the servers answered; the first error where all servers
        failed.
        """
        if not window.start <= self._clock.time() < window.end:
            raise Transient(f"{window} is not the current window, and job_stats has only the present state")
        outcomes = await self._commands.job_stats()
        now = self._clock.time()
        if now >= window.end:
            raise Transient(f"the servers answered after {window}: what they count belongs to a later one")
        errors = {server: outcome for server, outcome in outcomes.items() if isinstance(outcome, CollectError)}
        if len(errors) == len(outcomes):
            raise next(iter(errors.values()))
        dropped = Dropped()
        for server, error in errors.items():
            dropped.add(f"{server}: {_reason(error)}")
        outputs = {server: outcome for server, outcome in outcomes.items() if not isinstance(outcome, CollectError)}
        found, troubles = await self._read(outputs, window, max(int(now), window.start + 1), dropped)
        # Not after a server that took all of its time: the window's would not suffice for both.
        if not any(isinstance(error, CommandTimeout) for error in errors.values()):
            await self._read_intervals(outputs)
        troubles = [*map(str, errors.values()), *troubles, *self._short_intervals(window)]
        records = sum(len(one.changes.jobs) for one in found)
        table = rows(found, self._keys, window.start)
        return WindowData([], records, dropped.counts, [table], "; ".join(troubles), dropped.why)

    async def count(self, window: Window) -> int | None:  # noqa: ARG002 - the contract's
        """Return None: there is no past to count."""
        return None

    def note_stored(self, window: Window) -> None:
        """Return what this window had in no later one, unless it changes."""
        self._targets.note_stored(window)

    async def close(self) -> None:
        """Wait for commands that are being killed."""
        await self._commands.close()

    async def _read(
        self, outputs: Mapping[str, bytes], window: Window, time: int, dropped: Dropped
    ) -> tuple[list[TargetCounts], list[str]]:
        """Return the counts of all targets, and what is wrong with some. Raises CollectError where the file system is unclear."""
        lost: Counter[str] = Counter()
        examples: dict[str, bytes] = {}
        listed, unknown = texts(outputs, lost, examples)
        self._keys.note(dropped, lost, examples)
        filesystem = self._config.filesystem
        if fault := filesystem_fault(listed, filesystem):
            raise (Transient if filesystem else Fatal)(f"the servers have {fault}")
        of_targets = {target: one for target, one in listed.items() if filesystem in {None, filesystem_of(target)}}
        for target in sorted(listed.keys() - of_targets.keys()):
            dropped.add(OTHER_FILESYSTEM, 1, target, REMEDIES[OTHER_FILESYSTEM])
        troubles = [f"{server} printed {_unknown(outputs[server])}, see `lctl get_param` there" for server in unknown]
        troubles += self._targets.moved({target: server for target, (server, _) in of_targets.items()})
        found: list[TargetCounts] = []
        for target, (_, text) in of_targets.items():
            try:
                parts = list(self._targets.update(target, text, window, time))
            except Transient as error:
                troubles.append(str(error))
                dropped.add(UNKNOWN_FORMAT, 1, target)
                continue
            found += parts
            await asyncio.sleep(0)  # a target of 10,000 jobs takes 50 ms
        found += self._targets.unanswered({*of_targets}, window)
        dropped.take(self._keys.dropped(found))
        return found, troubles

    async def _read_intervals(self, servers: Iterable[str]) -> None:
        """Read job_cleanup_interval of servers where it is time; a server that does not answer is for another hour."""
        now = self._clock.monotonic()
        due = [server for server in servers if now - self._intervals_read.get(server, float("-inf")) >= INTERVAL_SECONDS]
        self._intervals_read.update(dict.fromkeys(due, now))
        for found in await asyncio.gather(*map(self._commands.cleanup_intervals, due), return_exceptions=True):
            if isinstance(found, dict):
                mine = {one for one in found if self._config.filesystem in {None, filesystem_of(one)}}
                self._targets.intervals.update({target: found[target] for target in mine})
            elif not isinstance(found, CollectError):
                raise found

    def _short_intervals(self, window: Window) -> list[str]:
        """Return a sentence on the targets that remove jobs too early to be seen."""
        short = {target: seconds for target, seconds in self._targets.intervals.items() if 0 < seconds < 2 * window.seconds}
        if not short:
            return []
        target, seconds = min(short.items(), key=lambda one: one[1])
        limit = "window must be at most half of that, or what jobs did before their removal is lost"
        return [f"{len(short)} targets, such as {target}, remove idle jobs after {seconds} s: {limit}"]


def _unknown(output: bytes) -> str:
    return "job_stats without the names of targets (with -n)" if output.lstrip().startswith(b"job_stats:") else "no job_stats that is known"


def _reason(error: CollectError) -> str:
    match error:
        case Stuck():
            return "command cannot be killed"
        case CommandTimeout():
            return "no answer in time"
        case _:
            return "no answer"
