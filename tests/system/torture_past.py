"""The past of a tortured archive: forty days of three systems, older than any retention. No process may change a cell of them."""

from __future__ import annotations

import hashlib
import subprocess
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import h5py
import numpy as np

from sinks.tts.day_files import DayFiles
from sinks.tts.sink import TtsSink
from tokiod.archive.layout import daily
from tokiod.batch import Batch
from tokiod.clock import SystemClock
from tokiod.tts.live.files import UNSYNCED
from tokiod.window import Calendar, Window
from tokiod.window_data import Collected, WindowMeta

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator
    from pathlib import Path

    from tokiod.archive.layout import FileSlot
    from tokiod.simulator.scene import Scene

DAYS = 40
GAP_DAYS = 3
"""Between the past and the first day that a source is asked for: no difference reaches over them."""
SYSTEMS = {
    "demo": ("lmt", "datatargets/readbytes", 5),
    "net": ("esnet_snmp", "datatargets/readrates", 30),
    "gpfs": ("mmperfmon", "datatargets/readbytes", 60),
}
"""Kind, dataset and step of each system; that of LMT is a counter."""
LOOKED_AT = 4
"""Files of which every cell is read at each look; at the end all are."""


@dataclass
class Past:
    """The files, and a digest of the cells of each."""

    files: dict[Path, str] = field(default_factory=dict)

    @classmethod
    def made(cls, scene: Scene) -> Past:
        """Make the files: sealed ones, and the oldest of each system, live, which the daemon seals."""
        calendar = Calendar(scene.site.timezone)
        layout = daily(calendar, scene.config.archive.file)
        with closing(TtsSink(DayFiles(layout, SystemClock(), UNSYNCED, compare=False))) as sink:
            for system in SYSTEMS:
                slots = list(_slots(calendar, scene.site.epoch, system, layout))
                for number, slot in enumerate(slots):
                    for window in calendar.split(Window(slot.start, slot.end), 6 * 3600):
                        sink.apply(_collected(system, window))
                    sink.commit()
                    # The newest day first, so that the state before each is known when it is sealed.
                    if number:
                        assert sink.seal(system, slots[number - 1].start)
                        assert not any(done.error for done in sink.run_maintenance())
        # An error of the disk soon after would leave zeros in what was never synced.
        subprocess.run(["sync", "--file-system", str(scene.config.archive.root)], check=True)
        paths = [slot.path for system in SYSTEMS for slot in _slots(calendar, scene.site.epoch, system, layout)]
        return cls({path: digest(path) for path in paths})

    def wrong(self, rng: random.Random | None) -> list[str]:
        """Return what is not as it was, of a few files, or of all without rng; that they are there, of all."""
        missing = [path for path in self.files if not path.exists()]
        chosen = list(self.files) if rng is None else rng.sample(list(self.files), min(LOOKED_AT, len(self.files)))
        return [
            *(f"{path} of the past is lost" for path in missing),
            *(f"{path} of the past has changed" for path in chosen if path not in missing and digest(path) != self.files[path]),
        ]


def digest(path: Path) -> str:
    """Return a digest of all cells of a file, live or sealed."""
    found = hashlib.sha256()
    with h5py.File(path, "r", locking=False) as file:
        for dataset in sorted({dataset for _, dataset, _ in SYSTEMS.values()} & {f"datatargets/{name}" for name in file["datatargets"]}):
            found.update(dataset.encode() + file[dataset][...].tobytes())
    return found.hexdigest()


def _slots(calendar: Calendar, epoch: int, system: str, layout: object) -> Iterator[FileSlot]:
    end = calendar.day(epoch).start - GAP_DAYS * 86400
    for _ in range(DAYS):
        slot = layout(system, end - 1)
        yield slot
        end = slot.start


def _collected(system: str, window: Window) -> Collected:
    kind, dataset, step = SYSTEMS[system]
    time = np.arange(window.start, window.end, step)
    form, value = ("counter", time - 10**9) if kind == "lmt" else ("gauge", (time % 997).astype(np.float64))
    batch = Batch(dataset, form, step, ("OST0000",), time, np.zeros(len(time), np.uint32), value)
    return Collected(WindowMeta(f"demo-{kind}", kind, system, window, records=len(time)), [batch])
