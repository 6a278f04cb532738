"""The live collector and saved outputs, over scripts that play lctl on several servers."""

import asyncio
import gzip
import os
import re
from collections import Counter
from pathlib import Path

import job_rows
import jobstats_text
import pytest
from job_commands import COMMON, MADE, UIDS, commanded_ids, secrets
from jobstats_servers import MDT0, NOW, OST0, OST1, START, Servers, job

from collectors import lustre_jobstats
from collectors.lustre_jobstats import parse, to_rows
from tokiod.collector import Site
from tokiod.dropped import Why
from tokiod.errors import Fatal, TokiodError, Transient
from tokiod.jobs.identity import JobIdentities
from tokiod.testing.clock import FakeClock
from tokiod.testing.collector_contract import CollectorContract, samples, within
from tokiod.window import Calendar, Window
from tokiod.window_data import JOB_TABLE, Collected, WindowMeta, job_parts

SHARED = Path(os.environ.get("TOKIOD_SHARED", Path(__file__).parents[4] / "shared"))
STRANGERS = SHARED / "data/strangers/servers"


@pytest.fixture
def servers(tmp_path):
    return Servers(tmp_path)


class TestContract(CollectorContract):
    @pytest.fixture
    def collector(self, servers):
        return servers.collector

    @pytest.fixture
    def saved(self, servers):
        text = b"".join((servers.directory / f"{server}.stats").read_bytes() for server in ("oss1", "oss2", "mds1"))
        path = servers.directory / "saved.gz"
        path.write_bytes(gzip.compress(b"BEGIN %d\n" % (START + 2) + text))
        options = lustre_jobstats.Saved(jobid_name=("%j:%u:%H", "%e.%u"))
        return lambda: lustre_jobstats.saved([path], options, Site(Calendar("UTC"), FakeClock()))

    @pytest.fixture
    def window(self):
        return NOW

    @pytest.fixture
    def datasets(self):
        return lustre_jobstats.Config.tables

    def test_columns_are_the_same_in_a_window_without_samples(self, collector):
        """The only window is the current one: another one is refused."""
        with pytest.raises(Transient, match="not the current window"):
            within(collector(), lambda c: samples(c, Window(START - 60, START)))

    def test_a_count_is_that_of_its_parts_and_how_many_records_they_have(self, collector, window):
        """The past can't be queried, and one window has no parts."""
        assert within(collector(), lambda c: c.count(window)) is None


def polls(servers, *changes, **options):
    """Collect one window after each change, all of them stored; return their data."""

    async def run(collector):
        found = []
        for number, change in enumerate(changes):
            change()
            servers.clock._time = START + 60 * number + 2
            window = Window(START + 60 * number, START + 60 * number + 60)
            found.append(await collector.collect(window))
            collector.note_stored(window)
        return found

    return within(servers.collector(**options), run)


def nothing():
    """Change nothing."""


def seen(data):
    """{(target, id): counts without zeros}, of all rows."""
    (table,) = data.tables
    values = dict(zip(table.columns, table.values, strict=True))
    keys = [(target.decode(), job_parts(key)["id"]) for target, key in zip(values["target"].tolist(), values["job"].tolist(), strict=True)]
    names = table.columns[6:]
    return {
        key: {name: int(values[name][row]) for name in names if values[name][row]} | ({"ended": 1} if values["ended"][row] else {})
        for row, key in enumerate(keys)
    }


FIRST = {
    (OST0, "7:1000:n1"): {"write_bytes.samples": 3, "write_bytes.sum": 300},
    (OST0, "8:1001:n1"): {"read_bytes.samples": 2, "read_bytes.sum": 20},
    (OST1, "7:1000:n1"): {"write_bytes.samples": 5, "write_bytes.sum": 500},
    (MDT0, "7:1000:n1"): {"open.samples": 4},
    (MDT0, "bash.1000"): {"open.samples": 1},
}


