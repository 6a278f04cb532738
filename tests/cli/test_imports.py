"""Commands that monitoring or a loop of files calls do not import what takes long and is not used."""

import subprocess
import sys

from tests.bench import lmt_copy

COMMAND = """
import sys
# coverage, where it measures, has imported what it needs.
names = [name for name in sys.argv[1].split() if name not in sys.modules]
from tokiod.cli.tokioctl import main
try:
    main(sys.argv[2:], standalone_mode=False)
except SystemExit:
    pass
sys.exit(" ".join(name for name in names if name in sys.modules) or None)
"""
DATA = "tokiod.window_data"
LOGS, NETWORK, SETTINGS = "structlog rich", "http.client ssl email", "tokiod.config.load tomllib"
CONFIG = """
timezone = "UTC"
archive.path = "{root}/tts/%Y-%m-%d/{{system}}.hdf5"
bus.endpoint = "ipc://{root}/private/bus"
feed.endpoint = "ipc://{root}/feed"
[[source]]
name = "cscratch-mmperfmon"
kind = "mmperfmon"
system = "cscratch"
step = 60
watch = "{root}/in"
"""


def imported(names, *line):
    """Run a command, and return which of the modules of these names it has imported."""
    done = subprocess.run([sys.executable, "-c", COMMAND, names, *line], capture_output=True, text=True, check=False)
    assert done.stdout
    return done.stderr


def test_a_small_file_is_archived_without_logs_and_masked_arrays(tmp_path):
    lmt_copy.write(copy := tmp_path / "copy.sqlite", steps=13, osts=2, mdts=1)
    span = ["--start", "2018-01-28T00:00:00", "--end", "2018-01-28T00:01:00"]
    line = ["archive", "lmt", str(copy), "--output", str(tmp_path / "out.hdf5"), *span]
    assert imported(f"{LOGS} {SETTINGS} numpy.ma sqlite3", *line) == ""


def test_the_status_needs_no_numbers_and_without_a_page_no_http(tmp_path):
    (tmp_path / "tokiod.toml").write_text(CONFIG.format(root=tmp_path))
    line = ["status", "--json", "--config", str(tmp_path / "tokiod.toml")]
    assert imported(f"{LOGS} {NETWORK} {DATA} numpy h5py zmq asyncio typing_extensions", *line) == ""


def test_what_msgspec_is_imported_without_can_be_imported_later():
    code = "import tokiod.cli, typing_extensions, msgspec; typing_extensions.TypedDict, msgspec.Struct"
    subprocess.run([sys.executable, "-c", code], check=True)
