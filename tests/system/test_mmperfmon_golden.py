"""`tokioctl archive mmperfmon` over the captured hour: pytokio's every cell and nothing beside, whatever form the files are in."""

import gzip
import os
import re
import subprocess
import sys
from pathlib import Path

import h5py
import pytest
from unpacked import unpack

from tokiod.tts.layout import dataset_names

SPAN = ["--start", "2019-05-15T00:00:00", "--end", "2019-05-16T00:00:00", "--timezone", "America/Los_Angeles", "--cpu-scale", "100"]
LUNS = {r"ddn\d\ddt\d\d": "datatarget", r"xx\d\dyy\d\d": "datatarget", r"na\d\dmd\d\d": "mdtarget", r"zz\d\dqq\d\d": "mdtarget"}
SERVERS = {r"(ngfsv|xxxxx)49[23]\.": "mdserver"}
LOADS = ("dataservers/cpuload", "mdservers/cpuload")
pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def shared():
    place = Path(os.environ.get("TOKIOD_SHARED", Path(__file__).parents[2].parent / "shared"))
    if not (place / "data").is_dir():
        pytest.skip(f"the captures are not here: {place}")
    return place


@pytest.fixture(scope="module")
def capture(shared):
    return shared / "data" / "mmperfmon" / "mmperfmon.2019-05-15-micro.tgz"


def as_archive(capture, _directory):
    return [capture]


def as_directory(capture, directory):
    unpack(capture, directory)
    return [directory]


def as_packed_files(capture, directory):
    as_directory(capture, directory)
    files = [path for path in directory.rglob("*") if path.is_file()]
    for path in files:
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    return [path for path in directory.rglob("*") if path.is_file()]


@pytest.mark.parametrize("form", [as_archive, as_directory, as_packed_files])
def test_every_cell_of_the_golden_file_and_no_dataset_beside(shared, capture, tmp_path, form):
    out = tmp_path / "out.hdf5"
    (tmp_path / "in").mkdir()
    maps = [part for expression, kind in LUNS.items() for part in ("--lun-map", f"{expression}={kind}")]
    maps += [part for expression, kind in SERVERS.items() for part in ("--server-map", f"{expression}={kind}")]
    inputs = [str(path) for path in form(capture, tmp_path / "in")]
    command = [sys.executable, "-m", "tokiod.cli.tokioctl", "archive", "mmperfmon", *inputs, "--output", str(out), *SPAN, *maps]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert re.fullmatch(r'dropped 720: loopback, for example "ngfsv\d+\.nersc\.gov\|Network\|lo\|net_r"\n', done.stderr)
    golden = shared / "data" / "golden" / "mmperfmon_micro.hdf5"
    compare = [sys.executable, str(shared / "tools" / "tts_diff.py"), str(golden), str(out), "--skip", *LOADS]
    assert subprocess.run(compare, capture_output=True, text=True, check=False).stdout.strip() == "16320 cells compared, 0 differ"
    assert datasets(out) == datasets(golden)


def datasets(path):
    with h5py.File(path) as file:
        return {f"{group}/{name}" for group in file if not group.startswith("_") for name in dataset_names(file[group])}
