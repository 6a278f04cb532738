"""The import contracts of pyproject.toml report what breaks them: `make lint` runs the same command."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Return what import-linter prints about a copy of the project with one module for each kind of violation."""
    copy = tmp_path_factory.mktemp("copy")
    for package in ("tokiod", "collectors", "sinks"):
        shutil.copytree(ROOT / package, copy / package, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "tests" / "support").mkdir(parents=True)
    shutil.copy(ROOT / "tests" / "support" / "import_contracts.py", copy / "tests" / "support")
    shutil.copy(ROOT / "pyproject.toml", copy)
    (copy / "tokiod" / "stray.py").touch()
    (copy / "tokiod" / "bus" / "hdf5.py").write_text("import h5py\n")
    (copy / "tokiod" / "writer" / "sql.py").write_text("import sqlite3\n")
    (copy / "tokiod" / "reports" / "simulated.py").write_text("import tokiod.testing.clock\n")
    (copy / "tokiod" / "published" / "high.py").write_text("import tokiod.consume\n")
    (copy / "tokiod" / "ledger" / "configured.py").write_text("import tokiod.config.schema\n")
    (copy / "tokiod" / "agent" / "reused.py").write_text("import tokiod.errors\n")
    (copy / "tokiod" / "agent" / "heavy.py").write_text("import numpy\n")
    (copy / "collectors" / "lmt" / "files.py").write_text("import tokiod.tts.live.files\n")
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache"]
    linted = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
    assert linted.returncode == 1
    return linted.stdout


@pytest.mark.parametrize(
    "line",
    [
        "tokiod.stray is in no layer",
        "12 floors: tokiod.cli -> ",
        "tokiod.published is not allowed to import tokiod.consume",
        "tokiod.bus.hdf5 -> h5py",
        "tokiod.writer.sql -> sqlite3",
        "tokiod.reports.simulated -> tokiod.testing.clock",
        "tokiod.ledger.configured -> tokiod.config.schema",
        "tokiod.agent.reused is not allowed to import tokiod.errors",
        "tokiod.agent.heavy -> numpy",
        "collectors.lmt.files is not allowed to import tokiod.tts.live.files",
    ],
)
def test_a_violation_is_reported(report, line):
    assert line in report
