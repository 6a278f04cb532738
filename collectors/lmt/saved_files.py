"""Saved copies of LMT databases, or a server whose data is complete."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from collectors.lmt.client import database
from collectors.lmt.client_sqlite import Sqlite
from collectors.lmt.collector import Lmt, Options
from collectors.lmt.config import url_faults
from collectors.lmt.to_batches import merged
from tokiod.dropped import Dropped
from tokiod.errors import TokiodError
from tokiod.sample_spans import joined
from tokiod.window_data import WindowData

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collectors.lmt.client import Database
    from collectors.lmt.config import Saved
    from tokiod.batch import Batch
    from tokiod.collector import SavedCollector, Site
    from tokiod.window import Window

SQLITE_HEADER = b"SQLite format 3\0"


def opened(inputs: Sequence[str | Path], options: Saved, site: Site) -> SavedCollector:
    """Return the collector of saved copies, or of a server whose data is complete; local times are in the site's time zone.

    Raises TokiodError for a file that is missing or not SQLite, and for an invalid URL.
    """
    how = Options(options.step, site.calendar.zone, asserted=True, filesystem=options.filesystem, mdt_names=options.mdt_names)
    copies = [Lmt(_database(str(name), options, site), how, site) for name in inputs]
    return copies[0] if len(copies) == 1 else Copies(copies)


def _database(name: str, options: Saved, site: Site) -> Database:
    if "://" not in name:
        _check_header(Path(name))
        return Sqlite(Path(name), finished=True)
    for fault in url_faults(name):
        raise TokiodError(fault)
    found = database(name, options, site, finished=True)
    if isinstance(found, Sqlite):
        _check_header(found.path)
    return found


def _check_header(path: Path) -> None:
    try:
        with path.open("rb") as file:
            header = file.read(len(SQLITE_HEADER))
    except OSError as error:
        raise TokiodError(f"{path} cannot be read: {error.strerror}") from None
    if header != SQLITE_HEADER:
        raise TokiodError(f"{path} is not a SQLite file: archive lmt reads copies of LMT databases in SQLite")


class Copies:
    """Copies of one file system's database, such as one per day. Where several hold a cell, the last one named wins."""

    replayable: ClassVar[bool] = True
    needs_sample_at_end: ClassVar[bool] = True

    def __init__(self, copies: Sequence[Lmt]) -> None:
        self.step = copies[0].step
        self._copies = copies

    async def collect(self, window: Window) -> WindowData:
        """Return a batch per dataset."""
        found = [await copy.collect(window) for copy in self._copies]
        dropped = Dropped()
        for data in reversed(found):
            dropped.note(data.dropped, data.why)
        parts: dict[str, list[Batch]] = {}
        for batch in (batch for data in found for batch in data.batches):
            parts.setdefault(batch.dataset, []).append(batch)
        return WindowData([merged(some, window) for some in parts.values()], None, dropped.counts, why=dropped.why)

    async def count(self, window: Window) -> int | None:
        """Return the number of rows of all copies."""
        counts = [await copy.count(window) for copy in self._copies]
        return sum(count or 0 for count in counts)

    async def spans(self) -> list[Window]:
        """Return the spans with time stamps of all copies."""
        spans = [span for copy in self._copies for span in await copy.spans()]
        return joined(spans)

    async def close(self) -> None:
        """Close the files."""
        for copy in self._copies:
            await copy.close()