def test_a_window_has_the_jobs_whose_counts_changed_with_what_their_ids_name(servers):
    first, second, third = polls(
        servers, nothing, nothing, lambda: servers.show("oss2", {OST1: [job("7:1000:n1", last=100, write_bytes=(6, 600))]})
    )
    assert (seen(first), first.records, first.dropped, first.trouble) == (FIRST, 5, {}, "")
    assert (seen(second), [len(rows) for rows in second.tables]) == ({}, [0])
    assert seen(third) == {(OST1, "7:1000:n1"): {"write_bytes.samples": 6, "write_bytes.sum": 600}}
    keys = {job_parts(key)["id"]: job_parts(key) for key in first.tables[0].values[2].tolist()}
    assert keys["7:1000:n1"] == {"job": "7", "user": "1000", "command": "", "node": "n1", "id": "7:1000:n1"}
    assert (keys["bash.1000"]["user"], keys["bash.1000"]["command"]) == ("1000", "bash")
    assert servers.config().tables == {JOB_TABLE}


def test_a_window_that_is_not_stored_comes_with_the_next_one(servers):
    async def run(collector):
        await collector.collect(NOW)
        servers.clock._time = START + 62
        later = Window(START + 60, START + 120)
        second = await collector.collect(later)
        collector.note_stored(later)
        servers.clock._time = START + 122
        return second, await collector.collect(Window(START + 120, START + 180))

    second, third = within(servers.collector(), run)
    assert (seen(second), seen(third)) == (FIRST, {})


def test_targets_that_answered_are_in_a_window_also_without_a_row_and_those_that_did_not_are_not(servers):
    """What a silent target had in a window that was not stored comes with the next one, and does not show that it answered.

    It has the time of that poll: what was done since is unknown.
    """
    some, all_of_them = (MDT0.encode(), OST0.encode()), (MDT0.encode(), OST0.encode(), OST1.encode())
    _, idle = polls(servers, nothing, nothing)
    assert (len(idle.tables[0]), idle.tables[0].polled) == (0, all_of_them)

    async def run(collector):
        await collector.collect(NOW)
        servers.script("oss2", "exit 255")
        servers.clock._time = START + 62
        return await collector.collect(Window(START + 60, START + 120))

    servers.clock._time = START + 2
    (table,) = within(servers.collector(), run).tables
    times = dict(zip(table.values[1].tolist(), table.values[0].tolist(), strict=True))
    assert (times, table.polled) == ({**dict.fromkeys(some, START + 62), OST1.encode(): START + 2}, some)


def test_saved_outputs_without_a_change_polled_their_targets(tmp_path):
    seven = (b"7", {"open": (2, 9)}, START * 10**9, START * 10**9)
    outputs = (b"BEGIN %d\n" % time + jobstats_text.target([seven], MDT0) for time in (START, START + 60))
    (tmp_path / "all.txt").write_bytes(b"".join(outputs))
    made = lustre_jobstats.saved([tmp_path / "all.txt"], lustre_jobstats.Saved(), Site(Calendar("UTC"), FakeClock()))
    data = within(made, lambda one: one.collect(Window(START + 60, START + 120)))
    assert (len(data.tables[0]), data.tables[0].polled, data.records) == (0, (MDT0.encode(),), 0)


def test_a_saved_output_without_a_job_is_in_a_span_so_that_a_poll_without_jobs_is_stored(tmp_path):
    """Without it, what a job did in the minute after that was divided over an hour."""
    seven = (b"7", {"open": (2, 9)}, (START + 7200) * 10**9, (START + 7190) * 10**9)
    outputs = (b"BEGIN %d\n" % (START + 7200 * hour) + jobstats_text.target([seven] * hour, MDT0) for hour in (0, 1))
    (tmp_path / "all.txt").write_bytes(b"".join(outputs))
    made = lustre_jobstats.saved([tmp_path / "all.txt"], lustre_jobstats.Saved(), Site(Calendar("UTC"), FakeClock()))
    assert within(made, lambda one: one.spans()) == [Window(START, START + 1), Window(START + 7200, START + 7201)]


def test_a_server_that_refuses_leaves_the_others_undisturbed_and_is_named(servers):
    servers.script("oss2", "echo 'Permission denied (publickey).' >&2; exit 255")
    (data,) = polls(servers, nothing)
    assert data.trouble == "lctl on oss2: exit code 255: Permission denied (publickey)."
    assert seen(data) == {key: counts for key, counts in FIRST.items() if key[0] != OST1}
    assert data.dropped == {"oss2: no answer": 1}


