"""Increases are what was done: by the examples of docs/guarantees.md, and by a source of which every byte is known."""

import random
import re
from pathlib import Path

import numpy as np
import pytest

from tokiod.increases import BILLION, IMPLAUSIBLE, MOST, OLDER, Samples, increases

PAGE = Path(__file__).parents[1] / "docs" / "guarantees.md"
LINES = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.read_text("utf-8").splitlines()
    if re.match(r"\| (?:common|parts|own) \|", line)
]
MORE = [
    [
        "parts",
        "`0/60: 5 7` `0/120: 9 9` `0/130: - 9` `0/70: 6 9`",
        "`5 7` `4 2` `- 0` `older`",
        "its last value counts, also where a sample lacks it",
    ],
    ["parts", "`0/60: 9 -` `90/120: - 5` `90/115: 4 5`", "`9 -` `- 5` `4 0`", "values before a later begin count no more"],
    ["common", "`0/60: 1 1` `0/120: 4611686018427387904 2`", "`1 1` `4611686018427387903 1`", "2^62 itself can be"],
]
REASONS = {"older": OLDER, "implausible": IMPLAUSIBLE}


def parsed(cell):
    """Samples of (begin ns, snapshot ns, counts, gone) from `begin/snapshot: counts`."""
    found = []
    for begin, snapshot, counts, gone in re.findall(r"`([\d.?]+)/(\d+): ([-\d ]+?)( gone)?`", cell):
        began = -1 if begin == "?" else round(float(begin) * BILLION)
        found.append((began, int(snapshot) * BILLION, [-1 if one == "-" else int(one) for one in counts.split()], bool(gone)))
    return found


def samples(found, kind, times=None):
    begin, last, counts, gone = zip(*found, strict=True)
    named = {f"c{i}": np.array(values, np.int64) for i, values in enumerate(zip(*counts, strict=True))}
    times = range(60, 60 * len(found) + 60, 60) if times is None else times
    arrays = (np.array(values, np.int64) for values in (times, begin, last))
    return Samples(np.zeros(len(found), np.int64), *arrays, np.array(gone, bool), **{kind: named})


@pytest.mark.parametrize("line", [*LINES, *MORE], ids=lambda line: line[3])
def test_each_line_of_the_document_is_right(line):
    kind, given, expected, _ = line
    found = increases(samples(parsed(given), kind))
    for i, cell in enumerate(re.findall(r"`([^`]+)`", expected)):
        assert (bool(found.is_older[i]), bool(found.is_implausible[i])) == (cell == "older", cell == "implausible"), i
        wanted = [0, 0] if cell in REASONS else [-1 if one == "-" else int(one) for one in cell.split()]
        assert [int(values[i]) for values in found.counts.values()] == wanted, i


@pytest.mark.parametrize(
    ("kind", "given", "since", "fell"),
    [
        ("parts", "`7/60: 5 7` `7/120: 5 6` `7/180: 6 6`", [7, 60, 120], [0, 1, 0]),
        ("common", "`?/60: 5 7` `?/120: 6 7` `?/180: 1 1`", [60, 60, 120], [0, 0, 0]),
        ("common", "`7/60: 5 7` `90/120: 3 6` `90/180: 4 6`", [7, 90, 120], [0, 0, 0]),
        ("parts", "`50/60: 10 1` `20/120: 1 0` `20/180: 2 0`", [50, 60, 120], [0, 0, 0]),
        ("parts", "`100/60: 10 1` `99/120: 1 0`", [100, 99], [0, 0]),
        ("common", "`0/100: 5 7` `0/70: 4 7` `0/160: 6 7`", [0, 120, 60], [0, 0, 0]),
    ],
)
def test_an_increase_is_of_the_time_since_the_sample_before_or_the_begin(kind, given, since, fell):
    """Of a sample that is refused it is of no time."""
    found = increases(samples(parsed(given), kind))
    assert (found.since.tolist(), found.fell.astype(int).tolist()) == (since, fell)


def test_the_document_has_examples():
    assert len(LINES) > 15


def test_no_sample_has_no_increase():
    none = np.empty(0, np.int64)
    for counts in ({}, {"a": none}):
        assert len(increases(Samples(none, none, none, none, none.astype(bool), counts, counts, {})).since) == 0


class Source:
    """A job on a target: what it did by the second, and what its server said each time it was polled.

    Clocks of server and daemon are ahead or behind for a while, never both.
    """

    def __init__(self, seed, jumps=("poller", "source", "none")):
        draw = random.Random(seed)
        self.polls = []  # (true time, time, begin, last, counts)
        off, until, which = 0, 0, "none"
        begin, last, counts = None, None, np.zeros(2, np.int64)
        for second in range(1, 6000):
            if second > until and draw.random() < 0.002:
                until, which = second + draw.randrange(60, 600), draw.choice(jumps)
                off = draw.choice([-1, 1]) * draw.randrange(30, 1500)
            elif second > until:
                off = 0
            poller, server = (off if which == name else 0 for name in ("poller", "source"))
            if begin is not None and second - last[0] > 300 and draw.random() < 0.02:
                begin, counts = None, np.zeros(2, np.int64)  # removed
            if draw.random() < 0.05:
                begin = second if begin is None else begin
                counts = counts + np.array([draw.randrange(50), draw.randrange(2)])
                last = second, second + server
            if second % 60 == 7 and begin is not None and draw.random() < 0.9:
                self.polls.append((second, second + poller, begin, last[1], counts.tolist()))

    def rows(self):
        return sorted(self.polls, key=lambda one: one[1])

    def increases(self, rows):
        found = [(begin * BILLION, last * BILLION, counts, False) for _, _, begin, last, counts in rows]
        return increases(samples(found, "common", [time for _, time, *_ in rows]))


