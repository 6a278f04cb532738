"""Tables with rows in any order, some of them twice, to rows and cells, against what one value at a time gives."""

import datetime as dt
import gc
from itertools import pairwise
from zoneinfo import ZoneInfo

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from mmperfmon_outputs import output, stamps

from collectors.mmperfmon.datasets import Maps
from collectors.mmperfmon.parse import parse
from collectors.mmperfmon.parse_legend import Table, read_legend
from collectors.mmperfmon.series import Series
from collectors.mmperfmon.to_batches import Buckets, batches, measured
from tokiod.dropped import Dropped
from tokiod.tts.schema import UNITS
from tokiod.window import Window

START, STEP, ROWS = 1557903600, 60, 12
KEYS = ("nsd1|CPU|cpu_user", "nsd1|Network|lo|net_r", "nsd1|CPU|cpu_wait", "nsd2|CPU|cpu_user")
CELLS = {0: "nsd1", 3: "nsd2"}
"""Columns that fill cells: the others give records only."""

values = st.lists(st.none() | st.integers(0, 9), min_size=len(KEYS), max_size=len(KEYS))
rows = st.lists(st.tuples(st.integers(0, ROWS - 1), values), max_size=20)
cuts = st.sets(st.integers(1, ROWS - 1)).map(lambda inside: [0, *sorted(inside), ROWS])


def table(rows):
    """Of (bucket, values); two buckets that follow one another tell how long buckets are."""
    rows = [(0, [None] * len(KEYS)), (1, [None] * len(KEYS)), *rows]
    stamps = [dt.datetime.fromtimestamp(START + STEP * (bucket + 1), dt.UTC).strftime("%Y-%m-%d-%H:%M:%S") for bucket, _ in rows]
    text = "".join(f"\n{number}:\t{key}" for number, key in enumerate(KEYS, 1))
    return Table(read_legend(text.encode()), 0, "".join(stamps).encode(), np.array([of for _, of in rows], np.float64))


def had(table, window):
    """The records of a window, and its cells."""
    series = Series(Maps())
    part = measured(table, Buckets(ZoneInfo("UTC"), STEP), series, window, Dropped())
    found = {}
    for batch in batches([part], window, STEP, series, 1.0):
        times = ((batch.time - START) // STEP).tolist()
        found |= {(t, batch.columns[c]): v for t, c, v in zip(times, batch.column, batch.value.tolist(), strict=True)}
    return int(part.records.sum()), found


@given(rows, cuts)
def test_a_value_is_a_record_once_and_the_later_one_counts_in_any_window(rows, cuts):
    right = {(bucket, column): one for bucket, of in rows for column, one in enumerate(of) if one is not None}
    cells, records = {}, []
    for first, last in pairwise(cuts):
        count, found = had(table(rows), Window(START + STEP * first, START + STEP * last))
        records.append(count)
        cells |= found
    assert records == [sum(a <= bucket < b for bucket, _ in right) for a, b in pairwise(cuts)]
    assert had(table(rows), Window(START, START + STEP * ROWS)) == (len(right), cells)
    assert cells == {(bucket, CELLS[column]): one for (bucket, column), one in right.items() if column in CELLS}


def test_what_is_dropped_of_a_bucket_that_is_there_twice_is_dropped_once():
    dropped = Dropped()
    measured(table([(3, [1, 2, 3, 4]), (3, [1, 2, 3, None])]), Buckets(ZoneInfo("UTC"), STEP), Series(Maps()), None, dropped)
    assert dropped.counts == {"loopback": 1, "unknown metric": 1}


def test_metrics_without_a_name_of_tts_are_kept_under_declared_ones():
    window = Window(START, START + 2 * STEP)
    times = stamps(dt.datetime(2019, 5, 15, 7, 1, tzinfo=dt.UTC), 2)
    columns = {
        "nsd1|CPU|cpu_idle": [90.0, 80.5],
        "nsd1|CPU|cpu_iowait": [1.5, 2.5],
        "nsd1|Memory|mem_cached": [100, 200],
        "nsd1|GPFSNSDDisk|na01|gpfs_nsdds_tot_disk_wait_rd": [0.25, 0.5],
        "nsd1|GPFSFilesystem|c|fs|gpfs_fs_tot_queue_wait_wr": [1, 2],
        "nsd1|GPFSFilesystem|c|fs|gpfs_fs_disks": [4, 4],
    }
    series, dropped = Series(Maps()), Dropped()
    parts = [measured(one, Buckets(ZoneInfo("UTC"), STEP), series, window, dropped) for one in parse(output(columns, times, 500)).tables]
    found = {batch.dataset: (batch.columns, batch.value.tolist()) for batch in batches(parts, window, STEP, series, 1.0)}
    assert found == {
        "dataservers/cpuidle": (("nsd1",), [90.0, 80.5]),
        "dataservers/cpuiowait": (("nsd1",), [1.5, 2.5]),
        "dataservers/memcached": (("nsd1",), [100.0, 200.0]),
        "datatargets/readwaits": (("nsd1:na01",), [0.25, 0.5]),
        "datatargets/writequeuewaits": (("nsd1:c|fs",), [1.0, 2.0]),
    }
    assert found.keys() <= UNITS.keys()
    assert dropped.counts == {"unknown metric": 2}


def test_legends_that_do_not_come_again_are_not_kept():
    """The live collector kept one for each set of nodes that had data, until the daemon was restarted."""
    series = Series(Maps())
    for number in range(40):
        lines = [f" {n}:\tnode{n:05}-{number}.cluster|CPU|cpu_user" for n in range(1, 5001)]
        series.numbers(read_legend(("\n".join(lines) + "\n").encode()))
    gc.collect()
    assert len(series._of_legend) < 30
    assert len(series) == 40 * 5000
