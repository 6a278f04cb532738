"""The sensor lustre_client: what programs did on each mount, in the form of any version."""

import pytest

from tokiod.agent.sensor import Absent, Readings
from tokiod.agent.sensors.lustre_client import PLACES, LustreClient
from tokiod.agent.tree import Tree

STATS = """snapshot_time             1510950459.772792457 secs.nsecs
read_bytes                3 samples [bytes] 1 2 30{squares}
write_bytes               4 samples [bytes] 1 2 40{squares}
open                      5 samples {unit}
seek                      6 samples {unit}
ioctl                     7 samples {unit}
"""
OLD, NEW = STATS.format(squares="", unit="[regs]"), STATS.format(squares=" 999", unit="[usecs] 1 2 3 4")


def put(root, place, mount, text):
    (root / place / mount).mkdir(parents=True)
    (root / place / mount / "stats").write_text(text)


def sampled(root):
    sensor, readings = LustreClient(Tree(str(root))), Readings()
    sensor.find()
    sensor.sample(readings, 0.0)
    sensor.close()
    return readings


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("text", [OLD, NEW])
def test_bytes_are_sums_and_all_else_is_calls(tmp_path, place, text):
    put(tmp_path, place, "scratch-ff1", text)
    assert sampled(tmp_path).values == {
        (f"lustre_{name}", "scratch-ff1"): value
        for name, value in {"reads": 3, "read": 30, "writes": 4, "written": 40, "open": 5, "seek": 6}.items()
    }


def test_a_line_or_file_that_is_garbage_takes_no_other_with_it(tmp_path):
    put(tmp_path, PLACES[0], "a", OLD.replace("30\n", "x\n"))
    put(tmp_path, PLACES[0], "b", "open 5 samples\n")
    put(tmp_path, PLACES[0], "c", OLD)
    (tmp_path / PLACES[0] / "d").mkdir()
    readings = sampled(tmp_path)
    assert {mount: sum(of == mount for _, of in readings.values) for mount in "abcd"} == {"a": 4, "b": 0, "c": 6, "d": 0}
    assert readings.drops == {"malformed": 2}


def test_a_file_of_other_words_is_named(tmp_path):
    put(tmp_path, PLACES[0], "b", "")
    assert sampled(tmp_path).examples == {"malformed": "ValueError: the statistics of b do not begin with snapshot_time"}


def test_a_node_without_a_mount_says_so_and_what_was_forbidden(tmp_path, monkeypatch):
    with pytest.raises(Absent, match=r"^no Lustre mount, or its statistics are for root alone$"):
        sampled(tmp_path)
    names = Tree.names

    def forbidden(tree, place):
        if place == PLACES[1]:
            raise PermissionError(13, "Permission denied")
        return names(tree, place)

    monkeypatch.setattr(Tree, "names", forbidden)
    with pytest.raises(Absent, match=r"for root alone; /sys/kernel/debug/lustre/llite: no permission$"):
        sampled(tmp_path)