def test_a_command_that_hangs_is_killed_and_its_server_comes_with_the_next_answer(servers):
    servers.script("oss2", "sleep 1000")
    first, second = polls(servers, nothing, (servers.directory / "oss2").unlink, command_timeout=1)
    assert ("oss2" in first.trouble, first.trouble.count("\n"), first.dropped) == (True, 0, {"oss2: no answer in time": 1})
    assert {**seen(first), **seen(second)} == FIRST
    assert second.trouble == ""


def test_an_interval_that_can_not_be_read_is_no_trouble_and_hangs_longer_than_no_poll(servers):
    servers.script("oss2", f'case "$*" in *cleanup*) sleep 1000;; *) cat {servers.directory}/oss2.stats;; esac')
    first, second = polls(servers, nothing, nothing, command_timeout=1)
    assert (seen(first), first.trouble, first.dropped, second.trouble) == (FIRST, "", {}, "")


HOME = "home-sys-OST0000"


def test_two_file_systems_on_one_server_are_not_added_up_without_the_option(servers):
    """A large site has three on two MDSs and four OSSs: a job's bytes were those of all."""
    servers.show("oss1", {OST0: [job("7:1000:n1", write_bytes=(3, 300))], HOME: [job("7:1000:n1", write_bytes=(1, 5))]}, interval=100)
    sentence = 'the servers have targets of several file systems: set filesystem (--filesystem) to one of "fs", "home-sys"'
    with pytest.raises(Fatal, match=re.escape(sentence)):
        polls(servers, nothing)
    (data,) = polls(servers, nothing, filesystem="home-sys")
    assert seen(data) == {(HOME, "7:1000:n1"): {"write_bytes.samples": 1, "write_bytes.sum": 5}}
    assert data.dropped == {to_rows.OTHER_FILESYSTEM: 3}
    assert data.why == {to_rows.OTHER_FILESYSTEM: Why(MDT0, to_rows.REMEDIES[to_rows.OTHER_FILESYSTEM])}
    assert data.trouble.startswith("1 targets, such as home-sys-OST0000, remove idle jobs after 100 s")
    with pytest.raises(
        Transient, match=r'the servers have no target of the file system "x": set filesystem \(--filesystem\) to one of "fs", "home-sys"'
    ):
        polls(servers, nothing, filesystem="x")


def test_saved_outputs_of_two_file_systems_are_refused_without_the_option(tmp_path):
    moment = NOW.start * 10**9
    text = b"".join(jobstats_text.target([(b"7", {"open": (n, 9)}, moment, moment)], name) for n, name in ((1, OST0), (2, HOME)))
    (tmp_path / "a.txt").write_bytes(text)
    site = Site(Calendar("UTC"), FakeClock())

    def saved(**options):
        made = lustre_jobstats.saved([tmp_path / "a.txt"], lustre_jobstats.Saved(time=NOW.start, **options), site)
        return within(made, lambda one: one.collect(NOW))

    with pytest.raises(
        Fatal, match=r'the outputs have targets of several file systems: set filesystem \(--filesystem\) to one of "fs", "home-sys"'
    ):
        saved()
    with pytest.raises(
        Fatal, match=r'the outputs have no target of the file system "x": set filesystem \(--filesystem\) to one of "fs", "home-sys"'
    ):
        saved(filesystem="x")
    data = saved(filesystem="fs")
    assert (seen(data), data.dropped) == ({(OST0, "7"): {"open.samples": 1, "open.sum": 9}}, {to_rows.OTHER_FILESYSTEM: 1})
    assert data.why[to_rows.OTHER_FILESYSTEM].example == HOME


def test_where_all_servers_refuse_the_source_does(servers):
    for server in ("oss1", "oss2", "mds1"):
        servers.script(server, "echo 'Permission denied' >&2; exit 1")
    with pytest.raises(Fatal, match="lctl on oss1: exit code 1: Permission denied"):
        polls(servers, nothing)


