"""Which sources fill a dataset that is stored, or computed from what is stored."""

from typing import NamedTuple

import pytest

from tokiod.reader.derived import sources_of


class Source(NamedTuple):
    name: str
    system: str
    filled: tuple[str, ...]

    def datasets(self):
        return frozenset(self.filled)


SOURCES = [
    Source("lmt", "fs", ("datatargets/readbytes", "mdservers/cpuload")),
    Source("user", "fs", ("dataservers/cpuuser",)),
    Source("sys", "fs", ("dataservers/cpusys",)),
    Source("rates", "fs", ("datatargets/writebytes", "datatargets/writerates")),
    Source("other", "fs2", ("datatargets/readrates", "dataservers/cpuload")),
    Source("part", "fs2", ("mdservers/cpuuser",)),
]


@pytest.mark.parametrize(
    ("dataset", "system", "names"),
    [
        ("datatargets/readbytes", "fs", ["lmt"]),
        ("datatargets/readrates", "fs", ["lmt"]),
        ("datatargets/readrates/missing", "fs", ["lmt"]),
        ("datatargets/readbytes", "fs2", ["other"]),
        ("mdservers/cpuidle", "fs", ["lmt"]),
        ("dataservers/cpuload", "fs", ["user", "sys"]),
        ("dataservers/cpuload", "fs2", ["other"]),
        ("datatargets/writerates", "fs", ["rates"]),
        ("mdservers/cpuload", "fs2", []),
        ("datatargets/opens", "fs", []),
    ],
)
def test_the_sources_of_a_dataset_fill_it_or_all_that_it_is_computed_from(dataset, system, names):
    assert [one.name for one in sources_of(dataset, system, SOURCES)] == names