@pytest.mark.parametrize("seed", range(60))
def test_sums_are_what_was_done_however_the_clock_of_the_poller_jumps(seed):
    """Of each life of the counts all is counted that its newest poll saw, once."""
    source = Source(seed, jumps=("poller",))
    rows = source.rows()
    found = source.increases(rows)
    newest = {}
    for _, _, begin, _, counts in source.polls:
        newest[begin] = np.maximum(newest.get(begin, 0), counts)
    assert [int(values.sum()) for values in found.counts.values()] == sum(newest.values()).tolist()
    assert all((values >= 0).all() for values in found.counts.values())


@pytest.mark.parametrize("seed", range(60))
def test_one_row_in_between_changes_no_sum_and_spans_add_up(seed):
    source = Source(seed, jumps=("poller", "source"))
    rows = source.rows()
    whole = source.increases(rows)
    draw = random.Random(seed)
    for _ in range(5):
        # What a span has is known by the rows before its end alone.
        cut = draw.randrange(1, len(rows))
        early = source.increases(rows[:cut])
        for name, values in early.counts.items():
            assert values.tolist() == whole.counts[name][:cut].tolist()
    steady = Source(seed, jumps=("none",))
    rows = steady.rows()
    sums = [int(values.sum()) for values in steady.increases(rows).counts.values()]
    for place in draw.sample(range(len(rows) - 1), 20):
        if rows[place][2] == rows[place + 1][2]:  # the last one of a life is not in between
            fewer = [*rows[:place], *rows[place + 1 :]]
            assert [int(values.sum()) for values in steady.increases(fewer).counts.values()] == sums


@pytest.mark.parametrize("seed", range(20))
def test_a_source_whose_own_clock_jumps_is_counted_once(seed):
    """Within one life: after it, an answer that is later but says that it is older can't be told from an old one."""
    source = Source(seed, jumps=("source",))
    lives = {}
    for poll in source.polls:
        lives.setdefault(poll[2], []).append(poll)
    for life in lives.values():
        found = source.increases(life)
        assert [int(values.sum()) for values in found.counts.values()] == life[-1][4]
        assert not found.is_older.any()


@pytest.mark.parametrize("seed", range(40))
def test_random_samples_give_what_one_after_the_other_gives(seed):
    """The arrays are what a plain loop over samples says, for any samples."""
    draw = random.Random(seed)
    for kind in ("common", "parts", "own"):
        for _ in range(20):
            found = [
                (
                    draw.choice([-1, 0, 5, 90, 90]) * BILLION if draw.random() < 0.3 else 0,
                    draw.choice([60 * i, 60 * i, draw.randrange(600)]) * BILLION,
                    [draw.choice([i * 3, i * 3, draw.randrange(30), MOST + 1 if draw.random() < 0.02 else i]) for _ in range(2)],
                    draw.random() < 0.1,
                )
                for i in range(12)
            ]
            found = [(max(begin, -1), *others) for begin, *others in found]
            result = increases(samples(found, kind))
            assert list(zip(*(values.tolist() for values in result.counts.values()), strict=True)) == one_by_one(found, kind)


def one_by_one(found, kind):
    """The rule in plain words, for samples that have all counts."""
    result, base = [], None
    for begin, last, counts, gone in found:
        if max(counts) > MOST:
            result.append((0, 0))
            continue
        if base is None:
            result.append(tuple(counts) if begin >= 0 else (0, 0))
            base = begin, last, counts, gone
            continue
        before, newest, old, was_gone = base
        compared = [] if kind == "own" else list(zip(counts, old, strict=True))
        fell = any(new < was for new, was in compared)
        is_older = last <= newest and begin <= before
        is_older &= 0 <= begin < before or (fell if begin == before >= 0 or last == newest else begin < 0)
        if is_older or (kind == "common" and fell and begin == before >= 0):
            result.append((0, 0))
            continue
        again = begin > before and (fell or begin // BILLION > before // BILLION if before >= 0 else begin > newest)
        if not again and (begin < 0 or before < 0 or begin < before):
            if kind == "common":
                again = fell or (was_gone and begin < 0 and last > newest and not (gone and counts == old))
            else:
                again = fell and all(new < was for new, was in compared if was > 0)
        if again:
            result.append(tuple(counts))
        else:
            result.append(tuple(new - was if new >= was else new if kind == "own" else 0 for new, was in zip(counts, old, strict=True)))
        base = begin, last, counts, gone
    return result
