"""`pip install ./reader` on a laptop: numpy and h5py alone; pip replaces it by the whole and the other way, and never has both."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from stitched_days import save

ROOT = Path(__file__).parents[2]
FIVE_LINES = """
import numpy as np, tokiod
archive = tokiod.open("fs", "2018-01-01", "2018-01-03", timezone="America/Los_Angeles", path={path!r})
rates = archive.reduce("datatargets/readrates", "1h", "max")                # a heat map: hours by OSTs
p95 = archive.reduce("datatargets/readrates", "1h", "p95").values
print(rates.shape, np.nanmax(rates.values), np.nanmax(p95))
"""
ASK = "import importlib.metadata as m, tokiod; print([d.version for d in m.distributions() if d.name == 'tokiod'], callable(tokiod.open))"


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """The wheel of the reader and that of the whole, by name."""
    if find_spec("hatchling") is None:
        pytest.skip("pip can't build without hatchling")
    made = {}
    for name, place in (("reader", ROOT / "reader"), ("whole", ROOT)):
        directory = tmp_path_factory.mktemp(name)
        build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", place, "-w", directory]
        subprocess.run(build, check=True, timeout=600)
        (made[name],) = directory.iterdir()
    return made


@pytest.fixture
def laptop(tmp_path):
    """An environment that has numpy and h5py and nothing else."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True, timeout=120)
    (site,) = (tmp_path / "venv" / "lib").glob("python3*/site-packages")
    for name in ("numpy", "h5py"):
        directory = Path(find_spec(name).origin).parent
        for each in (directory, directory.with_name(f"{name}.libs")):
            if each.exists():
                (site / each.name).symlink_to(each)
    return tmp_path / "venv" / "bin" / "python"


def install(python, wheel):
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", "--no-compile", wheel]
    subprocess.run(pip, check=True, timeout=600)


def run(python, program):
    return subprocess.run([python, "-c", program], check=True, capture_output=True, text=True, timeout=120, cwd="/").stdout.strip()


def test_five_lines_go_from_a_copied_folder_to_a_heat_map_and_a_p95(laptop, wheels, tmp_path):
    for day in (1, 2):
        save(tmp_path, day, ["a", "b"], [[3600 * day, 0]] * 24, is_sealed=day == 1)
    install(laptop, wheels["reader"])
    assert run(laptop, FIVE_LINES.format(path=f"{tmp_path}/%-d.hdf5")) == "(48, 2) 2.0 2.0"
    assert wheels["reader"].stat().st_size < 150_000


@pytest.mark.parametrize("order", [("reader", "whole"), ("whole", "reader")])
def test_pip_replaces_one_by_the_other_and_leaves_no_half_of_either(laptop, wheels, order):
    for name in order:
        install(laptop, wheels[name])
    version = "0.1.0" if order[-1] == "whole" else "0.1.0+reader"
    assert run(laptop, ASK) == f"['{version}'] True"
    assert (laptop.parent / "tokioctl").exists() == (order[-1] == "whole")
    uninstall = [sys.executable, "-m", "pip", "--python", laptop, "uninstall", "--quiet", "--yes", "tokiod"]
    subprocess.run(uninstall, check=True, timeout=600)
    assert run(laptop, "import importlib.util as u; print(u.find_spec('tokiod'))") == "None"
