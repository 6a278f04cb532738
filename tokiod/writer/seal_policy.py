"""Which days are to be sealed.

A day is sealed once it is over, nothing is missing in it of any source of its system, and the next day's first window is stored or
lost, because the last differences need it; or, with something missing, when the grace time is over and nothing has come for an hour: a
day that is being healed is left alone. Sealing waits for `keep_live_days` more, unless the disk gets full.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokiod.archive.layout import Place
    from tokiod.collector import SourceConfig
    from tokiod.config.load import Config
    from tokiod.ledger.ledger import Ledger

CALM = 3600.0
"""Seconds without a change after which nothing more is expected of a day that is incomplete."""
DAY = 86400


class Due:
    """Which days are to be sealed, as the ledger stands at one look."""

    def __init__(self, config: Config, ledger: Ledger, now: float, *, scarce: bool) -> None:
        self._config = config
        self._ledger = ledger
        self._now = now
        self._scarce = scarce
        self._since = {status.name: status.since for status in ledger.sources()}
        self._jobs = [job for source in config.source for job in ledger.jobs.unfinished(source.name)]

    def __call__(self, place: Place, changed_at: float) -> bool:
        """Tell whether a day that is over is due; changed_at: the clock's time at which its file last changed."""
        archive, age = self._config.archive, self._now - place.end
        if age < archive.keep_live_days * DAY and not self._scarce:
            return False
        sources = {source.name: source for source in self._config.source if source.system == place.system}
        if any(job.source in sources and job.start < place.end and place.start < job.end for job in self._jobs):
            return False
        given_up = age >= archive.seal_after and not 0 <= self._now - changed_at < CALM
        return given_up or all(self._is_complete(source, place) for source in sources.values())

    def _is_complete(self, source: SourceConfig, place: Place) -> bool:
        """Tell whether nothing more is to come for a day: of a folder, that is never known."""
        since = self._since.get(source.name)
        if not source.polled or since is None:
            return False
        return since >= place.end or self._ledger.watermark(source.name, max(place.start, since)) >= place.end + source.window
