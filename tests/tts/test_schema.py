import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokiod.tts.node_metrics import COUNTERS, GAUGES
from tokiod.tts.schema import ABSENT, DATASETS, GROUPS, MISSING, UNITS, group_of, missing, natural_key, units


def test_numbers_in_names_are_ordered_by_value_and_those_of_osts_and_mdts_are_hexadecimal():
    ordered = [
        "bb2",
        "bb10",
        "bb10:nvme2n1",
        "bb10:nvme10n1",
        "fs-MDT0000",
        "fs-MDT000f",
        "fs-MDT0010",
        "fs-OST0009",
        "fs-OST000A",
        "fs-OST000a",
        "fs-OST0010",
    ]
    shuffled = random.Random(1).sample(ordered, len(ordered))
    assert sorted(shuffled, key=natural_key) == ordered


def test_four_digits_are_hexadecimal_only_where_they_are_all_of_an_index():
    assert natural_key("OST00100") == (("OST", 100, ""), "OST00100")
    assert natural_key("node000a") == (("node", 0, "a"), "node000a")


@given(st.lists(st.text(), unique=True), st.randoms())
def test_any_names_have_one_natural_order(names, chance):
    shuffled = chance.sample(names, len(names))
    assert sorted(shuffled, key=natural_key) == sorted(names, key=natural_key)


@given(st.lists(st.integers(0, 2**64 - 1)))
def test_only_the_bits_of_negative_zero_are_missing(patterns):
    bits = np.array(patterns, np.uint64)
    expected = [pattern == 1 << 63 for pattern in patterns]
    assert missing(bits.view(np.float64)).tolist() == expected
    assert missing(bits.view(np.int64)).tolist() == expected


def test_a_measured_zero_is_not_missing_and_an_absent_sample_has_the_bits_of_a_missing_cell():
    assert missing(np.array([MISSING, 0.0, np.nan, -1.0])).tolist() == [True, False, False, False]
    assert np.array([ABSENT]).view(np.float64).tobytes() == np.array([MISSING]).tobytes()


def test_missing_looks_at_every_cell_of_a_slice():
    values = np.full((3, 4), -0.0)
    values[1, 2] = 0.0
    assert missing(values[:, 1:3]).tolist() == [[True, True], [True, False], [True, True]]


def test_every_dataset_has_a_group_and_units_and_their_order_is_that_of_the_groups():
    assert [group for i, group in enumerate(map(group_of, DATASETS)) if i == 0 or group != group_of(DATASETS[i - 1])] == list(GROUPS)
    assert (len(DATASETS), len(set(DATASETS))) == (12 + 12 + 24 + 14 + 14 + 4 + 3 + len(COUNTERS) + len(GAUGES), len(UNITS))


@pytest.mark.parametrize(
    ("dataset", "expected"),
    [
        ("datatargets/readbytes", "bytes"),
        ("mdtargets/openrates", "ops/sec"),
        ("mdtargets/getxattrs", "ops"),
        ("fullness/bytestotal", "KiB"),
        ("dataservers/memused", "bytes"),
        ("mdservers/cpuload", "%"),
    ],
)
def test_units_are_the_standard_ones(dataset, expected):
    assert units(dataset) == expected


def test_an_unknown_dataset_is_named():
    with pytest.raises(ValueError, match="'datatargets/opens'"):
        units("datatargets/opens")
