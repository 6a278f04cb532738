"""The sensor paging: pages have the size of this machine's, or the one that is given."""

import os

import pytest

from tokiod.agent.sensor import Absent, Readings
from tokiod.agent.sensors.paging import Paging
from tokiod.agent.tree import Tree

LINES = (
    "pgpgin",
    "pgpgout",
    "pswpin",
    "pswpout",
    "pgfault",
    "pgmajfault",
    "oom_kill",
    "numa_miss",
    "thp_fault_alloc",
    "pgfree",
    "x_pgfault",
)
VMSTAT = "".join(f"{name} {number}\n" for number, name in enumerate(LINES, 1))


def sampled(root, text, **options):
    (root / "proc").mkdir()
    (root / "proc/vmstat").write_text(text)
    sensor, readings = Paging(Tree(str(root)), **options), Readings()
    sensor.find()
    sensor.sample(readings, 0.0)
    sensor.close()
    return readings


@pytest.mark.parametrize(("options", "page"), [({}, os.sysconf("SC_PAGE_SIZE")), ({"page_bytes": 100}, 100)])
def test_blocks_and_pages_are_bytes_and_all_else_is_a_count(tmp_path, options, page):
    readings = sampled(tmp_path, VMSTAT, **options)
    assert {name: value for (name, _), value in readings.values.items()} == {
        "paged_in": 1024, "paged_out": 2 * 1024, "swapped_in": 3 * page, "swapped_out": 4 * page, "page_faults": 5,
        "major_page_faults": 6, "oom_kills": 7, "numa_misses": 8, "huge_page_faults": 9,
    }  # fmt: skip


def test_a_file_without_page_faults_is_malformed_and_a_node_without_it_says_so(tmp_path):
    assert sampled(tmp_path, "pgfree 1\n").examples == {"malformed": "ValueError: no line pgfault in /proc/vmstat"}
    with pytest.raises(Absent, match=r"^no /proc/vmstat$"):
        Paging(Tree(str(tmp_path / "none"))).find()
