"""A logger that imports structlog at its first event."""

from structlog.testing import capture_logs

from tokiod.runtime.logger import get_logger


def test_a_logger_logs_as_structlog_does():
    with capture_logs() as logged:
        get_logger().warning("disk.low", free=3)
    assert logged == [{"event": "disk.low", "free": 3, "log_level": "warning"}]
