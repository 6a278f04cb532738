"""Query a client of the file system for what it sees now."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from collectors.lustre import datasets, parse_df, parse_dl
from collectors.lustre.command import INODES, LCTL, LustreCommands, reason
from collectors.lustre.datasets import failover, fullness
from collectors.lustre.homes import Homes
from collectors.lustre.to_batches import Columns, batches
from tokiod.dropped import Dropped
from tokiod.errors import CollectError, Transient
from tokiod.window_data import WindowData

if TYPE_CHECKING:
    from collections.abc import Collection

    from collectors.lustre.config import Config
    from collectors.lustre.datasets import Cells
    from tokiod.collector import Site
    from tokiod.toolkit.commands import Output
    from tokiod.window import Window


@dataclass(slots=True)
class _Seen:
    """What the commands of one window printed."""

    records: int = 0
    dropped: Dropped = field(default_factory=Dropped)
    cells: Cells = field(default_factory=dict)


class Lustre:
    """The collector of a mounted file system. It has no past: a window holds what was seen at one moment of it."""

    replayable: ClassVar[bool] = False
    needs_sample_at_end: ClassVar[bool] = False

    def __init__(self, config: Config, site: Site) -> None:
        self.step = config.step
        self._config = config
        self._clock = site.clock
        self._commands = LustreCommands(config, site.clock)
        self._homes = Homes(config.homes)
        self._columns = Columns()
        self.filesystems: set[str] = set()

    async def collect(self, window: Window) -> WindowData:
        """Return a batch per dataset; the cells of a failed command are missing, and the failure is counted.

        Raises Transient for a window that is not the current one or ended before a command did, and the first error if all commands
        failed.
        """
        seen, outcomes = _Seen(), await self._outcomes(window)
        failed = {name: outcome for name, outcome in outcomes if isinstance(outcome, CollectError)}
        for name, error in failed.items():
            if not _is_repeated(name, failed):
                seen.dropped.add(f"{name}: {reason(error)}", 1, str(error))
        for name, outcome in outcomes:
            if not isinstance(outcome, CollectError):
                self._read(name, outcome, seen)
        self._columns.add(seen.cells)
        found = list(batches([(window.start, seen.cells)], self.step, self._columns, sorted(self._config.datasets())))
        return WindowData(found, seen.records, seen.dropped.counts, why=seen.dropped.why)

    async def printed(self, window: Window) -> list[bytes]:
        """Return what each command printed that did not fail. Raises as collect()."""
        outcomes = await self._outcomes(window)
        printed = [(name, outcome) for name, outcome in outcomes if not isinstance(outcome, CollectError)]
        for name, output in printed:
            self._read(name, output, _Seen())
        return [output.stdout for _, output in printed]

    async def count(self, window: Window) -> int | None:  # noqa: ARG002 - the contract's
        """Return None: there is no past to count."""
        return None

    async def close(self) -> None:
        """Wait for commands that are being killed."""
        await self._commands.close()

    async def _outcomes(self, window: Window) -> list[tuple[str, Output | CollectError]]:
        if not window.start <= self._clock.time() < window.end:
            raise Transient(f"{window} is not the current window, and Lustre reports only its present state")
        outcomes = await self._commands.run(window)
        if all(isinstance(outcome, CollectError) for _, outcome in outcomes):
            raise next(outcome for _, outcome in outcomes if isinstance(outcome, CollectError))
        return outcomes

    def _read(self, name: str, output: Output, seen: _Seen) -> None:
        """Parse one output; that of lctl comes last, when the mounts' file systems are known."""
        if name == LCTL:
            devices = parse_dl.parse(output.stdout)
            parse_dl.drop_rest(devices)
            served = {target: nid for target, nid in devices.served.items() if target[:-8] in self.filesystems}
            self._homes.learn(served)
            seen.dropped.take(devices.dropped)
            seen.records += len(served)
            cells = failover(self._homes.away(served), served, seen.dropped)
        else:
            listing = parse_df.parse(output.stdout)
            self.filesystems |= {target[:-8] for target in listing.targets}
            seen.dropped.take(listing.dropped)
            is_of_inodes = name.startswith(INODES)
            listed = listing.inodes if is_of_inodes else listing.targets
            seen.records += len(listed)
            cells = fullness(listed, datasets.INODES if is_of_inodes else datasets.FULLNESS) if self._config.fullness else {}
        for dataset, values in cells.items():
            seen.cells.setdefault(dataset, {}).update(values)


def _is_repeated(name: str, failed: Collection[str]) -> bool:
    """Return whether a failure is that of the same mount again."""
    return name.startswith(INODES) and name.removeprefix(INODES) in failed
