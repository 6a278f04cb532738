"""A writer's sink over a faulty file system, which remembers what it acknowledged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import archive_model as model
import pytest
from archive_model import GAUGE, NAMES, filled, held
from faulty_files import FaultyFiles

from sinks.tts.day_files import DayFiles
from sinks.tts.reopened_days import IDLE_SECONDS
from sinks.tts.sink import TtsSink
from tokiod.archive.layout import daily
from tokiod.archive.seal_marker import marked_files
from tokiod.errors import Refusal
from tokiod.testing.clock import FakeClock
from tokiod.tts.layout import form_of, open_for_reading
from tokiod.tts.live.files import sweep

if TYPE_CHECKING:
    from pathlib import Path

    from tokiod.sink import QuarantinedFile, UnsyncedFile

ROWS = 20
SAMPLES = {name: {row: 100 * row + i + 1 for row in range(ROWS)} for i, name in enumerate(NAMES)}


class FaultyArchive:
    """One day in an archive; acknowledged: the samples that are stored, failed: what commits reported."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.clock = directory, FakeClock(model.EPOCH)
        self.path = directory / "2018-01-29" / "fs.hdf5"
        self.acknowledged: dict[str, dict[int, int]] = {name: {} for name in NAMES}
        self.failed: list[QuarantinedFile | UnsyncedFile] = []
        self.start(FaultyFiles(directory))

    def start(self, files: FaultyFiles) -> None:
        """Start as a writer does."""
        self.files = files
        for temporary in list(self.directory.rglob(".*.tmp")):
            sweep(temporary.parent, files)
        layout = daily(model.CALENDAR, lambda day, system: self.directory / f"{day.date}" / f"{system}.hdf5")
        self.sink = TtsSink(DayFiles(layout, self.clock, files))
        for _ in marked_files(self.directory):
            self.sink.adopt("fs", model.EPOCH)

    def restart(self) -> None:
        """Start another process after this one was killed."""
        self.start(self.files.revive())

    def attempt(self, first: int, last: int, names: tuple[str, ...] = NAMES) -> bool:
        """Apply a window and commit; return whether it is acknowledged."""
        try:
            self.sink.apply(model.window(SAMPLES, first, last, names))
        except Refusal as error:
            assert error.when != "never", error  # noqa: PT017 - what kind of refusal matters
            self.failed += self.sink.commit()
            return False
        failed = self.sink.commit()
        self.failed += failed
        if not failed:
            for name in names:
                self.acknowledged[name] |= {row: SAMPLES[name][row] for row in range(first, last)}
        return not failed

    def store(self, first: int, last: int, names: tuple[str, ...] = NAMES) -> None:
        """Send a window until it is acknowledged."""
        assert any(self.attempt(first, last, names) for _ in range(5)), self.failed

    def seal(self) -> None:
        """Have the day sealed, by as many attempts as it takes."""
        for _ in range(5):
            self.sink.adopt("fs", model.EPOCH, last_used=float("-inf"))
            self.clock.jump(IDLE_SECONDS)
            self.sink.run_maintenance()
            self.failed += self.sink.commit()
            if self.form == "sealed":
                return
        pytest.fail("the day is not sealed")

    @property
    def form(self) -> str:
        """Form of the day's file."""
        with open_for_reading(self.path) as file:
            return form_of(file)

    @property
    def aside(self) -> list[str]:
        """Names of the files that were quarantined."""
        return sorted(path.name for path in self.directory.rglob("*.aside-*"))

    def check(self) -> None:
        """Every acknowledged gauge cell is there."""
        cells = held(self.directory)
        for name, samples in self.acknowledged.items():
            got = cells.get((0, GAUGE, name), {})
            assert {row: got.get(row) for row in samples} == samples, name

    def check_all(self) -> None:
        """All cells are those of the acknowledged samples."""
        assert filled(held(self.directory)) == filled(model.expected(self.acknowledged, 1))