def test_a_target_that_moves_to_its_partner_keeps_its_jobs_and_is_named(servers):
    def move():
        servers.show("oss2", {})
        servers.show("oss1", {OST0: [], OST1: [job("7:1000:n1", begin=62, last=65, write_bytes=(1, 50))]})

    first, second, third = polls(servers, nothing, move, nothing)
    assert second.trouble == "fs-OST0001 moved from oss2 to oss1"
    assert third.trouble == ""
    totals = job_rows.totals(job_rows.joined([rows for data in (first, second, third) for rows in data.tables]))
    sums = {target: counts["write_bytes.sum"] for (target, key), counts in totals.items() if b"7:1000" in key and "OST" in target}
    assert sums == {OST0: 300, OST1: 550}


def test_an_unknown_format_of_one_target_is_named_and_the_others_are_read(servers):
    (servers.directory / "oss2.stats").write_text(f"obdfilter.{OST1}.job_stats=\njob_stats:\n- job_id: 7\n  when: now\n")
    (servers.directory / "mds1.stats").write_text("job statistics: version 9\n")
    (data,) = polls(servers, nothing)
    assert data.trouble == ("mds1 printed no job_stats that is known, see `lctl get_param` there; fs-OST0001: unknown format of job_stats")
    assert {target for target, _ in seen(data)} == {OST0}


def test_targets_that_remove_jobs_too_early_are_named(servers):
    servers.show("oss2", {OST1: [job("7:1000:n1", write_bytes=(5, 500))]}, interval=100)
    first, second = polls(servers, nothing, nothing)
    sentence = (
        "1 targets, such as fs-OST0001, remove idle jobs after 100 s: window must be at most half of that, or what jobs did before their "
        "removal is lost"
    )
    assert (first.trouble, second.trouble) == (sentence, sentence)


@pytest.mark.parametrize(("interval", "is_short"), [(119, True), (120, False), (0, False)])
def test_an_interval_of_two_windows_is_long_enough_and_none_at_all_too(servers, interval, is_short):
    servers.show("oss2", {OST1: [job("7:1000:n1", write_bytes=(5, 500))]}, interval=interval)
    (data,) = polls(servers, nothing)
    assert bool(data.trouble) == is_short


def test_intervals_are_read_again_after_an_hour(servers):
    def shorter():
        servers.show("oss2", {OST1: [job("7:1000:n1", write_bytes=(5, 500))]}, interval=100)

    def wait(seconds):
        servers.clock._monotonic += seconds

    found = polls(servers, nothing, shorter, lambda: wait(3599), lambda: wait(1))
    assert [bool(data.trouble) for data in found] == [False, False, False, True]


def test_the_interval_of_a_target_decides_when_a_job_that_is_gone_has_ended(servers):
    """With the configured 600 s the job would only be missing."""
    servers.show("oss1", {OST0: [job("7:1000:n1", last=0, write_bytes=(3, 300))]}, interval=120)

    def remove():
        servers.show("oss1", {OST0: [job("9:1:n", begin=100, last=125, open=1)]}, interval=120)

    data = polls(servers, nothing, nothing, remove)[-1]
    assert seen(data)[OST0, "7:1000:n1"]["ended"] == 1


def test_a_window_that_passed_while_servers_answered_is_not_used(servers):
    async def run(collector):
        task = asyncio.ensure_future(collector.collect(NOW))
        await asyncio.sleep(0)
        servers.clock._time = START + 61
        return await task

    with pytest.raises(Transient, match="answered after"):
        within(servers.collector(), run)


