"""All that the writer stores: matrices in TTS files, rows of jobs in the job table. Both are one sink for its loop."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from tokiod.ranges import Ranges

if TYPE_CHECKING:
    from pathlib import Path

    from tokiod.jobs.table import JobTable
    from tokiod.sink import Applied, FileChange, QuarantinedFile, Sink, UnsyncedFile
    from tokiod.window_data import Collected


class ArchiveSink(msgspec.Struct):
    """Passes each window to the parts that hold its data: matrices, rows of jobs, or both."""

    tts: Sink
    jobs: JobTable
    _unreported: defaultdict[str, set[str]] = msgspec.field(default_factory=lambda: defaultdict(set))
    _computed: defaultdict[str, Ranges] = msgspec.field(default_factory=lambda: defaultdict(Ranges))

    def apply(self, collected: Collected) -> Applied:
        """Store a window. Raises Refusal; a window that one part refuses does not count as stored, and comes again."""
        if not collected.batches:
            return self.jobs.apply(collected) if collected.tables else self._with_kept(collected, self.tts.apply(collected))
        cells = self.tts.apply(replace(collected, tables=()))
        if not collected.tables:
            return self._with_kept(collected, cells)
        try:
            rows = self.jobs.apply(replace(collected, batches=()))
        except BaseException:
            self._keep(collected.meta.system, cells)
            raise
        cells = self._with_kept(collected, cells)
        return structs.replace(cells, cells=cells.cells + rows.cells, dropped=cells.dropped + rows.dropped)

    # The next attempt finds the cells in the file and changes none of them.
    def _keep(self, system: str, cells: Applied) -> None:
        """Keep what a window changed whose rows were refused, for the next window of the system."""
        self._unreported[system] |= {*cells.unreported, *(batch.dataset for batch in cells.changes)}
        for start, end in cells.computed:
            self._computed[system].add(start, end)

    def _with_kept(self, collected: Collected, cells: Applied) -> Applied:
        system = collected.meta.system
        computed = Ranges([*cells.computed, *self._computed.pop(system, ())])
        return structs.replace(cells, unreported=cells.unreported | self._unreported.pop(system, set()), computed=computed)

    def commit(self) -> list[QuarantinedFile | UnsyncedFile]:
        """Sync what was applied; return the files whose windows are not stored."""
        return [*self.tts.commit(), *self.jobs.commit()]

    @property
    def is_busy(self) -> bool:
        """Whether rewrites or merges are in progress."""
        return self.jobs.is_busy or self.tts.is_busy

    def run_maintenance(self) -> list[FileChange]:
        """Go on with rewrites and merges; return which TTS files changed."""
        self.jobs.run()
        return self.tts.run_maintenance()

    def prepare(self, system: str, time: int) -> None:
        """Begin to create the TTS file that holds a time."""
        self.tts.prepare(system, time)

    def seal(self, system: str, time: int) -> bool:
        """Begin to seal a TTS file."""
        return self.tts.seal(system, time)

    def adopt(self, system: str, time: int, last_used: float | None = None) -> None:
        """Take over a TTS file that is to be sealed."""
        self.tts.adopt(system, time, last_used)

    def miss(self, path: Path) -> None:
        """Stop using a TTS file that was found missing."""
        self.tts.miss(path)

    def seal_reopened(self) -> list[FileChange]:
        """Seal the days that were reopened."""
        return self.tts.seal_reopened()

    def close(self) -> None:
        """Release all files."""
        self.jobs.close()
        self.tts.close()
