"""The list of the largest is that of plain dictionaries, by anything that jobs do, for jobs and for users."""

from collections import Counter, defaultdict

import msgspec
import pytest
from job_days import DAY, JobDays, polled, random_day

from tokiod.analysis.top import METADATA, NODE_SUMS, SUMS, NoSuchOperation, NoSuchTarget, Top, TopLine, TopTarget, top
from tokiod.increases import IMPLAUSIBLE
from tokiod.job_columns import column_of
from tokiod.jobs.span import Days
from tokiod.reader.span import Span
from tokiod.window_data import job_key, job_parts

OST, MDT = b"fs-OST0000", b"fs-MDT0000"


@pytest.fixture
def made(tmp_path):
    return JobDays(tmp_path / "jobs", window=600)


def found(made, by, start=DAY, end=DAY + 120, users="names", **given):
    return top(Days((made.root,), "fs"), Span(start, end), by, users, **given)


def amount(by, target, counts):
    if by == METADATA:
        return sum(n for name, n in counts.items() if name.endswith(".samples") and b"-MDT" in target)
    return sum(counts.get(name, 0) for name in SUMS.get(by, (column_of(by),)))


@pytest.mark.parametrize("by", ["bytes", "read", "write", "reads", "open", METADATA])
def test_rates_shares_and_targets_are_those_of_the_rows(made, by):
    rows = random_day(11, DAY + 3600, 0.6, targets=4)
    for row in rows:
        row["target"] = row["target"].replace(b"OST0003", b"MDT0000")
    made.store(*rows, DAY + 3000, DAY + 3600)
    start, end = DAY + 3540, DAY + 6000  # all counts began in it, so rates are exact
    whole, of_targets, others = Counter(), defaultdict(Counter), defaultdict(Counter)
    for (key, target), counts in made.done(start, end).items():
        label = job_parts(key)["job"], job_parts(key)["user"]
        whole[label] += amount(by, target, counts)
        of_targets[label][target.decode()] += amount(by, target, counts)
        others[label].update({"open": counts.get("open.samples", 0), "write": counts.get("write_bytes.sum", 0)})
    result = found(made, by, start, end)
    assert {(one.job, one.user): pytest.approx(one.rate * 2460) for one in result.lines} == {k: n for k, n in whole.items() if n}
    assert [one.rate for one in result.lines] == sorted((one.rate for one in result.lines), reverse=True)
    assert sum(one.share for one in result.lines) == pytest.approx(1)
    for one in result.lines:
        assert {target.target for target in one.busiest} == {t for t, n in of_targets[one.job, one.user].items() if n}
        assert one.write_bytes * 2460 == pytest.approx(others[one.job, one.user]["write"])
    users = Counter()
    for (_, user), n in whole.items():
        users[user] += n
    assert {one.user: pytest.approx(one.rate * 2460) for one in found(made, by, start, end, of="user").lines} == users


def test_a_planted_offender_is_first_and_the_limit_counts_the_others(made):
    made.store(
        *(polled(DAY + 65, MDT, job_key(str(n), "1000", None, "n1"), DAY + 1, {"open.samples": n}) for n in range(1, 40)),
        *(polled(DAY + 65, MDT, job_key("99", "7", None, f"n{n}", f"{n}"), DAY + 1, {"open.samples": 60_000}) for n in range(4)),
    )
    result = found(made, "open", limit=3)
    assert [(one.job, one.user, one.nodes, one.rate) for one in result.lines[:2]] == [("99", "7", 4, 2000.0), ("39", "1000", 1, 39 / 120)]
    assert (len(result.lines), result.left_off, result.units) == (3, 37, "operations/s")
    assert result.lines[0].share == pytest.approx(240_000 / (240_000 + 780))
    assert result.lines[0].rates == {"open": 2000.0}


