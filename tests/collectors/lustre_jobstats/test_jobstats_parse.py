"""job_stats as all versions of Lustre print them, and what hostile ids and cuts make of them."""

import re
import time
from collections import Counter
from pathlib import Path

import jobstats_text
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors import lustre_jobstats
from collectors.lustre_jobstats import parse
from collectors.lustre_jobstats.changes import JobCounts
from collectors.lustre_jobstats.parse import FIELDS, MAX_OPERATIONS, Operations
from tokiod.testing.collector_contract import within
from tokiod.window import Window
from tokiod.window_data import job_parts

FIXTURES = Path(__file__).parents[2] / "data" / "jobstats"
SECOND = 10**9
START = 1_723_102_025 * SECOND
END = START + 600 * SECOND + 57_286_226
COUNTS = {"read_bytes": (7, 4096), "write_bytes": (861, 11_025_514_496), "punch": (85, 16_840)}


def parsed(text, dropped=None):
    """Return {id: {operation: values}} and (snapshot, start) of each."""
    found, operations = parse.blocks(text), Operations()
    counts = parse.parse(text, found, operations, Counter() if dropped is None else dropped)
    ids = [parse.job_id(parse.raw_id(text, *found[place])) for place in counts.places]
    values = {
        one: dict(zip(counts.operations, map(tuple, rows), strict=True)) for one, rows in zip(ids, counts.values.tolist(), strict=True)
    }
    return values, dict(zip(ids, zip(counts.snapshot.tolist(), counts.start.tolist(), strict=True), strict=True))


def read_line_by_line(text):
    """Read a text in another way: every line is split at its punctuation, and each number found by its name."""
    jobs = {}
    for line in text.decode().splitlines():
        name, _, rest = line.strip(" -").partition(":")
        if name == "job_id":
            values = jobs.setdefault(rest.strip().strip('"').encode(), {})
        elif "{" in rest:
            parts = dict(part.split(":", 1) for part in re.sub(r"hist:.*|[{}]", "", rest).split(",") if ":" in part)
            numbers = {key.strip(): value.strip() for key, value in parts.items()}
            values[name] = tuple(int(numbers.get(key, 0)) for key in FIELDS)
    return jobs


@pytest.mark.parametrize("name", ["telegraf_v2.12_mdt_OST0001.txt", "telegraf_v2.12_obdfilter_OST0001.txt"])
def test_the_fixtures_of_telegraf_are_read_whole(name):
    text, dropped = (FIXTURES / name).read_bytes(), Counter()
    values, times = parsed(text, dropped)
    assert values == read_line_by_line(text)
    assert times == dict.fromkeys([b"cluster-testjob1", b"testjob2"], (1461772761 * SECOND, -1))
    assert not dropped
    if "obdfilter" in name:  # plugins/inputs/lustre2: jobstats_read_calls, _min_size, _max_size, _bytes
        assert values[b"testjob2"]["write_bytes"] == (25, 2048, 2048, 51200)


def test_rows_of_the_job_table_have_the_samples_and_sums_of_the_fixture():
    path = FIXTURES / "lustrefs_exporter_lctl_get_param.txt"
    collector = lustre_jobstats.saved([path], lustre_jobstats.Saved(time=1_723_114_680, jobid_name=("%j:%u:%h",)), None)
    (table,) = within(collector, lambda one: one.collect(Window(1_723_114_680, 1_723_114_740))).tables
    rows = dict(zip(table.columns, table.values, strict=True))
    found = Counter()
    for target, text in parse.targets(path.read_bytes(), Counter()):
        for identity, operations in read_line_by_line(text).items():
            (row,) = [
                n
                for n, key in enumerate(rows["job"].tolist())
                if rows["target"][n].decode() == target and job_parts(key)["id"] == identity.decode()
            ]
            for name, (samples, _, _, total) in operations.items():
                assert (rows[f"{name}.samples"][row], rows.get(f"{name}.sum", np.zeros(len(table)))[row]) == (samples, total)
                found[name] += samples
    assert found["write_bytes"] > 0
    assert len(table) == sum(len(read_line_by_line(text)) for _, text in parse.targets(path.read_bytes(), Counter()))


