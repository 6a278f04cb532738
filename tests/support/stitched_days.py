"""Days of an archive for tests of readers: files that were created, filled and left out."""

from datetime import date

import numpy as np

from tokiod.archive.layout import FileSlot
from tokiod.tts.live.create import create
from tokiod.tts.live.live_file import LiveFile
from tokiod.tts.sealed.seal import seal
from tokiod.tts.spec import FileSpec, GroupSpec, MatrixSpec
from tokiod.window import Calendar

READ = "datatargets/readbytes"
SITE = Calendar("America/Los_Angeles")


def slot(directory, day):
    """Return the slot of a day of January 2018."""
    found = SITE.day_of_date(date(2018, 1, day))
    return FileSlot("fs", directory / f"{day}.hdf5", found.start, found.end)


def save(directory, day, columns, values, step=3600, dataset=READ, *, is_sealed=False):
    """Create the file of a day: values[rows, columns] from its start on, NaN where missing; the rest is missing. Return its slot."""
    place = slot(directory, day)
    groups = {dataset.partition("/")[0]: GroupSpec(step, "lmt")}
    create(place.path, FileSpec(place.start, place.end, groups, {dataset: MatrixSpec(tuple(columns), counter=False)}), created=place.start)
    file = LiveFile.open(place.path)
    cells = np.array(values, float).reshape(-1, len(columns))
    file.cells[dataset].write_rows(0, np.where(np.isnan(cells), -0.0, cells))
    file.commit()
    file.close()
    if is_sealed:
        seal(place.path, place.path, updated=place.end)
    return place
