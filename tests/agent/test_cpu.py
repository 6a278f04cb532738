"""The sensor cpu: what is read ahead is understood as the mean of the states, and counts as they were last."""

import pytest

from tokiod.agent.sensor import Absent, Readings
from tokiod.agent.sensors.cpu import Cpu
from tokiod.agent.tree import Tree

TIMES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest", "guest_nice")


def stat(running=1, blocked=0, more=0):
    ticks = " ".join(str(100 * number + more) for number in range(1, 11))
    counts = f"intr {20 + more} 1 2\nctxt {30 + more}\nbtime 1\nprocesses {40 + more}\n"
    return f"cpu  {ticks}\ncpu0 1 2\n{counts}procs_running {running}\nprocs_blocked {blocked}\nsoftirq 1 2\n"


@pytest.fixture
def node(tmp_path):
    """Return what writes /proc/stat, and the sensor."""
    (tmp_path / "proc").mkdir()
    sensor = Cpu(Tree(str(tmp_path)), ticks=100)
    yield (tmp_path / "proc/stat").write_text, sensor
    sensor.close()


def counted(more=0):
    return {
        **{(f"cpu_{state}", ""): number + more / 100 for number, state in enumerate(TIMES, 1)},
        ("interrupts", ""): 20 + more, ("context_switches", ""): 30 + more, ("forks", ""): 40 + more,
    }  # fmt: skip


def test_a_sample_has_all_counts_and_states(node):
    write, sensor = node
    write(stat(3, 2))
    readings = Readings()
    sensor.sample(readings, 0.0)
    assert readings.values == {**counted(), ("processes_running", ""): 3, ("processes_blocked", ""): 2}
    assert (readings.samples, readings.drops) == ({}, {})


def test_what_is_read_ahead_is_the_last_counts_and_the_mean_of_the_states(node):
    write, sensor = node
    for states in (((3, 0), (5, 2), (4, 1)), ((7, 6),)):
        for more, (running, blocked) in enumerate(states):
            write(stat(running, blocked, more))
            assert sensor.read_ahead(0.0, is_rare=False) is True
        readings = Readings()
        sensor.understand(readings)
        running, blocked = (sum(one) / len(states) for one in zip(*states, strict=True))
        assert readings.values == {**counted(len(states) - 1), ("processes_running", ""): running, ("processes_blocked", ""): blocked}
        assert readings.samples == {("processes_running", ""): len(states), ("processes_blocked", ""): len(states)}
    readings = Readings()
    sensor.understand(readings)
    assert (readings.values, readings.samples) == ({}, {})


@pytest.mark.parametrize("text", [stat(more=5).partition("procs_blocked")[0], stat("x"), "cpu 1 2\n", ""])
def test_what_has_no_states_is_not_read_ahead(node, text):
    write, sensor = node
    write(stat(4, 1))
    assert sensor.read_ahead(0.0, is_rare=False)
    write(text)
    assert sensor.read_ahead(1.0, is_rare=False) is False
    readings = Readings()
    sensor.understand(readings)
    assert readings.values == {**counted(), ("processes_running", ""): 4, ("processes_blocked", ""): 1}


@pytest.mark.parametrize(
    ("text", "count", "example"),
    [
        (stat().replace("ctxt", "x"), 1, "ValueError: no line ctxt in /proc/stat"),
        (stat().partition("btime")[0], 3, "ValueError: no line processes in /proc/stat"),
        (stat().partition("\nsoftirq")[0], 1, "ValueError: the line procs_blocked of /proc/stat has no end"),
    ],
)
def test_a_line_that_is_missing_or_cut_is_counted(node, text, count, example):
    write, sensor = node
    write(text)
    readings = Readings()
    sensor.sample(readings, 0.0)
    assert (readings.drops, readings.examples) == ({"malformed": count}, {"malformed": example})
    assert readings.values["interrupts", ""] == 20


def test_a_node_without_proc_stat_says_so(node):
    with pytest.raises(Absent, match=r"^no /proc/stat$"):
        node[1].find()
    node[0]("")
    node[1].find()
