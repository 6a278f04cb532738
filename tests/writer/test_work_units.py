"""Units of maintenance that fail: what the log says of them."""

import pytest
from structlog.testing import capture_logs

from tokiod.errors import Refusal
from tokiod.testing.clock import FakeClock
from tokiod.writer.work_units import WorkUnits


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (Refusal("/tts/fs.hdf5: the disk is full", "retry"), "/tts/fs.hdf5: the disk is full"),
        (FileNotFoundError(2, "No such file or directory", "/tts/fs.hdf5"), "[Errno 2] No such file or directory: '/tts/fs.hdf5'"),
        (ValueError("no number"), "ValueError: no number"),
    ],
)
def test_a_known_error_is_logged_by_its_text_and_a_fault_of_the_code_with_its_class(error, text):
    with capture_logs() as logs, WorkUnits(FakeClock(0.0)).unit("seal /tts/fs.hdf5"):
        raise error
    assert [(log["event"], log["task"], log["error"]) for log in logs] == [("maintenance.failed", "seal /tts/fs.hdf5", text)]
