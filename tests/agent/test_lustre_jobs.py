"""job_stats: the values are those of the publishers' own tests, and only what changed is parsed."""

from pathlib import Path

import pytest

from tokiod.agent.sensor import Absent, Readings
from tokiod.agent.sensors.lustre_jobs import LustreJobs
from tokiod.agent.tree import Tree

DATA = Path(__file__).parent / "job_stats"
TELEGRAF = b"obdfilter.OST0001.job_stats=\n" + (DATA / "telegraf_v2.12_obdfilter_OST0001.txt").read_bytes()
WHAMCLOUD = (DATA / "lustrefs_exporter_lctl_get_param.txt").read_bytes()


def read(sensor, text):
    readings = Readings()
    sensor.read(readings, text)
    return readings


@pytest.fixture
def sensor(tmp_path):
    return LustreJobs(Tree(str(tmp_path)))


def test_the_values_are_those_of_telegrafs_tests(sensor):
    readings = read(sensor, TELEGRAF)
    assert dict(readings.drops) == {}
    used = {"reads": 1, "read": 4096, "writes": 25, "written": 26214400, "punch": 1}
    unused = ("getattr", "setattr", "sync", "destroy", "create", "statfs", "get_info", "set_info", "quotactl")
    assert {name: value for (job, where, name), value in readings.jobs.items() if (job, where) == ("cluster-testjob1", "OST0001")} == {
        f"job_lustre_{name}": value for name, value in {**used, **dict.fromkeys(unused, 0)}.items()
    }
    assert {job for job, *_ in readings.jobs} == {"cluster-testjob1", "testjob2"}


def test_a_new_server_reports_start_and_latencies_too(sensor):
    readings = read(sensor, WHAMCLOUD)
    assert dict(readings.drops) == {}
    assert sensor.parsed == WHAMCLOUD.count(b"- job_id:")
    sums = {metric: sum(value for (*_, name), value in readings.jobs.items() if name == metric) for *_, metric in readings.jobs}
    for operation, metric in {"read_bytes": "job_lustre_read", "write_bytes": "job_lustre_written"}.items():
        assert sums[metric] == total(WHAMCLOUD, operation)


def total(text, operation):
    """Return the sum over all jobs, as a slow and obvious reader of the text finds it."""
    found = 0
    for line in text.decode().splitlines():
        words = line.replace("{", " ").replace("}", " ").replace(",", " ").split()
        if words and words[0] == f"{operation}:" and "sum:" in words:
            found += int(words[words.index("sum:") + 1])
    return found


def test_only_jobs_that_changed_are_parsed_again(sensor):
    read(sensor, TELEGRAF)
    assert sensor.parsed == 2
    assert read(sensor, TELEGRAF).jobs == {}
    assert sensor.parsed == 2
    changed = TELEGRAF.replace(b"sum:           51200", b"sum:           51300")
    assert changed != TELEGRAF
    assert {key: value for key, value in read(sensor, changed).jobs.items() if key[2] == "job_lustre_written"} == {
        ("testjob2", "OST0001", "job_lustre_written"): 51300
    }
    assert sensor.parsed == 3


@pytest.mark.parametrize(
    ("job", "shown"),
    [
        (b'"cp.0 alice"', "cp.0 alice"),
        (b'"\x1b[2J"', "\\x1b[2J"),
        (b"a" * 5000, "a" * 128),
        (b"\xff\xfe.0", "\\xff\\xfe.0"),
        (b'"with \\" and : {"', 'with \\" and : {'),
    ],
)
def test_names_of_jobs_are_what_users_chose_and_harmless(sensor, job, shown):
    readings = read(sensor, TELEGRAF.replace(b"testjob2", job))
    assert shown in {name for name, *_ in readings.jobs}
    assert dict(readings.drops) == {}


NO_LINE = "no line TARGET.job_stats= in the output"


@pytest.mark.parametrize(
    ("text", "count", "example"),
    [
        (b"", 1, NO_LINE),
        (b"\0" * 100, 1, NO_LINE),
        (b"obdfilter.x.job_stats=\n- job_id:", 1, "ValueError: a block without the end of its job_id"),
        (b"mdt.x.job_stats=\nnonsense\n- job_id: a\n  open: {\n", 2, "x: nonsense"),
        (b"mdt.x.job_stats=\n" + b"n" * 65 + b"\n- job_id: a\n  open: {\n", 2, "x: " + "n" * 64),
        (b"mdt.x.job_stats=\njob_stats:\n- job_id: a\n  open: {\n", 1, "ValueError: the block of job a on x has no operation"),
    ],
)
def test_garbage_is_counted(sensor, text, count, example):
    readings = read(sensor, text)
    assert (readings.jobs, readings.drops, readings.examples) == ({}, {"malformed": count}, {"malformed": example})


def test_a_node_without_lustre_or_its_command_says_so(tmp_path):
    with pytest.raises(Absent, match=r"^no Lustre target on this node$"):
        LustreJobs(Tree(str(tmp_path))).find()
    with pytest.raises(Absent, match=r"^no command /no/such/lctl$"):
        LustreJobs(Tree(str(tmp_path)), ["/no/such/lctl"]).find()
    for place in ("proc/fs/lustre/mdt", "sys/fs/lustre/obdfilter"):
        target = tmp_path / place.replace("/", "-") / place / "t"
        target.mkdir(parents=True)
        with pytest.raises(Absent, match=r"^no command lctl$"):
            LustreJobs(Tree(str(tmp_path / place.replace("/", "-")))).find()


def test_every_cut_of_the_text_is_survived(sensor):
    for end in range(0, len(WHAMCLOUD), 97):
        read(sensor, WHAMCLOUD[:end])
