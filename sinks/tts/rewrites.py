"""What is being done to the files of an archive beside storing windows: at most one thing to each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pathlib import Path

    from sinks.tts.background import Job, Workshop
    from tokiod.archive.layout import Place
    from tokiod.tts.live.live_file import LiveFile
    from tokiod.tts.live.rewrite import Rewrite

What = Literal["made", "grown", "opened", "sealed"]


@dataclass(slots=True)
class Ongoing:
    """Something that was begun; awaited: a window was refused because of it."""

    place: Place
    what: What
    replacement: Rewrite
    job: Job
    awaited: bool = False

    @property
    def has_failed(self) -> bool:
        """Whether it is over and raises at its end."""
        return self.job.is_done() and self.job.error() is not None


class Replacing:
    """Files that are made to replace others, by the path that they are for."""

    def __init__(self, workshop: Workshop) -> None:
        self._workshop = workshop
        self._ongoing: dict[Path, Ongoing] = {}

    def at(self, path: Path) -> Ongoing | None:
        """Return what is being done to a file."""
        return self._ongoing.get(path)

    def begin(self, place: Place, what: What, replacement: Rewrite) -> Ongoing:
        """Let the workshop make a file; sealing is never urgent."""
        job = self._workshop.begin(replacement.work, urgent=what != "sealed")
        self._ongoing[place.path] = ongoing = Ongoing(place, what, replacement, job)
        return ongoing

    def over(self) -> list[Ongoing]:
        """Return what only has to be ended."""
        return [ongoing for ongoing in self._ongoing.values() if ongoing.job.is_done()]

    def is_behind(self, ongoing: Ongoing) -> bool:
        """Whether another file that a window waits for is still to be finished."""
        return any(other.awaited and other is not ongoing and not other.job.is_done() for other in self._ongoing.values())

    def end(self, ongoing: Ongoing) -> LiveFile | None:
        """Put what was made in its place, and return it opened, None where it is sealed. Raises what its making raised, OSError."""
        del self._ongoing[ongoing.place.path]
        try:
            ongoing.job.result()
            return ongoing.replacement.finish()
        except Exception:
            ongoing.replacement.abandon()
            raise

    def give_up(self, path: Path) -> None:
        """Stop what is being done to a file, and leave no trace of it."""
        if (ongoing := self._ongoing.pop(path, None)) is not None:
            ongoing.job.stop()
            ongoing.replacement.abandon()

    def close(self) -> None:
        """Give everything up."""
        for path in list(self._ongoing):
            self.give_up(path)
        self._workshop.close()
