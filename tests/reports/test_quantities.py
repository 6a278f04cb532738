"""Cells are amounts per step, rates, or values at an instant; people read them with prefixes."""

import numpy as np
import pytest

from tokiod.reports.quantities import quantity


@pytest.mark.parametrize(
    ("dataset", "units", "cell", "text"),
    [
        ("datatargets/readbytes", "bytes", 5 * 1.5 * 2**30, "1.5 GiB/s"),
        ("datatargets/readbytes", "bytes", 0.0, "0 B/s"),
        ("datatargets/readrates", "bytes/sec", 2.0**20, "1 MiB/s"),
        ("mdtargets/opens", "ops", 12_500_000.0, "2.5 Mops/s"),
        ("mdtargets/openrates", "ops/sec", 3.0, "3 ops/s"),
        ("dataservers/cpuload", "%", 12.34, "12.3 %"),
        ("dataservers/memfree", "bytes", 1023 * 2.0**30, "1023 GiB"),
        ("fullness/bytes", "KiB", 1024.0, "1 MiB"),
        ("failover/datatargets", "", 3.0, "3"),
        ("datatargets/readbytes", "bytes", np.nan, "-"),
        ("nodes/net_sent", "B", 5 * 2.0**30, "1 GiB/s"),
        ("nodes/energy_package", "J", 1500.0, "300 W"),
        ("nodes/cpu_user", "s", 40.0, "8 s/s"),
        ("nodes/mem_free", "B", 2.0**30, "1 GiB"),
        ("nodes/load_1min", "1", 3.0, "3"),
        ("nodes/temperature", "degC", 61.5, "61.5 degC"),
    ],
)
def test_a_cell_of_five_seconds_is_written_in_units_of_the_field(dataset, units, cell, text):
    measured = quantity(dataset, units, 5)
    assert measured.text(cell * measured.factor) == text


def test_components_are_summed_except_percentages():
    assert quantity("dataservers/cpuload", "%", 5).of_all == "mean"
    assert quantity("nodes/temperature", "degC", 60).of_all == "mean"
    assert quantity("fullness/bytes", "KiB", 5).of_all == "sum"
