"""Data of a window that is not a matrix: rows of tables."""

import numpy as np
import pytest

from sinks.tts.day_files import DayFiles
from sinks.tts.sink import TtsSink
from tokiod.archive.layout import single
from tokiod.errors import Refusal
from tokiod.testing.clock import FakeClock
from tokiod.window import Window
from tokiod.window_data import Collected, TableRows, WindowMeta

ROWS = TableRows("jobs/operations", ("time", "writes"), (np.array([600, 601]), np.array([7, 8])))
COLLECTED = Collected(WindowMeta("a", "jobstats", "fs", Window(600, 660)), [], [ROWS])
SENTENCE = "kind 'jobstats' returned rows of a table (jobs/operations), which TTS files don't hold"


def test_rows_have_one_array_for_each_column():
    assert len(ROWS) == 2


@pytest.mark.parametrize(
    ("columns", "lengths", "sentence"),
    [
        (("time", "writes"), (2,), "1 arrays for the columns time, writes"),
        (("writes", "time"), (2, 2), "the first must be time"),
        ((), (), "0 arrays for the columns"),
        (("time", "writes"), (2, 3), "columns of different lengths"),
    ],
)
def test_rows_that_do_not_fit_their_columns_are_refused(columns, lengths, sentence):
    with pytest.raises(ValueError, match=sentence):
        TableRows("jobs/operations", columns, tuple(np.arange(length) for length in lengths))


def test_a_sink_refuses_a_window_with_rows_and_creates_no_file(tmp_path):
    sink = TtsSink(DayFiles(single(tmp_path / "day.hdf5", Window(0, 86400)), FakeClock(0)))
    with pytest.raises(Refusal) as refused:
        sink.apply(COLLECTED)
    sink.close()
    assert (str(refused.value), refused.value.when) == (SENTENCE, "never")
    assert list(tmp_path.iterdir()) == []
