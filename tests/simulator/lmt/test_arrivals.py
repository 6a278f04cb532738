from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from tokiod.simulator.faults import BLOCK
from tokiod.simulator.lmt.database import FIRST_TS_ID, PIECES, Arrivals
from tokiod.simulator.load import NULL

TABLES = ("OST_DATA", "OSS_DATA", "MDS_DATA", "MDS_OPS_DATA")


@pytest.fixture
def arrivals(site):
    return Arrivals(site)


def table_of(rows):
    return list(zip(rows.ts_id.tolist(), rows.component.tolist(), *(values.tolist() for values in rows.fields.values()), strict=True))


def test_ts_ids_count_up_without_holes_and_lead_back_to_their_steps(arrivals):
    ids = arrivals.ts_ids(0, 2 * BLOCK)
    flat = [ts_id for step in ids for ts_id in step]
    assert flat == list(range(FIRST_TS_ID, FIRST_TS_ID + len(flat)))
    assert {len(step) for step in ids} == {0, 1, 2}
    assert [arrivals.step(ts_id) for ts_id in flat] == [step for step, some in enumerate(ids) for _ in some]


@pytest.mark.parametrize(("table", "seed"), [*((table, 1) for table in TABLES), *(("OSS_DATA", seed) for seed in range(2, 10))])
def test_the_latest_row_of_each_time_and_component_is_what_was_measured_and_nothing_else_is(site, table, seed):
    arrivals = Arrivals(replace(site, seed=seed))
    want = arrivals.load.table(table, 0, BLOCK)
    step_of = {ts_id: step for step, ids in enumerate(arrivals.ts_ids(0, BLOCK)) for ts_id in ids}
    latest = {}
    for ts_id, component, *values in table_of(arrivals.rows(table, 0, BLOCK)):
        latest[step_of[ts_id], component] = values
    present = {tuple(at): [values[tuple(at)] for values in want.fields.values()] for at in np.argwhere(want.present).tolist()}
    assert latest.keys() == present.keys()
    assert all(np.array_equal(latest[at], present[at], equal_nan=True) for at in present)


def test_where_a_time_has_two_ts_ids_some_servers_write_under_both_first_what_is_old(arrivals):
    rows = arrivals.rows("OST_DATA", 0, BLOCK)
    now = arrivals.load.table("OST_DATA", 0, BLOCK)
    stale = wrote_once = 0
    for step, ids in enumerate(arrivals.ts_ids(0, BLOCK)):
        if len(ids) == 2:
            first, second = (
                {c: rows.fields["READ_BYTES"][i] for i, c in enumerate(rows.component.tolist()) if rows.ts_id[i] == t} for t in ids
            )
            both = first.keys() & second.keys()
            wrote_once += len(first.keys() ^ second.keys())
            stale += sum(first[c] != second[c] for c in both)
            assert all(first[c] == now.fields["READ_BYTES"][step - 1, c] for c in both)
            assert NULL not in second.values()
    assert stale
    assert wrote_once


@pytest.mark.parametrize("table", TABLES)
def test_pieces_are_a_partition_of_a_ts_ids_rows(arrivals, table):
    rows = arrivals.rows(table, 0, 50)
    pieces = [
        row
        for ids in arrivals.ts_ids(0, 50)
        for ts_id in ids
        for p in range(PIECES)
        for row in table_of(arrivals.piece(table, rows, ts_id, p))
    ]
    assert sorted(map(repr, pieces)) == sorted(map(repr, table_of(rows)))


@pytest.mark.parametrize("cuts", [(1,), (7, 300, 301), tuple(range(1, 60))])
def test_rows_of_a_range_are_those_of_its_parts(arrivals, cuts):
    edges = (0, *cuts, 400)
    parts = [repr(row) for a, b in pairwise(edges) for row in table_of(Arrivals(arrivals.load.site).rows("OST_DATA", a, b))]
    assert parts == list(map(repr, table_of(arrivals.rows("OST_DATA", 0, 400))))
