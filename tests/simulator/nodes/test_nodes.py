"""Simulated nodes: each process computes the same rows, jobs are those of the file system, and what nodes measure follows from them."""

import math
import stat
from itertools import pairwise

import pytest

from tokiod.agent.keys import read_keys
from tokiod.clock import SimulatedClock
from tokiod.simulator.jobs.work import Work
from tokiod.simulator.nodes import METRICS, STEP, Cluster, NodeAnswers, SimulatedRows, make_keys
from tokiod.simulator.site import Site
from tokiod.window import Window

EPOCH = 1_517_126_400
SITE = Site(EPOCH, seed=3)
SPAN = range(EPOCH + 3600, EPOCH + 4 * 3600, STEP)


@pytest.fixture(scope="module")
def rows():
    """The rows of all jobs by job, in the order of time."""
    cluster, found = Cluster(SITE), {}
    for start in SPAN:
        for node in cluster.names:
            for job, *row in cluster.jobs(node, start):
                found.setdefault((job, node), []).append((start, *row))
    return found


def test_the_jobs_are_those_that_the_servers_of_the_file_system_count(rows):
    lives = Work(SITE).lives(SPAN.start, SPAN.stop)
    counted = {life.identity for life in lives if life.times[-1] >= SPAN.start and life.times[0] < SPAN.stop}
    on_nodes = {(identity.split(":")[0], identity.split(":")[2]) for identity in counted if ":" in identity}
    assert {(job.removeprefix("slurm:"), node) for job, node in rows} >= on_nodes
    assert len(rows) > 30


def test_a_job_ends_once_in_its_last_row_and_its_cpu_time_grows_with_its_time(rows):
    for of_job in rows.values():
        starts, begins, times, ended, values = zip(*of_job, strict=True)
        assert [b - a for a, b in pairwise(starts)] == [STEP] * (len(starts) - 1)
        assert len(set(begins)) == 1
        assert sum(ended[:-1]) == 0
        assert all(start <= time < start + STEP for start, time in zip(starts, times, strict=True))
        cores = {round(cpu / (time - begin), 6) for begin, time, (cpu, _) in zip(begins, times, values, strict=True) if time > begin}
        assert len(cores) <= 1


def test_a_nodes_cpu_time_is_that_of_its_jobs():
    cluster = Cluster(SITE)
    for start in list(SPAN)[::7]:
        for node in cluster.names[::5]:
            inside = sum(job.cores * job.seconds(start, start + STEP) for job in cluster._running(node, start))
            assert 0 <= cluster.values(node, start)["cpu_user"] - inside <= 1


def test_the_answer_has_what_each_agent_sends_of_the_stored_rows():
    file, stored = Window(EPOCH, EPOCH + 86400), [Window(EPOCH + 600, EPOCH + 720)]
    clock = SimulatedClock(float(EPOCH + 1800), 0.0, 1.0)
    cluster, answers = Cluster(SITE), NodeAnswers(SITE, stored).of(file)
    assert set(answers) == {f"nodes/{metric.name}" for metric in METRICS}
    for name, answer in answers.items():
        filled = {
            (int(answer.timestamps[i]), answer.columns[j]): answer.values[i, j] for i, j in zip(*(~nan(answer)).nonzero(), strict=True)
        }
        expected = {
            (start, node): SimulatedRows(cluster, node, clock).values(float(start))[0][name.removeprefix("nodes/")]
            for start in (EPOCH + 600, EPOCH + 660)
            for node in cluster.names
        }
        assert filled == expected


def nan(answer):
    return answer.values != answer.values


def test_an_agent_has_the_last_hour_since_the_epoch_in_memory():
    class Clock:
        now = EPOCH + 90.0

        def time(self):
            return self.now

    clock = Clock()
    rows = SimulatedRows(Cluster(SITE), "nid00001", clock)
    assert rows.starts() == [EPOCH, EPOCH + 60]
    clock.now = EPOCH + 7200.0
    assert (len(rows.starts()), rows.starts()[-1]) == (60, EPOCH + 7200)
    assert all(math.isfinite(value) for value in rows.values(rows.starts()[3])[0].values())


def test_keys_are_made_once_and_secret_ones_are_for_their_owner_alone(tmp_path):
    make_keys(tmp_path / "keys")
    first = read_keys(str(tmp_path / "keys/hub.key"), str(tmp_path / "keys/compute.key_secret"))
    make_keys(tmp_path / "keys")
    assert read_keys(str(tmp_path / "keys/hub.key"), str(tmp_path / "keys/compute.key_secret")) == first
    assert stat.S_IMODE((tmp_path / "keys/hub.key_secret").stat().st_mode) == 0o600
    assert [path.name for path in (tmp_path / "keys/clients").iterdir()] == ["compute.key"]