def test_ids_that_can_not_be_read_whole_are_counted_once_in_each_window_in_which_they_did_something(servers):
    names = ["7:1000:n1", "4711", ":1000:n1", "wget.1000", "1234567.pbs01.cluster.exa:10012", "été", ""]
    servers.show("oss1", {OST0: [job(one, open=1) for one in names], "fs-OST0002": [job("été", open=1)]})
    servers.show("oss2", {})
    servers.show("mds1", {})
    site = Site(Calendar("UTC"), servers.clock, shows_users=True)

    async def run(collector):
        first = await collector.collect(NOW)
        collector.note_stored(NOW)
        servers.clock._time = START + 62
        servers.show("oss1", {OST0: [job(one, open=2 if one == "été" else 1) for one in names]})
        return first, await collector.collect(Window(START + 60, START + 120))

    first, second = within(lustre_jobstats.live(servers.config(), site), run)
    assert (len(first.tables[0]), first.dropped) == (8, {to_rows.UNKNOWN_ID: 3, to_rows.CUT_ID: 1})
    assert first.why == {
        to_rows.UNKNOWN_ID: Why("4711", to_rows.REMEDIES[to_rows.UNKNOWN_ID]),
        to_rows.CUT_ID: Why("1234567.pbs01.cluster.exa:10012", to_rows.REMEDIES[to_rows.CUT_ID]),
    }
    assert "jobid_name" in to_rows.REMEDIES[to_rows.UNKNOWN_ID]
    assert second.dropped == {to_rows.UNKNOWN_ID: 1}
    assert second.why[to_rows.UNKNOWN_ID].example == "\\xc3\\xa9t\\xc3\\xa9"


FORMATS = [("%j", "%e.%u"), ("%j",), ("%j:%u:%H", "%e.%u"), ("%j?%H:%u", "%e.%u"), ("%j?%e.%u",), ("%e.%u",)]


@pytest.mark.parametrize("users", ["no", "hashed"])
@pytest.mark.parametrize("formats", FORMATS)
def test_no_command_and_no_user_leaves_the_collector_in_clear_whatever_the_formats_are(servers, formats, users):
    """Also where a block is malformed or has a count that can't be true, and in the examples of what is dropped."""
    ids = [
        *commanded_ids([*COMMON, *MADE]),
        *(b"4711:%d:n1" % uid for uid in UIDS),
        *(one.encode() + b":1:n1" for one in MADE if one != "8.plugh"),
    ]
    jobs = [job("", last=-1 - place % 500, open=1)[1:] for place in range(len(ids))]
    text = jobstats_text.target([(one, *rest) for one, rest in zip(ids, jobs, strict=True)], OST0)
    bad = jobstats_text.target([(one, {"open": (2**64 - 1, 0)}, *rest[1:]) for one, rest in zip(ids, jobs, strict=True)], OST1)
    malformed = bad.replace(OST1.encode(), b"fs-OST0002").replace(b"reqs }", b"").replace(b" }", b"")
    (servers.directory / "oss1.stats").write_bytes(ids[0] + b"\n" + text + bad + malformed)
    (data,) = polls(servers, nothing, jobid_name=formats)
    meta = WindowMeta("jobs", "lustre_jobstats", "fs", NOW)
    applied = JobIdentities(users, b"the key of the test").applied(Collected(meta, (), data.tables))
    keys = applied.tables[0].values[2]
    assert len(set(keys.tolist())) >= len(set(ids))
    assert {parse.IMPLAUSIBLE, parse.MALFORMED, parse.NO_TARGET} <= data.dropped.keys()
    leaves = b"\n".join([*keys.tolist(), repr((data.dropped, data.why, data.trouble)).encode()])
    assert [secret for secret in secrets() if secret in leaves] == []


@pytest.mark.parametrize("name", ["jobstats_csc_table.txt", "jobstats_cut_at_31.txt", "jobstats_ids.txt", "jobstats_question_mark_216.txt"])
def test_job_ids_of_other_sites_name_users_and_nodes_wherever_they_can(name):
    """Malformed ids of a site with Lustre 2.12 and %j:%u:%H, ids that Lustre cut, and those of its own tests."""
    path = STRANGERS / name
    if not path.exists():
        pytest.skip("no ../shared")
    formats = {"jobstats_question_mark_216.txt": ("%j?%H:%e:%u",)}.get(name, ("%j:%u:%H", "%e.%u"))
    collector = lustre_jobstats.saved([path], lustre_jobstats.Saved(time=START, jobid_name=formats), None)
    data = within(collector, lambda one: one.collect(NOW))
    found = {tuple(job_parts(key).values())[:4] for key in data.tables[0].values[2].tolist()}
    assert (found, data.dropped) == OF_STRANGERS[name]


