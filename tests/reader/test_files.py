"""Which files are found: those of the template, whatever its fields are, of each system by day."""

import datetime as dt

import pytest

from tokiod.config.sections import ArchiveConfig
from tokiod.reader.files import day_files
from tokiod.window import Calendar

SITE = Calendar("America/Los_Angeles")
NOW = SITE.day_of_date(dt.date(2018, 3, 12)).start + 3600
DATES = [dt.date(2017, 12, 31), dt.date(2018, 3, 11), dt.date(2018, 3, 12), dt.date(2018, 3, 13)]


@pytest.mark.parametrize("template", ["%Y-%m-%d/{system}.hdf5", "{system}/%Y/%j.hdf5", "%d.%b.%y-{system}.h5"])
def test_files_of_each_system_are_found_by_day(tmp_path, template):
    archive = ArchiveConfig(path=f"{tmp_path}/{template}")
    for system, dates in {"b": DATES, "a": DATES[:1], "other": DATES}.items():
        for date in dates:
            path = archive.file_of(date, system)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bytes(date.day))
    found = list(day_files(archive, SITE, ["b", "a"], NOW))
    assert [(one.system, one.day.date, one.nbytes) for one in found] == [("a", DATES[0], 31), *(("b", date, date.day) for date in DATES)]
    assert all(one.path == archive.file_of(one.day.date, one.system) and one.day == SITE.day_of_date(one.day.date) for one in found)


def test_an_archive_without_files_has_none(tmp_path):
    assert list(day_files(ArchiveConfig(path=f"{tmp_path}/none/%Y-%m-%d/{{system}}.hdf5"), SITE, ["a"], NOW)) == []
