"""Sealed days that were opened up for late data: each has a mark beside it, and is to be sealed again once nothing more comes for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tokiod.archive.layout import Place
    from tokiod.clock import Clock

QUIET = 60.0
"""Seconds after which a day that was opened up is sealed again, if nothing more came for it."""
MARK = ".opened"


def marked(path: Path) -> Path:
    """Return the mark beside a file that was sealed and is opened up: it is to be sealed again, whatever happens meanwhile."""
    return path.with_name(f".{path.name}{MARK}")


class OpenedUp:
    """The files that are to be sealed again, and when the last window came for each."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._used: dict[Path, tuple[Place, float]] = {}

    @property
    def paths(self) -> list[Path]:
        """All of them, the one that was opened up first."""
        return list(self._used)

    def begin(self, place: Place) -> None:
        """Mark a file that is about to be opened up."""
        marked(place.path).touch()
        self._used[place.path] = place, self._clock.time()

    def adopt(self, place: Place, used: float | None) -> None:
        """Take over a file that has a mark, unless it is known. used: the clock's time of its last window, None for now."""
        self._used.setdefault(place.path, (place, self._clock.time() if used is None else used))

    def use(self, place: Place) -> None:
        """Note that something comes for a file, if it is one of these."""
        if place.path in self._used:
            self._used[place.path] = place, self._clock.time()

    def quiet(self, seconds: float) -> list[Place]:
        """Return those for which nothing has come for so long."""
        now = self._clock.time()
        return [place for place, used in self._used.values() if not 0 <= now - used < seconds]

    def end(self, path: Path) -> None:
        """Forget a file that is sealed, or gone, and take its mark away."""
        self._used.pop(path, None)
        marked(path).unlink(missing_ok=True)