OF_STRANGERS = {
    "jobstats_csc_table.txt": (
        {
            ("", "11317854", "wget", ""),
            ("", "", "wget", ""),
            ("11317854", "17627127", "", "r01c01"),
            ("", "17627127", "", "r01c01"),
            ("11317854", "17627127", "", ""),
            ("", "", "", ""),
        },
        {to_rows.UNKNOWN_ID: 6},
    ),
    "jobstats_cut_at_31.txt": (
        {
            ("node_exporter", "989", "", ""),
            ("vi", "0", "", "es-2-virt3-cosp"),
            ("bash", "0", "", "es-2-virt3-cosp"),
            ("SLURM_JOB_machine184_74186", "0", "", ""),
            ("1234567.pbs01.cluster.exa", "", "", ""),
        },
        {to_rows.CUT_ID: 3},
    ),
    "jobstats_ids.txt": (
        {
            ("", "0", "kworker/86:1", ""),
            ("", "", "", ""),
            ("", "0", "", "login1"),
            ("", "0", "has sp.touch", ""),
            ("@weird", "1000", "", "n1"),
            ("11317854", "17627127", "", "r01c01"),
            ("4711", "1000", "", "nid00012"),
            ("", "1000", "\\xc3\\xa9t\\xc3\\xa9", ""),
            ("", "4294967295", "cp", ""),
        },
        {to_rows.UNKNOWN_ID: 2, "job that is listed twice": 1},
    ),
    "jobstats_question_mark_216.txt": (
        {("login1", "0", "cp", "login1"), ("4711", "1000", "cp", ""), ("4712", "1001", "rsync", "")},
        {},
    ),
}


@pytest.mark.parametrize(
    ("shows_users", "example"),
    [
        (True, "secret.48151: open, samples: 18446744073709551615, sum: 0"),
        (False, "aaaaaa.00000: aaaa, aaaaaaa: 00000000000000000000, aaa: 0"),
    ],
)
def test_an_example_names_nobody_where_users_are_not_shown(servers, shows_users, example):
    servers.show("oss2", {OST1: [job("secret.48151", open=2**64 - 1)]})
    collector = lustre_jobstats.live(servers.config(), Site(Calendar("UTC"), servers.clock, shows_users=shows_users))
    data = within(collector, lambda one: one.collect(NOW))
    assert data.dropped == {parse.IMPLAUSIBLE: 1}
    assert data.why == {parse.IMPLAUSIBLE: Why(example, to_rows.REMEDIES[parse.IMPLAUSIBLE])}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"servers": ()}, "servers: at least one server is required, each once"),
        ({"servers": ("a", "a")}, "servers: at least one server is required, each once"),
        ({"servers": ("-oProxyCommand=x",)}, "servers: a name must not begin with '-', or it is an option of the command"),
        ({"lctl": ("lctl",)}, "lctl: must contain {server} where there are several servers"),
        ({"lctl": ()}, 'lctl: expected a command as a list, such as ["ssh", "{server}", "lctl"]'),
        ({"jobid_name": ()}, "jobid_name: at least one format is required"),
        ({"window": 600}, "window: must be at most half of cleanup_interval, or what jobs did before their removal is lost"),
        ({"command_timeout": 60}, "command_timeout: must be greater than zero, and less than timeout and window"),
    ],
)
def test_the_check_has_a_sentence_for_each_fault(servers, options, sentence):
    assert servers.config(**options).faults() == [sentence]


def test_of_two_saved_outputs_of_one_time_the_second_is_dropped_and_counted(tmp_path):
    seven = (b"7", {"open": (2, 9)}, NOW.start * 10**9, NOW.start * 10**9)
    text = jobstats_text.target([seven], "fs-MDT0000")
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_bytes(b"BEGIN %d\n" % NOW.start + text)
    site = Site(Calendar("UTC"), FakeClock())
    data = within(
        lustre_jobstats.saved([tmp_path / "a.txt", tmp_path / "b.txt"], lustre_jobstats.Saved(), site),
        lambda c: c.collect(NOW),
    )
    assert (len(data.tables[0]), dict(data.dropped)) == (1, {to_rows.SAME_TIME: 1})
    assert data.why[to_rows.SAME_TIME].example == "fs-MDT0000"


