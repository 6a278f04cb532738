"""Days of an archive for tests of readers: files that were created, filled and left out."""

from datetime import date

import h5py
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


def save_as_pytokio(directory, day, columns, values, step=3600, dataset=READ):
    """Create the file of a day as pytokio does: NaN where the source had none (ESnet's null points), -0.0 where it had nothing."""
    place, group = slot(directory, day), dataset.partition("/")[0]
    with h5py.File(place.path, "w") as file:
        file.attrs.update(version="1", start=place.start, end=place.end)
        file[f"{group}/timestamps"] = np.arange(place.start, place.end, step)
        file[group].attrs["source"] = "esnet_snmp"
        cells = np.full(((place.end - place.start) // step, len(columns)), -0.0)
        values = np.array(values, float).reshape(-1, len(columns))
        cells[: len(values)] = values
        node = file.create_dataset(dataset, data=cells, chunks=True, compression="gzip")
        node.attrs.update(columns=np.array(columns, "S"), units="bytes", version="1", updated=place.end)
    return place
