"""`tokioctl archive lmt` over the captured database, from SQLite and from a real MariaDB with LMT's schema: pytokio's every cell."""

import asyncio
import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

SCHEMA = Path(__file__).with_name("lmt_schema.sql")
SPAN = ["--start", "2018-01-28T00:00:00", "--end", "2018-01-28T00:05:00", "--step", "5", "--timezone", "America/Los_Angeles"]
pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def shared():
    place = Path(os.environ.get("TOKIOD_SHARED", Path(__file__).parents[2].parent / "shared"))
    if not (place / "data").is_dir():
        pytest.skip(f"the captures are not here: {place}")
    return place


@pytest.fixture(scope="module")
def capture(shared):
    return shared / "data" / "lmt" / "snx11025_2018-01-28.sqlite3"


@pytest.fixture(scope="module")
def server(mariadb, capture):
    """The URL of the captured rows in a server, of a user that may only read."""
    database, schema = "filesystem_snx11025", SCHEMA.read_text()
    names = re.findall(r"CREATE TABLE (\w+)", schema)
    with closing(sqlite3.connect(f"file:{capture}?mode=ro&immutable=1", uri=True)) as copy:
        mariadb.load(database, schema, {name: copy.execute(f"SELECT * FROM {name}").fetchall() for name in names})
    grants = ["CREATE USER IF NOT EXISTS lwatch@'%' IDENTIFIED BY 'read-only'", f"GRANT SELECT ON {database}.* TO lwatch@'%'"]
    asyncio.run(mariadb.execute(*grants))
    return f"mysql://lwatch@127.0.0.1:{mariadb.port}/{database}"


def archive(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "tokiod.cli.tokioctl", "archive", "lmt", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | environment)


FLOATS = ["dataservers/cpuload", "dataservers/memused", "mdservers/cpuload"]
"""Which a server stores as FLOAT: its number nearest to the six digits of the capture."""


def differences(shared: Path, output: Path, *options: str) -> str:
    golden = shared / "data" / "golden" / "lmtdb_snx11025.hdf5"
    command = [sys.executable, str(shared / "tools" / "tts_diff.py"), str(golden), str(output), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def test_a_saved_copy_gives_every_cell_of_the_golden_file(shared, capture, tmp_path):
    done = archive(str(capture), "--output", str(tmp_path / "day.hdf5"), "--mdt-names", "host", *SPAN)
    assert (done.returncode, done.stderr) == (0, "")
    assert differences(shared, tmp_path / "day.hdf5") == "12300 cells compared, 0 differ"


def test_the_same_rows_in_mariadb_give_every_cell_of_the_golden_file(shared, server, tmp_path):
    options = ["--output", str(tmp_path / "day.hdf5"), "--mdt-names", "host", "--password-env", "LMT_PASSWORD", *SPAN]
    done = archive(server, *options, LMT_PASSWORD="read-only")
    assert (done.returncode, done.stderr) == (0, "")
    assert differences(shared, tmp_path / "day.hdf5", "--skip", *FLOATS) == "9360 cells compared, 0 differ"
    assert differences(shared, tmp_path / "day.hdf5", "--only", *FLOATS, "--rtol", "1e-7") == "2940 cells compared, 0 differ"


def test_a_wrong_password_is_a_sentence_without_the_password(server, tmp_path):
    options = ["--output", str(tmp_path / "day.hdf5"), "--password-env", "LMT_PASSWORD", *SPAN]
    done = archive(server, *options, LMT_PASSWORD="not-this-one")
    assert done.returncode == 2
    assert "denied" in done.stderr
    assert "not-this-one" not in done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