def test_saved_outputs_are_read_by_their_times_and_not_by_their_names(tmp_path):
    """Read the other way round, the later one would have all counts, and the earlier one would be left out."""
    for name, time, count in (("a.txt", START + 60, 5), ("b.txt", START, 2)):
        seven = (b"7", {"open": (count, 9)}, time * 10**9, START * 10**9)
        (tmp_path / name).write_bytes(b"BEGIN %d\n" % time + jobstats_text.target([seven], MDT0))
    site = Site(Calendar("UTC"), FakeClock())
    made = lustre_jobstats.saved([tmp_path / "a.txt", tmp_path / "b.txt"], lustre_jobstats.Saved(), site)
    data = within(made, lambda one: one.collect(Window(START, START + 120)))
    assert (data.tables[0].values[0].tolist(), data.dropped) == ([START, START + 60], {})


ERROR = b"error: get_param: param_path 'mdt/*/job_stats': No such file or directory\n"


@pytest.mark.parametrize("error", [b"", ERROR])
@pytest.mark.parametrize("job", [b"7", b"x\nBEGIN 7\nmdt.a"])
def test_a_time_is_that_of_the_next_target_also_after_errors_of_lctl_and_no_job_id_is_one(tmp_path, error, job):
    """An OSS has no mdt.*: all counts had the file's time. And a user's job id could hide the jobs after it."""
    jobs = [(one, {"open": (2, 9)}, NOW.start * 10**9, NOW.start * 10**9) for one in (b"5", job, b"9")]
    path = tmp_path / "a.txt"
    path.write_bytes(b"BEGIN %d\n" % NOW.start + error + jobstats_text.target(jobs, "fs-MDT0000"))
    os.utime(path, (NOW.end + 10**6, NOW.end + 10**6))
    made = lustre_jobstats.saved([path], lustre_jobstats.Saved(), Site(Calendar("UTC"), FakeClock()))
    data = within(made, lambda c: c.collect(NOW))
    assert (len(data.tables[0]), data.dropped[parse.NO_TARGET]) == (3, bool(error))


PROC = jobstats_text.target([(b"7", {"open": (2, 9)}, START * 10**9, START * 10**9)], "fs-OST0007").partition(b"\n")[2]


def collected(path, window=NOW, **options):
    """Return the rows of a saved output as {(target, id): counts}."""
    made = lustre_jobstats.saved([path], lustre_jobstats.Saved(**options), Site(Calendar("UTC"), FakeClock()))
    return seen(within(made, lambda one: one.collect(window)))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("fs-OST0007.txt", {}),
        ("obdfilter/fs-OST0007/job_stats", {}),
        ("a.txt", {"target": "fs-OST0007"}),
        ("fs-OST0001", {"target": "fs-OST0007"}),
    ],
)
def test_a_file_of_proc_has_the_target_of_its_option_or_its_name(tmp_path, name, options):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(PROC)
    assert collected(path, time=START, **options) == {("fs-OST0007", "7"): {"open.samples": 2, "open.sum": 9}}
    later = PROC.replace(b"samples:           2", b"samples:           5")
    path.write_bytes(b"BEGIN %d\n%sBEGIN %d\n%s" % (START, PROC, START + 60, later))
    second = collected(path, Window(START + 60, START + 120), time=5, **options)
    assert second == {("fs-OST0007", "7"): {"open.samples": 5, "open.sum": 9}}


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("a.txt", PROC, "a.txt holds job_stats without the name of its target, as a file of /proc: name it by --target, or the file by it"),
        ("fs-OST0001-fs-OST0002", PROC, "without the name of its target"),
        (
            "fs-OST0007",
            PROC * 2,
            "holds 2 job_stats without the names of their targets, as `lctl get_param -n` prints them: save it without -n",
        ),
        ("fs-OST0007", b"BEGIN 5\n" + PROC * 2, "holds 2 job_stats without the names of their targets"),
    ],
)
def test_outputs_whose_targets_are_unknown_are_refused_with_that_reason(tmp_path, name, text, sentence):
    (tmp_path / name).write_bytes(text)
    with pytest.raises(Fatal, match=sentence):
        collected(tmp_path / name, time=START)
    with pytest.raises(TokiodError, match="--target: expected a name such as fs-OST0000"):
        collected(tmp_path / name, target="OST0000")