def test_one_target_is_chosen_by_its_name_or_a_pattern(made):
    key, other = job_key("1", "1000"), job_key("2", "1000")
    made.store(
        polled(DAY + 5, OST, key, DAY + 1, {"write_bytes.sum": 1200}),
        polled(DAY + 5, MDT, other, DAY + 1, {"open.samples": 240}),
    )
    assert [one.job for one in found(made, METADATA, targets="MDT0000").lines] == ["2"]
    assert [one.job for one in found(made, "bytes", targets="fs-OST*").lines] == ["1"]
    assert found(made, "bytes", targets="fs-MDT*").lines == []
    with pytest.raises(NoSuchTarget, match=r"no target of the span matches 'OST9999'; it has fs-MDT0000, fs-OST0000"):
        found(made, "bytes", targets="OST9999")


def test_a_target_without_rows_in_the_span_is_a_list_without_lines(made):
    made.store(polled(DAY + 5, MDT, job_key("1"), DAY + 1, {"open.samples": 240}))
    made.store(polled(DAY + 7265, OST, job_key("2"), DAY + 1, {"write_bytes.sum": 1}), DAY + 7320)
    for start, end in ((DAY + 7260, DAY + 7320), (DAY + 7320, DAY + 7380)):
        assert found(made, METADATA, start, end, targets="MDT0000").lines == []
        with pytest.raises(NoSuchTarget, match="'OST9999'; it has fs-MDT0000, fs-OST0000"):
            found(made, METADATA, start, end, targets="OST9999")


def test_an_unknown_operation_names_the_known_ones(made):
    made.store(polled(DAY + 5, MDT, job_key("1"), DAY + 1, {"open.samples": 1, "mkdir.samples": 1}))
    with pytest.raises(NoSuchOperation, match="no job has counts of 'opne' in the span, did you mean open"):
        found(made, "opne")
    assert found(made, "opne", DAY + 3600, DAY + 3660).lines == []


def test_what_no_scheduler_started_is_known_by_command_and_user_or_by_its_hash(made):
    rows = [
        polled(DAY + 5, OST, job_key("", "1000", "cp", None, "aa"), DAY + 1, {"write_bytes.sum": 3}),
        polled(DAY + 5, OST, job_key("", "1000", "rsync", None, "bb"), DAY + 1, {"write_bytes.sum": 2}),
        polled(DAY + 5, OST, job_key("", "", "", None, "cc"), DAY + 1, {"write_bytes.sum": 1}),
    ]
    made.store(*rows)
    assert [(one.command, one.user, one.id) for one in found(made, "write").lines] == [
        ("cp", "1000", ""),
        ("rsync", "1000", ""),
        ("", "", "cc"),
    ]
    assert [(one.command, one.user, one.id) for one in found(made, "write", users="no").lines] == [
        ("", "", name) for name in ("aa", "bb", "cc")
    ]


def on_nodes(made, *found):
    """Store rows of (time, node, job, begin, CPU seconds, bytes of memory, bytes written)."""
    made.store(*(
        polled(time, node, job_key(job, None, None, None, job), begin, {
            "cpu.sum": int(cpu * 1e6), "mem_bytes.max": mem, "disk_read.bytes": 0, "disk_written.bytes": written, "page_faults.samples": 3,
        }) for time, node, job, begin, cpu, mem, written in found
    ))  # fmt: skip


def test_jobs_of_compute_nodes_are_sorted_by_cores_and_their_memory_is_the_largest_of_each_node(made):
    on_nodes(
        made,
        (DAY + 59, b"nid1", "1", DAY - 600, 600, 4_000, 0),
        (DAY + 119, b"nid1", "1", DAY - 600, 660, 5_000, 1200),
        (DAY + 59, b"nid2", "1", DAY, 30, 900, 0),
        (DAY + 119, b"nid2", "1", DAY, 90, 100, 0),
        (DAY + 100, b"nid2", "2", DAY + 40, 3, 70_000, 0),
        (DAY - 1, b"nid1", "1", DAY - 600, 540, 99_000, 0),
    )
    result = found(made, "")
    assert (result.by, result.units, result.of, result.known[:5]) == ("cpu", "cores", "nodes", list(NODE_SUMS))
    assert [(one.job, one.nodes, one.rate) for one in result.lines] == [("1", 2, pytest.approx(210 / 120)), ("2", 1, 3 / 120)]
    assert (result.total, result.write_bytes) == (pytest.approx(213 / 120), 10.0)
    assert result.lines[0].rates == pytest.approx({"cpu_usecs": 210e6 / 120, "mem_bytes": 5_900, "page_faults": 3 / 120}, rel=0.1)
    assert [(one.target, one.share) for one in result.lines[0].busiest] == [
        ("nid1", pytest.approx(120 / 210)),
        ("nid2", pytest.approx(90 / 210)),
    ]
    by_memory = found(made, "memory")
    assert [(one.job, one.rate, one.share) for one in by_memory.lines] == [("2", 70_000, 70_000 / 75_900), ("1", 5_900, 5_900 / 75_900)]
    assert (by_memory.units, found(made, "mem_bytes").units, found(made, "cpu_usecs").units) == ("bytes", "bytes", "microseconds/s")
    assert [one.job for one in found(made, "cpu", targets="nid2").lines] == ["1", "2"]
    with pytest.raises(NoSuchOperation, match=r"no job has counts of 'bytes'"):
        found(made, "bytes")


