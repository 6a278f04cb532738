"""What a day's file must have for the batches of a window."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from sinks.tts.open_day_file import spec_for
from tokiod.archive.layout import FileSlot
from tokiod.batch import Batch
from tokiod.errors import Refusal
from tokiod.tts.counters.difference_rule import LARGEST
from tokiod.tts.spec import GroupSpec, MatrixSpec

SLOT = FileSlot("fs", Path("/archive/fs.hdf5"), 0, 600)
READ, WRITE, LOAD = "datatargets/readbytes", "datatargets/writebytes", "dataservers/cpuload"


def cells(dataset, form, columns=("a",), step=5):
    empty = np.empty(0, np.int64)
    return SimpleNamespace(batch=Batch(dataset, form, step, columns, empty, empty.astype(np.uint32), empty))


def spec(*chosen):
    return spec_for(SLOT, "lmt", {LOAD: "%"}, lambda _dataset, step: 1000 * step, chosen)


def test_columns_of_several_batches_are_joined_in_their_order():
    made = spec(cells(READ, "counter", ("b", "a")), cells(READ, "counter", ("c", "a")), cells(LOAD, "gauge"), cells(WRITE, "gauge", ()))
    assert made.groups == {"datatargets": GroupSpec(5, "lmt"), "dataservers": GroupSpec(5, "lmt")}
    assert made.matrices == {
        READ: MatrixSpec(("b", "a", "c"), counter=True, own_units="", max_step=5000),
        LOAD: MatrixSpec(("a",), counter=False, own_units="%", max_step=LARGEST),
    }


@pytest.mark.parametrize(
    ("chosen", "reason"),
    [
        ((cells(READ, "counter"), cells(WRITE, "counter", step=10)), f"{WRITE}: step 10, the rest of its group has another"),
        ((cells(READ, "counter"), cells(READ, "gauge")), f"{READ}: a gauge and a counter in one window"),
        ((cells("nonsense/x", "gauge"),), "/archive/fs.hdf5: unknown TTS group 'nonsense'"),
    ],
)
def test_batches_that_contradict_each_other_are_refused_for_good(chosen, reason):
    with pytest.raises(Refusal) as refused:
        spec(*chosen)
    assert (str(refused.value).startswith(reason), refused.value.when) == (True, "never")
