import subprocess
import sys
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokiod.simulator.faults import BLOCK, trouble
from tokiod.simulator.jobs.work import DATA, Work
from tokiod.simulator.load import HUGE, NULL, Load
from tokiod.simulator.site import OPERATIONS, Site

TABLES = ("OST_DATA", "OSS_DATA", "MDS_DATA", "MDS_OPS_DATA")
SITE = Site(epoch=1_517_126_400 - 1800, osts=9, osss=4, mdts=3)
CALM = Site(epoch=SITE.epoch, osts=9, osss=4, mdts=3, trouble=False)
LONG = {name: Load(SITE).table(name, 0, 3 * BLOCK) for name in TABLES}

COUNTS = [0 if m else 2 if t else 1 for b in range(3) for m, t in zip(trouble(SITE, b).missing, trouble(SITE, b).twice, strict=True)]
BEFORE = [0, *accumulate(COUNTS)]

ranges = st.tuples(st.integers(0, 3 * BLOCK - 1), st.integers(1, 3 * BLOCK)).map(lambda r: (r[0], min(r[0] + r[1], 3 * BLOCK)))


def same(one, other):
    return np.array_equal(one.present, other.present) and all(
        np.array_equal(values, other.fields[name], equal_nan=values.dtype.kind == "f") for name, values in one.fields.items()
    )


@settings(deadline=None, max_examples=30)
@given(st.sampled_from(TABLES), st.lists(ranges, min_size=1, max_size=4))
def test_any_range_equals_the_same_cut_of_a_longer_one_in_whatever_order_they_are_asked(table, asked):
    load = Load(SITE)
    assert all(same(load.table(table, first, last), LONG[table][slice(first, last)]) for first, last in asked)


def test_another_process_knows_the_same_numbers():
    program = "import sys; sys.path.insert(0, sys.argv[1]); import test_load as t; print(t.digest(1500, 1700))"
    there = subprocess.run([sys.executable, "-c", program, str(__file__).rpartition("/")[0]], capture_output=True, text=True, check=True)
    assert there.stdout.strip() == str(digest(1500, 1700))


def digest(first, last):
    """Sum up all that one range holds, without the blocks before it being asked for."""
    load = Load(SITE)
    tables = [load.table(name, first, last) for name in TABLES]
    return sum(int(np.nansum(values).view("u8")) for table in tables for values in table.fields.values())


@settings(deadline=None, max_examples=30)
@given(st.lists(ranges, min_size=1, max_size=4))
def test_ticks_count_every_ts_id_from_the_epoch_on(asked):
    load = Load(SITE)
    for first, last in asked:
        before, count = load.ticks(first, last)
        assert before.tolist() == BEFORE[first:last]
        assert count.tolist() == COUNTS[first:last]


@pytest.mark.parametrize("field", ["READ_BYTES", "WRITE_BYTES"])
def test_counters_are_running_sums_to_the_last_bit_with_resets(field):
    load = Load(SITE)
    half = slice(0, SITE.osts) if field == "READ_BYTES" else slice(SITE.osts, 2 * SITE.osts)
    value = [int(v) for v in load._bytes._carried[0][0][half]]
    for block in range(3):
        more, now, rows = load._more_bytes(block)[:, half], load.trouble(block), load.table("OST_DATA", block * BLOCK, (block + 1) * BLOCK)
        got = rows.fields[field]
        for step in range(BLOCK):
            for column in range(SITE.osts):
                value[column] = int(more[step, column]) + (0 if now.ost_reset[step, column] else value[column])
            want = [
                0 if zero else v * 2 // 3 if dip else v for v, zero, dip in zip(value, now.ost_zero[step], now.ost_dip[step], strict=True)
            ]
            assert all(g in (w, NULL) for g, w in zip(got[step].tolist(), want, strict=True))