def test_a_list_has_all_figures_of_a_span_and_its_lines(made):
    key, other = job_key("1", "1000", None, "n1"), job_key("2", "7", None, "n2")
    targets = [b"fs-OST000%d" % n for n in range(6)]
    made.store(
        *(polled(DAY + 65, target, key, DAY + 1, {"write_bytes.sum": 1200 * n}) for n, target in enumerate(targets, 1)),
        polled(DAY + 70, MDT, other, DAY + 5, {"open.samples": 240, "read_bytes.sum": 600}),
    )
    result = found(made, "", limit=2)
    assert result.lines == [
        TopLine(
            job="1", user="1000", command="", id="", jobs=1, nodes=1, targets=6, rate=210.0, share=210 / 215, read_bytes=0.0,
            write_bytes=210.0, metadata=0.0, rates={}, since=DAY + 1, until=DAY + 65,
            busiest=[TopTarget(f"fs-OST000{n}", (n + 1) / 21) for n in (5, 4, 3, 2, 1)],
        ),
        TopLine(
            job="2", user="7", command="", id="", jobs=1, nodes=1, targets=1, rate=5.0, share=5 / 215, read_bytes=5.0,
            write_bytes=0.0, metadata=2.0, rates={"open": 2.0}, since=DAY + 5, until=DAY + 70, busiest=[TopTarget("fs-MDT0000", 1.0)],
        ),
    ]  # fmt: skip
    assert msgspec.structs.replace(result, lines=[]) == Top(
        system="fs", start=DAY, end=DAY + 120, newest=DAY + 600, by="bytes", units="bytes/s", total=215.0, read_bytes=5.0,
        write_bytes=210.0, metadata=2.0, lines=[], left_off=0, known=["bytes", "read", "write", METADATA, "open"],
    )  # fmt: skip


def test_twenty_lines_are_shown_unless_another_limit_is_given(made):
    made.store(*(polled(DAY + 65, MDT, job_key(str(n)), DAY + 1, {"open.samples": n}) for n in range(1, 22)))
    assert [(len(one.lines), one.left_off) for one in (found(made, "open"), found(made, "open", limit=30))] == [(20, 1), (21, 0)]


def test_counts_that_are_left_out_are_a_note(made):
    made.store(
        polled(DAY + 5, MDT, job_key("1"), DAY + 1, {"open.samples": 2**62 + 1}),
        polled(DAY + 65, MDT, job_key("2"), DAY + 1, {"open.samples": 1}),
    )
    result = found(made, "open")
    assert ([one.job for one in result.lines], result.note) == (["2"], f"left out: 1 x {IMPLAUSIBLE}")
    assert found(made, "open", DAY + 60).note == ""


def test_a_span_of_nodes_without_rows_is_a_list_of_nodes(made):
    on_nodes(made, (DAY + 59, b"nid1", "1", DAY - 600, 600, 4_000, 0))
    result = found(made, "", DAY + 300, DAY + 360)
    assert (result.of, result.by, result.units, result.lines, result.total, result.newest) == ("nodes", "cpu", "cores", [], 0.0, DAY + 600)
