"""A logger that imports structlog at its first event."""

import subprocess
import sys

from structlog.testing import capture_logs

from tests.bench import lmt_copy
from tokiod.runtime.logger import get_logger

HEAVY = ("structlog", "rich", "numpy.ma", "sqlite3")
ARCHIVE = f"""
import sys
from tokiod.cli.tokioctl import main
main(sys.argv[1:], standalone_mode=False)
sys.exit(" ".join(name for name in {HEAVY} if name in sys.modules) or None)
"""


def test_a_logger_logs_as_structlog_does():
    with capture_logs() as logged:
        get_logger().warning("disk.low", free=3)
    assert logged == [{"event": "disk.low", "free": 3, "log_level": "warning"}]


def test_an_archived_file_needs_none_of_the_packages_that_take_long_to_import(tmp_path):
    lmt_copy.write(copy := tmp_path / "copy.sqlite", steps=13, osts=2, mdts=1)
    span = ["--start", "2018-01-28T00:00:00", "--end", "2018-01-28T00:01:00"]
    line = ["archive", "lmt", str(copy), "--output", str(tmp_path / "out.hdf5"), *span]
    done = subprocess.run([sys.executable, "-c", ARCHIVE, *line], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