def test_without_trouble_every_row_is_there_nothing_is_null_and_no_counter_falls():
    for name in TABLES:
        table = Load(CALM).table(name, 0, 2 * BLOCK)
        assert table.present.all()
        assert not any((values == NULL).any() or np.isnan(values).any() for values in table.fields.values())
    counters = [
        Load(CALM).table("OST_DATA", 0, 2 * BLOCK).fields["READ_BYTES"],
        Load(CALM).table("MDS_OPS_DATA", 0, 2 * BLOCK).fields["SAMPLES"],
    ]
    assert all((np.diff(values, axis=0) >= 0).all() for values in counters)


def test_some_counters_are_beyond_what_a_float_holds_and_some_never_move():
    for name, field in (("OST_DATA", "READ_BYTES"), ("MDS_OPS_DATA", "SAMPLES")):
        values = Load(CALM).table(name, 0, BLOCK).fields[field]
        moves = np.diff(values, axis=0) > 0
        assert (values > HUGE).any()
        assert (values.astype(np.float64).astype(np.int64) != values).any()
        assert not moves.all(axis=0).any() or moves.any(axis=0).sum() < moves.shape[1]
        assert 0 < moves.any(axis=0).sum() < moves.shape[1]


def test_an_ost_has_no_rows_before_it_appears():
    growing = Site(epoch=SITE.epoch, osts=3, osss=3, growth=600, trouble=False)
    assert Load(growing).table("OST_DATA", 0, BLOCK).present.sum(axis=0).tolist() == [BLOCK, BLOCK, BLOCK - 120]


def test_both_mdts_of_a_server_tell_its_load():
    cpu = LONG["MDS_DATA"].fields["PCT_CPU"]
    assert np.array_equal(cpu[:, 0], cpu[:, 1], equal_nan=True)
    assert not np.array_equal(cpu[:, 0], cpu[:, 2], equal_nan=True)
    assert np.array_equal(LONG["MDS_DATA"].present.repeat(len(OPERATIONS), axis=1), LONG["MDS_OPS_DATA"].present)


def test_percentages_reach_both_ends_and_a_zero_is_positive():
    for name, field in (("OSS_DATA", "PCT_CPU"), ("OSS_DATA", "PCT_MEMORY"), ("MDS_DATA", "PCT_CPU")):
        values = LONG[name].fields[field]
        assert (np.nanmin(values), np.nanmax(values)) == (0.0, 100.0)
        assert not np.signbit(values[values == 0]).any()
        assert all(len(f"{v:.6g}") == len(f"{v:g}") and float(f"{v:.6g}") == v for v in values[~np.isnan(values)].tolist())


def test_what_is_carried_from_block_to_block_does_not_keep_the_blocks():
    load = Load(SITE)
    load.table("OST_DATA", 5 * BLOCK, 5 * BLOCK + 1)
    assert [(total.base, floor.base) for total, floor in load._bytes._carried] == [(None, None)] * 6


@pytest.mark.parametrize("field", ["read_bytes", "write_bytes"])
def test_the_bytes_of_an_ost_in_a_minute_are_those_that_its_jobs_counted_in_it(field):
    """Where jobs act once in a minute, in which whoever asks sees all of it."""
    site = Site(epoch=SITE.epoch, osts=9, osss=4, mdts=1, trouble=False, acts=1)
    work, minutes = Work(site), range(site.epoch + 60, site.epoch + 3600, 60)
    counted = Load(site).table("OST_DATA", 0, 2 * BLOCK).fields[f"{field.partition('_')[0].upper()}_BYTES"]
    place = DATA.index(field)
    total = 0
    for number, target in enumerate(site.ost_names):
        acts = [(acts.times, acts.done[:, place, 1]) for acts in work.acts(minutes[0], minutes[-1] + 60) if acts.target == target]
        want = [sum(int(done[times == minute].sum()) for times, done in acts) for minute in minutes]
        steps = [(minute - site.epoch) // 5 for minute in minutes]
        assert [int(counted[step + 12, number] - counted[step, number]) for step in steps] == want
        total += sum(want)
    assert total > 1e9