def test_the_fixture_of_lustrefs_exporter_is_read_whole():
    text, dropped = (FIXTURES / "lustrefs_exporter_lctl_get_param.txt").read_bytes(), Counter()
    found = list(parse.targets(text, dropped))
    assert [name for name, _ in found] == re.findall(r"^\w+\.(\S+)\.job_stats=", text.decode(), re.MULTILINE)
    seen = {}
    for _, part in found:
        values, times = parsed(part, dropped)
        assert values == read_line_by_line(part)
        seen |= times
    assert seen[b"SLURM_JOB10:0:es18kxe-co-client"] == (1723114647887515895, 1723102025057286226)
    assert len(seen) == 16
    assert not dropped


@pytest.mark.parametrize("version", ["2.5", "2.12", "2.15"])
def test_every_version_gives_the_same_counts(version):
    (values,), (times,) = (part.values() for part in parsed(jobstats_text.target([(b"4711", COUNTS, END, START)], version=version)))
    assert values["read_bytes"][0::3] == COUNTS["read_bytes"]
    assert values["write_bytes"][0::3] == COUNTS["write_bytes"]
    assert values["punch"][0] == COUNTS["punch"][0]
    assert times == ((END, START) if version == "2.15" else (END // SECOND * SECOND, -1))


def test_read_in_bytes_and_read_in_microseconds_are_two_operations():
    values, _ = parsed(jobstats_text.target([(b"1", {"read_bytes": (2, 100), "read": (2, 77)}, END, START)]))
    assert values[b"1"] == {"read_bytes": (2, 1, 100, 100), "read": (2, 1, 77, 77)}


def test_an_id_is_what_the_job_called_itself():
    hostile = [b"", b" a b", b'"', b"it's: {x}", b"\x1b[31mred\n\\", bytes(range(1, 32)), b"4711:1000:nid1"]
    found, _ = parsed(jobstats_text.target([(one, COUNTS, END, START) for one in hostile]), dropped := Counter())
    assert (set(found), dropped) == (set(hostile), Counter())


@given(st.lists(st.binary(max_size=31), unique=True, max_size=5))
def test_every_id_of_2_15_comes_back(ids):
    assert list(parsed(jobstats_text.target([(one, COUNTS, END, START) for one in ids]))[0]) == ids


@given(st.binary(max_size=31))
def test_an_id_of_2_12_which_is_not_escaped_changes_no_other_job(identity):
    jobs = [(b"before", COUNTS, END, START), (identity, COUNTS, END, START), (b"after", COUNTS, END, START)]
    text = jobstats_text.target(jobs, "fs-OST0000", version="2.12") + jobstats_text.target([(b"x", COUNTS, END, START)], "fs-OST0001")
    (first, part), (second, _) = parse.targets(text, Counter())
    expected = parsed(jobstats_text.target(jobs[:1], version="2.12"))[0][b"before"]
    values, _ = parsed(part)
    assert (first, second) == ("fs-OST0000", "fs-OST0001")
    assert values[b"before"] == values[b"after"] == expected


@given(st.binary(max_size=40))
def test_what_is_shown_of_an_id_is_printable_and_names_one_id(identity):
    text = parse.shown(identity)
    assert text.isascii()
    assert text == "" or text.isprintable()
    assert re.sub(rb"\\x(..)", lambda found: bytes.fromhex(found[1].decode()), text.encode()) == identity


@given(st.integers(min_value=0))
def test_a_cut_text_gives_no_other_numbers(place):
    text = jobstats_text.target([(b"%d" % job, COUNTS, END, START) for job in range(3)])
    whole, _ = parsed(text)
    dropped = Counter()
    for identity, values in parsed(text[: place % len(text)], dropped)[0].items():
        assert all(whole[identity][name] == row or row == (0, 0, 0, 0) for name, row in values.items())


@given(st.binary(max_size=300))
def test_any_bytes_are_parsed_or_counted(junk):
    dropped = Counter()
    text = b"mdt.fs-MDT0000.job_stats=\njob_stats:\n- job_id: a\n" + junk
    for _, part in parse.targets(text, dropped):
        found = parse.blocks(part)
        assert len(parse.parse(part, found, Operations(), dropped).places) + dropped[parse.MALFORMED] == len(found)


def test_unknown_operations_are_kept_up_to_a_limit_and_then_counted():
    many = {"".join(chr(97 + int(digit)) for digit in f"{number:03d}"): (number, 0) for number in range(MAX_OPERATIONS + 5)}
    values, _ = parsed(jobstats_text.target([(b"1", many, END, START)]), dropped := Counter())
    assert {name: row[0] for name, row in values[b"1"].items()} == {name: many[name][0] for name in list(many)[:MAX_OPERATIONS]}
    assert dropped == {parse.TOO_MANY_OPERATIONS: 5}
    text = jobstats_text.target([(b"1", many, END, START)])
    found = parse.parse(text, parse.blocks(text), Operations(), Counter())
    assert found.examples == {parse.TOO_MANY_OPERATIONS: list(many)[MAX_OPERATIONS].encode()}


@pytest.mark.parametrize("count", [(1, 2**64 - 1), (2**64 - 1, 1), (1, 2**63), (2**62, 0)])
def test_a_job_with_a_count_that_can_not_be_true_gives_no_counts_and_is_counted_with_the_largest(count):
    """A count below zero on the server is printed as a number near 2^64, and was 2^63 - 1 bytes."""
    jobs = [(b"%d" % job, {**COUNTS, "open": count if job == 2 else (1, 2)}, END, START) for job in (1, 2, 3)]
    text = jobstats_text.target(jobs)
    values, times = parsed(text, dropped := Counter())
    assert values == parsed(jobstats_text.target([jobs[0], jobs[2]]))[0]
    assert (set(values), set(times), dropped) == ({b"1", b"3"}, {b"1", b"3"}, {parse.IMPLAUSIBLE: 1})
    found = parse.parse(text, parse.blocks(text), Operations(), Counter())
    assert found.examples == {parse.IMPLAUSIBLE: b"2: open, samples: %d, sum: %d" % count}


def test_counts_below_2_62_are_true_and_what_is_no_sum_may_be_anything():
    text = jobstats_text.target([(b"1", {"read_bytes": (2**62 - 1, 2**62 - 1)}, END, START)])
    text = text.replace(b"min:        1", b"min: 18446744073709551615")
    values, _ = parsed(text, dropped := Counter())
    assert (values[b"1"]["read_bytes"][0::3], dropped) == ((2**62 - 1, 2**62 - 1), Counter())


def test_a_time_after_the_year_2262_is_none():
    text = jobstats_text.target([(b"1", COUNTS, END, START)]).replace(b"start_time:      17", b"start_time:      917")
    assert parsed(text, dropped := Counter()) == ({}, {})
    assert dropped == {parse.IMPLAUSIBLE: 1}


def test_text_before_the_first_target_is_counted():
    text = b"error: get_param: no such parameter\n" + jobstats_text.target([(b"1", COUNTS, END, START)], "fs-MDT0000")
    dropped = Counter()
    assert [name for name, _ in parse.targets(text, dropped)] == ["fs-MDT0000"]
    assert dropped == {parse.NO_TARGET: 1}


HEAD = b"mdt.fs-MDT0000.job_stats=\njob_stats:\n"
SLOW = {
    "ids of blanks": (400_000, lambda n: HEAD + b"\n- job_id:" + b" " * n),
    "blocks without an end": (20_000, lambda n: HEAD + b"\n- job_id: a" * n),
    "a long line": (400_000, lambda n: HEAD + b"\n- job_id: a\n  snapshot_time: 1\n  open: { samples: 1, unit: reqs" + b" " * n),
    "targets": (5_000, lambda n: HEAD * n),
    "jobs": (400, lambda n: jobstats_text.target([(b"%d" % job, COUNTS, END, START) for job in range(n)], "fs-OST0000")),
    "different operations": (
        300,
        lambda n: HEAD + b"".join(jobstats_text.block(b"", {"a" * (1 + i % 32): (1, 1)}, END, START) for i in range(n)),
    ),
}


@pytest.mark.parametrize("name", SLOW)
def test_time_grows_with_the_text_and_not_with_its_square(name):
    size, make = SLOW[name]
    texts = [make(size * factor) for factor in (1, 2, 4)]

    def seconds(text):
        begin = time.process_time()
        for _, part in parse.targets(text, Counter()):
            parse.parse(part, parse.blocks(part), Operations(), Counter())
        return time.process_time() - begin

    least = [min(seconds(text) for _ in range(3)) for text in texts]
    assert least[2] < 8 * least[0] + 0.02, least  # a square: 16


def test_values_are_int64():
    text = jobstats_text.target([(b"1", COUNTS, END, START)])
    counts = parse.parse(text, parse.blocks(text), Operations(), Counter())
    assert [one.dtype for one in (counts.values, counts.snapshot, counts.start, counts.places)] == [np.int64] * 4


BYTES = b"  read_bytes:      { samples:  1, unit: bytes, min: 4, max: 4, sum:  4 }\n"
OPENS = b"  open:            { samples:  2, unit:  reqs }\n"
WHOLE = b"- job_id:          %s\n  snapshot_time:   1717230600\n" + BYTES + OPENS
HEADS = b"obdfilter.fs-OST0000.job_stats=\njob_stats:\n", b"obdfilter.fs-OST0001.job_stats=\njob_stats:\n"
TEXT = HEADS[0] + WHOLE % b"a.1" + WHOLE % b"b.2" + HEADS[1] + WHOLE % b"c.3"


@pytest.mark.parametrize(
    ("lost", "instead", "kept"),
    [
        (b"- job_id:          b.2\n", b"", {("fs-OST0001", b"c.3")}),
        (b"- job_id:          a.1\n", b"", {("fs-OST0000", b"b.2"), ("fs-OST0001", b"c.3")}),
        (HEADS[1].partition(b"\n")[0] + b"\n", b"", {("fs-OST0000", b"a.1"), ("fs-OST0000", b"b.2")}),
        (HEADS[1], HEADS[1].partition(b"\n")[0] + b"\n", {("fs-OST0000", b"a.1"), ("fs-OST0000", b"b.2")}),
        (BYTES, b"", {("fs-OST0000", b"b.2"), ("fs-OST0001", b"c.3")}),
        (b"unit: bytes, ", b"unit: bytes2, ", {("fs-OST0000", b"b.2"), ("fs-OST0001", b"c.3")}),
        (b"min: 4", b"min: -4", {("fs-OST0000", b"b.2"), ("fs-OST0001", b"c.3")}),
        (b"snapshot_time:   1717230600", b"snapshot_time:   17172306", {("fs-OST0000", b"b.2"), ("fs-OST0001", b"c.3")}),
    ],
)
def test_a_line_that_is_lost_or_damaged_gives_no_job_the_counts_of_another(lost, instead, kept):
    """Blocks whose begin was lost were read as lines of the job before, or of the target before."""
    dropped, found = Counter(), set()
    for name, part in parse.targets(TEXT.replace(lost, instead, 1), dropped):
        changes = JobCounts().update(part, 1717230660)
        dropped += changes.dropped
        found |= {(name, job) for job in changes.jobs}
        assert changes.samples.tolist() == [[1, 2]] * len(changes.jobs)
        assert changes.sums.tolist() == [[4, 0]] * len(changes.jobs)
    assert found == kept
    assert dropped.total()
