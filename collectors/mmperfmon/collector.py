"""Query mmperfmon window by window."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, ClassVar

from collectors.mmperfmon.command import CommandOptions, command_line, printed
from collectors.mmperfmon.datasets import maps
from collectors.mmperfmon.parse import INCOMPLETE, parse
from collectors.mmperfmon.series import Series
from collectors.mmperfmon.to_batches import Buckets, Rows, batches, measured
from tokiod.dropped import Dropped
from tokiod.errors import Transient
from tokiod.toolkit.commands import Commands
from tokiod.window_data import WindowData

if TYPE_CHECKING:
    from collectors.mmperfmon.config import Config
    from collectors.mmperfmon.datasets import Maps
    from collectors.mmperfmon.parse_legend import Output
    from tokiod.window import Window


def connected(config: Config) -> Mmperfmon:
    """Return the collector that a section describes."""
    options = CommandOptions(config.prefix, config.command, config.queries, config.arguments, config.step)
    return Mmperfmon(options, maps(config.lun_map, config.server_map), config.cpu_scale, config.run_timeout)


# A window is the output of all queries or nothing: half of it would look like a site whose other half is down.
class Mmperfmon:
    """The collector of a cluster whose sensors mmperfmon knows, run on this host or another node."""

    replayable: ClassVar[bool] = True
    needs_sample_at_end: ClassVar[bool] = False

    def __init__(self, options: CommandOptions, known: Maps, cpu_scale: float, seconds: float) -> None:
        self.step = options.bucket
        self._options = options
        self._cpu_scale = cpu_scale
        self._seconds = seconds
        self._series = Series(known)
        self._commands = Commands()

    async def collect(self, window: Window) -> WindowData:
        """Return a batch per dataset. Raises Transient or Fatal for a failed run, see printed()."""
        rows, dropped = await self._rows(window)
        found = list(batches(rows, window, self.step, self._series, self._cpu_scale))
        return WindowData(found, _records(rows), dropped.counts, why=dropped.why)

    async def count(self, window: Window) -> int | None:
        """Return how many values mmperfmon has for a window by now."""
        rows, _ = await self._rows(window)
        return _records(rows)

    async def close(self) -> None:
        """Do nothing: a command ends with the collect that ran it."""

    async def _rows(self, window: Window) -> tuple[list[Rows], Dropped]:
        dropped = Dropped()
        rows = []
        for query in self._options.queries:
            _, output = await self._output(query, window)
            dropped.take(output.dropped)
            rows += [measured(table, Buckets(dt.UTC, self.step), self._series, window, dropped) for table in output.tables]
        return rows, dropped

    async def printed(self, window: Window) -> dict[str, bytes]:
        """Return what each query printed for a window and the bucket after it, complete. Raises Transient or Fatal."""
        return {query: (await self._output(query, window))[0] for query in self._options.queries}

    async def _output(self, query: str, window: Window) -> tuple[bytes, Output]:
        line = command_line(self._options, query, window)
        text = printed(await self._commands.run(line, key=query, seconds=self._seconds, environment={"COLUMNS": "30000"}), query)
        output = parse(text)
        if missing := [reason for reason in INCOMPLETE if output.dropped.counts[reason]]:
            raise Transient(f"query {query}: the output is incomplete: {', '.join(missing)}")
        if text.strip() and not output.legends:
            raise Transient(f"query {query}: the output has no table, it begins with {text.split()[0].decode(errors='replace')[:100]!r}")
        return text, output


def _records(rows: list[Rows]) -> int:
    return sum(int(part.records.sum()) for part in rows)
