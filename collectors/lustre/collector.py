"""Ask a client of the file system what it sees now."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from collectors.lustre import parse_df, parse_dl
from collectors.lustre.homes import Homes
from collectors.lustre.to_batches import Columns, batches, failover, fullness
from tokiod.errors import CollectError, Fatal, Transient
from tokiod.toolkit.commands import Commands, CommandTimeout, Stuck
from tokiod.window_data import WindowData

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collectors.lustre import Config
    from collectors.lustre.to_batches import Cells
    from tokiod.collector import Site
    from tokiod.toolkit.commands import Output
    from tokiod.window import Window

LCTL = "lctl"
RETRY_SECONDS = 1.0
"""Seconds after which a command that failed is asked once more: what it would have told of this window can't be had later."""


@dataclass(slots=True)
class _Seen:
    """What the commands of one window printed."""

    records: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    cells: Cells = field(default_factory=dict)


class TooLate(Transient):
    """A command told something, but perhaps of the next window."""


# lfs df exits with an error when any target failed, and what it printed of the others is right all the same. So what it printed counts,
# and its exit code only where it printed nothing; then it is asked once more, for a window's moment does not come again. Of several mounts
# each is asked by a command of its own, all at once: a dead server makes lfs df hang in the kernel, and without a mount point an error on
# one file system ends the listing of all.
class Lustre:
    """The collector of a mounted file system. It has no past: a window holds what was seen at one moment of it."""

    replayable: ClassVar[bool] = False
    needs_sample_at_end: ClassVar[bool] = False

    def __init__(self, config: Config, site: Site) -> None:
        self.step = config.step
        self._config = config
        self._clock = site.clock
        self._commands = Commands()
        self._homes = Homes(config.homes)
        self._columns = Columns()
        self._filesystems: set[str] = set()

    async def collect(self, window: Window) -> WindowData:
        """Return a batch per dataset; a command that failed leaves its cells missing and is counted.

        Raises Transient for a window that is not now, or was over before a command told something, and what the commands raise where
        all of them failed.
        """
        if not window.start <= self._clock.time() < window.end:
            raise Transient(f"{window} is not now, and what Lustre is like is not known of any other time")
        outcomes = await self._outcomes(window)
        for outcome in outcomes:
            if isinstance(outcome, TooLate):
                raise outcome
        seen = _Seen()
        for name, outcome in zip(self._names(), outcomes, strict=True):
            if isinstance(outcome, CollectError):
                seen.dropped[f"{name}: {_reason(outcome)}"] += 1
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                for dataset, values in self._read(name, outcome, seen).items():
                    seen.cells.setdefault(dataset, {}).update(values)
        failed = [outcome for outcome in outcomes if isinstance(outcome, CollectError)]
        if len(failed) == len(outcomes):
            raise failed[0]
        self._columns.add(seen.cells)
        found = list(batches([(window.start, seen.cells)], self.step, self._columns, sorted(self._config.datasets())))
        return WindowData(found, seen.records, seen.dropped)

    async def count(self, window: Window) -> int | None:  # noqa: ARG002 - the contract's
        """Return None: there is no past to count."""
        return None

    async def close(self) -> None:
        """Wait for commands that are being ended."""
        await self._commands.close()

    def _names(self) -> list[str]:
        """Who is asked: mounts are, also where only failover is wanted, for the names of their file systems."""
        return [*self._config.mounts, *([LCTL] if self._config.failover else [])]

    async def _outcomes(self, window: Window) -> list[Output | BaseException]:
        """Return what each command told, or why it told nothing; what failed at once while others told something is asked once more."""
        outcomes = await self._asked(self._names(), window)
        failed = [place for place, outcome in enumerate(outcomes) if _is_passing(outcome)]
        if 0 < len(failed) < len(outcomes) and self._clock.time() + RETRY_SECONDS < window.end:
            await self._clock.sleep(RETRY_SECONDS)
            for place, outcome in zip(failed, await self._asked([self._names()[place] for place in failed], window), strict=True):
                if not isinstance(outcome, TooLate):
                    outcomes[place] = outcome
        return outcomes

    async def _asked(self, names: Sequence[str], window: Window) -> list[Output | BaseException]:
        return await asyncio.gather(*(self._run(self._command(name), name, window) for name in names), return_exceptions=True)

    def _command(self, name: str) -> list[str]:
        return [*self._config.lctl, "dl", "-t"] if name == LCTL else [*self._config.lfs, "df", "-l", name]

    async def _run(self, argv: Sequence[str], key: str, window: Window) -> Output:
        output = await self._commands.run(argv, key=key, seconds=float(self._config.command_timeout))
        if self._clock.time() >= window.end:
            raise TooLate(f"{argv[0]} for {key} ended after {window}: what it saw may be of another window")
        if output.code and not output.stdout.strip():
            said = f": {output.complaint}" if output.complaint else ""
            reason = f"{' '.join(argv)} ended with {output.code}{said}"
            raise (Fatal if "not a lustre" in said.lower() or "permission denied" in said.lower() else Transient)(reason)
        return output

    def _read(self, name: str, output: Output, seen: _Seen) -> Cells:
        """Read one output; devices come last, when the mounts' file systems are known."""
        if name == LCTL:
            devices = parse_dl.parse(output.stdout)
            served = {target: nid for target, nid in devices.served.items() if target[:-8] in self._filesystems}
            self._homes.learn(served)
            seen.dropped.update(devices.dropped)
            seen.records += len(served)
            return failover(self._homes.away(served), seen.dropped)
        listing = parse_df.parse(output.stdout)
        self._filesystems |= {target[:-8] for target in listing.targets}
        seen.dropped.update(listing.dropped)
        seen.records += len(listing.targets)
        return fullness(listing.targets) if self._config.fullness else {}


def _is_passing(outcome: Output | BaseException) -> bool:
    """Whether a command failed in a way that may be over in a moment; one that hung has taken its time already."""
    return isinstance(outcome, Transient) and not isinstance(outcome, (CommandTimeout, Stuck, TooLate))


def _reason(error: CollectError) -> str:
    match error:
        case Stuck():
            return "its command can't be ended"
        case CommandTimeout():
            return "no answer in time"
        case _:
            return "no answer"
