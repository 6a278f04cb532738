"""The README's shell blocks, as printed, over small files of the kinds and names that it speaks of."""

import gzip
import io
import json
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import collectd_documents
import h5py
import lmt_database
import lustre_site
import mmperfmon_site
import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.system

BLOCK = re.compile(r"^```sh( daemon)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MAKE = {"make install", "make demo", "make test"}
"""The tests run in what the first installs, test_demo.py runs the second, and this is the third."""


def files(directory):
    """Make what is archived."""
    lmt_database.save(directory / "snx11025.sqlite3", lmt_database.tables(steps=61, start=1_517_126_400))
    pages = json.dumps(collectd_documents.Documents(hosts=2).hits(1_513_152_000, 1_513_152_060))
    (directory / "pages.json.gz").write_bytes(gzip.compress(pages.encode()))
    with tarfile.open(directory / "mmperfmon.2019-05-15.tgz", "w:gz") as archive:
        for number, text in enumerate(mmperfmon_site.texts(1_557_903_600, 5)):
            data = text if isinstance(text, bytes) else text.encode()
            member = tarfile.TarInfo(f"mmperfmon.{number}.out")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    rates = {"sunn-cr5": {"to_nersc_ip-d_v4": {"in": {str(1_549_875_600 + 30 * n): 8.0 * n for n in range(120)}}}}
    (directory / "rates.json").write_text(json.dumps(rates))
    targets = {f"fs-OST{n:04x}": (10_000 + n, 100 * n + 1) for n in range(4)}
    (directory / "lfs-df.txt.gz").write_bytes(gzip.compress(lustre_site.df(targets).encode()))
    (directory / "lctl-dl-t.txt.gz").write_bytes(gzip.compress(lustre_site.dl(lustre_site.servers(targets)).encode()))


def test_every_command_works_as_printed(tmp_path):
    files(tmp_path)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    shutil.copytree(ROOT / "config", tmp_path / "config")
    blocks = BLOCK.findall((ROOT / "README.md").read_text("utf-8"))
    plain = [text for daemon, text in blocks if not daemon]
    assert {line.split("#")[0].strip() for line in plain[0].splitlines()} == MAKE
    script = "set -eux\n" + "".join(plain[1:])
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=800)
    assert done.returncode == 0, done.stdout + done.stderr
    for name, dataset in (
        ("day", "datatargets/readbytes"),
        ("bb", "dataservers/cpuload"),
        ("ngf", "dataservers/cpuload"),
        ("esnet", "datatargets/readrates"),
        ("fullness", "fullness/bytes"),
    ):
        with h5py.File(tmp_path / f"{name}.hdf5") as file:
            assert (file[dataset][...] > 0).any(), name


def test_what_needs_a_daemon_is_what_the_commands_are_called(tmp_path):
    """The tutorial's and the installation's tests run them; here only that they are what they are called."""
    blocks = BLOCK.findall((ROOT / "README.md").read_text("utf-8"))
    lines = [line.split("#")[0].split() for daemon, text in blocks if daemon for line in text.splitlines() if line]
    for program, command, *arguments in lines:
        call = [Path(sys.prefix) / "bin" / Path(program).name, command, "--help"]
        done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
        options = [argument for argument in arguments if argument.startswith("--")]
        assert (done.returncode, [option for option in options if option not in done.stdout]) == (0, []), (program, command)
