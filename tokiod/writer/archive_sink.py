"""All that the writer stores: matrices in TTS files, rows of jobs in the job table. Both are one sink for its loop."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

if TYPE_CHECKING:
    from pathlib import Path

    from tokiod.jobs.table import JobTable
    from tokiod.sink import Applied, FileChange, QuarantinedFile, Sink, UnsyncedFile
    from tokiod.window_data import Collected


class ArchiveSink(msgspec.Struct):
    """Passes each window to the parts that hold its data: matrices, rows of jobs, or both."""

    tts: Sink
    jobs: JobTable

    def apply(self, collected: Collected) -> Applied:
        """Store a window. Raises Refusal; a window that one part refuses does not count as stored, and comes again."""
        if not (collected.tables and collected.batches):
            return (self.jobs if collected.tables else self.tts).apply(collected)
        cells = self.tts.apply(replace(collected, tables=()))
        rows = self.jobs.apply(replace(collected, batches=()))
        return structs.replace(cells, cells=cells.cells + rows.cells, dropped=cells.dropped + rows.dropped)

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
