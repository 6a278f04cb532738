"""docs/adding-a-sink.md: its module is a kind of sink, as a distribution that Python finds."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "adding-a-sink.md").read_text("utf-8")
OUTSIDE = Path(__file__).parent / "outside_sink"
FILES = {"python": "tokiod_json_lines.py", "python test": "test_json_lines.py", "toml pyproject": "pyproject.toml"}


def block(mark):
    (text,) = re.findall(rf"^```{mark}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return text


@pytest.mark.parametrize("mark", FILES)
def test_the_files_of_the_distribution_are_those_of_the_page(mark):
    assert (OUTSIDE / FILES[mark]).read_text() == block(mark)


def test_the_kind_passes_the_contract_suite():
    environment = os.environ | {"PYTHONPATH": str(OUTSIDE)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(OUTSIDE), *block("sh contract").split()[3:]]
    done = subprocess.run(command, cwd=OUTSIDE, env=environment, check=False, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stdout
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 12
    assert "skipped" not in done.stdout


def test_the_section_of_the_page_is_read_by_the_installed_kind(tmp_path):
    info = tmp_path / "tokiod_json_lines-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tokiod-json-lines\nVersion: 1.0\n")
    entry = re.search(r'"(tokiod\.sinks)"\]\n(json_lines) = "(\w+)"', block("toml pyproject"))
    (info / "entry_points.txt").write_text(f"[{entry[1]}]\n{entry[2]} = {entry[3]}\n")
    head = f'timezone = "UTC"\narchive.path = "{tmp_path}/%Y-%m-%d/{{system}}.hdf5"\n'
    (tmp_path / "tokiod.toml").write_text(head + block("toml"))
    environment = os.environ | {"PYTHONPATH": f"{OUTSIDE}:{tmp_path}"}
    command = [sys.executable, "-m", "tokiod.cli.tokioctl", "sinks", "--config", str(tmp_path / "tokiod.toml"), "--json"]
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True, timeout=100)
    assert (done.returncode, '"kind":"json_lines"' in done.stdout) == (1, True), done.stderr