def test_a_saved_output_of_an_unknown_format_is_refused_once_for_all(tmp_path):
    """As a transient error, the file of a watched folder was tried again for ever."""
    (tmp_path / "a.txt").write_bytes(b"mdt.fs-MDT0000.job_stats=\njob_stats:\n- job_id: 7\n  when: now\n")
    with pytest.raises(Fatal, match=r"a\.txt: fs-MDT0000: unknown format of job_stats"):
        collected(tmp_path / "a.txt", time=START)


@pytest.mark.parametrize("begin", [b"", b"BEGIN %d\n" % START])
def test_lines_of_pdsh_are_those_of_each_host(tmp_path, begin):
    """It mixes the lines of hosts, and puts its own errors between them."""
    moment = START * 10**9
    texts = [
        jobstats_text.target([(job, {"open": (count, 9)}, moment, moment) for job in (b"7", b"8")], name).splitlines(keepends=True)
        for count, name in ((2, OST0), (3, OST1))
    ]
    mixed = [b"oss%d: " % (place + 1) + line for lines in zip(*texts, strict=True) for place, line in enumerate(lines)]
    mixed.insert(3, b"pdsh@admin: oss3: ssh exited with exit code 255\n")
    path = tmp_path / "a.txt"
    path.write_bytes(begin + b"".join(mixed))
    expected = {(name, job): {"open.samples": count, "open.sum": 9} for count, name in ((2, OST0), (3, OST1)) for job in "78"}
    assert collected(path, time=START) == expected
    servers = [b"".join(mixed[:3] + mixed[4:])]
    assert {target for target, _ in parse.targets(parse.without_prefix(servers[0]), Counter())} == {OST0, OST1}


def test_saved_outputs_of_other_sites_are_read_or_refused_with_the_reason():
    if not STRANGERS.exists():
        pytest.skip("no ../shared")
    pdsh = collected(STRANGERS / "jobstats_pdsh.txt", time=START)
    assert pdsh == {key: counts for key, counts in collected(STRANGERS / "jobstats_ids.txt", time=START).items() if key in pdsh}
    assert {target for target, _ in pdsh} == {"public1-OST0004"}
    proc = collected(STRANGERS / "jobstats_proc_ieel27.txt", time=START, target="lustre-OST0000")
    assert {target for target, _ in proc} == {"lustre-OST0000"}
    with pytest.raises(Fatal, match="name it by --target"):
        collected(STRANGERS / "jobstats_proc_ieel27.txt", time=START)
    with pytest.raises(Fatal, match="save it without -n"):
        collected(STRANGERS / "jobstats_n.txt", time=START)
    with pytest.raises(Fatal, match=r'several file systems: set filesystem \(--filesystem\) to one of "home", "scratch"'):
        collected(STRANGERS / "jobstats_two_fs_one_oss.txt", time=START)


def test_a_server_that_prints_no_names_of_targets_is_named(servers):
    (servers.directory / "oss2.stats").write_bytes(PROC)
    (data,) = polls(servers, nothing)
    assert data.trouble == "oss2 printed job_stats without the names of targets (with -n), see `lctl get_param` there"


def test_saved_outputs_that_are_none_are_refused(tmp_path):
    (tmp_path / "a.txt").write_text("BEGIN 5\nhello\n")
    site = Site(Calendar("UTC"), FakeClock())
    with pytest.raises(TokiodError, match="holds no output of lctl"):
        within(lustre_jobstats.saved([tmp_path / "a.txt"], lustre_jobstats.Saved(), site), lambda c: samples(c, NOW))
    with pytest.raises(TokiodError, match=r"--jobid-name"):
        lustre_jobstats.saved([tmp_path / "a.txt"], lustre_jobstats.Saved(jobid_name=("%z",)), site)
