"""GPUs: the official bindings over a stand-in of NVIDIA's library, compiled here (nvml_stand_in.c): no test machine has a GPU."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMES = ("gpu_busy", "gpu_mem_used", "gpu_mem_total", "gpu_power", "gpu_temperature", "gpu_clock")
FIRST = dict(zip(NAMES, (40, 1 << 30, 80 << 30, 70.5, 31, 1401), strict=True))
SECOND = dict(zip(NAMES, (80, 2 << 30, 80 << 30, 141.0, 32, 1402), strict=True))


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    pytest.importorskip("pynvml")
    if shutil.which("cc") is None:
        pytest.skip("no C compiler here")
    directory = tmp_path_factory.mktemp("nvml")
    source = Path(__file__).with_name("nvml_stand_in.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-Wall", "-Werror", "-o", directory / "libnvidia-ml.so.1", source], check=True)
    return directory


def report(library, tmp_path, *options, **environment):
    (tmp_path / "dev").mkdir(exist_ok=True)
    (tmp_path / "dev" / "nvidiactl").touch()
    env = {**os.environ, "LD_LIBRARY_PATH": str(library), "NVML_ASKED": str(tmp_path / "asked"), **environment}
    line = [sys.executable, "-m", "tokiod.agent", "--once", "--json", "--root", str(tmp_path), *options]
    return json.loads(subprocess.run(line, cwd=ROOT, env=env, capture_output=True, text=True, check=True).stdout)


def values(found):
    gpus = {}
    for row in found["values"]:
        gpus.setdefault(row["instance"], {})[row["metric"]] = row["value"]
    return gpus


def test_each_gpu_is_read_and_what_a_model_does_not_support_is_no_value(library, tmp_path):
    found = report(library, tmp_path)
    assert values(found) == {"GPU-1": {**FIRST, "gpu_energy": 123.456}, "GPU-2": SECOND}
    assert found["dropped"] == []


def test_what_a_model_does_not_support_is_asked_once(library, tmp_path):
    found = report(library, tmp_path, "--seconds", "2")
    assert values(found) == {"GPU-1": {**FIRST, "gpu_energy": 0}, "GPU-2": SECOND}
    assert (tmp_path / "asked").read_text().split() == ["1", "2", "1"]


def test_a_gpu_that_is_lost_is_counted_and_the_other_is_read(library, tmp_path):
    found = report(library, tmp_path, NVML_LOST="1")
    assert values(found) == {"GPU-1": {**FIRST, "gpu_energy": 123.456}}
    assert found["dropped"] == [{"sensor": "nvidia", "reason": "unreadable", "count": 6, "example": "GPU-2: GPU is lost"}]


def test_a_node_without_its_driver_or_library_says_why(library, tmp_path):
    absent = {row["sensor"]: row["reason"] for row in report(library, tmp_path, NVML_NO_DRIVER="1")["absent"]}
    assert absent["nvidia"] == "the driver reports: Driver Not Loaded"
    absent = {row["sensor"]: row["reason"] for row in report(tmp_path, tmp_path)["absent"]}
    assert absent["nvidia"] == "the driver reports: NVML Shared Library Not Found"


BOARD = ("gpu_power", "gpu_temperature", "gpu_clock")
GIB = 1 << 30


def test_of_a_gpu_in_mig_mode_the_memory_is_that_of_its_mig_devices_and_the_rest_that_of_the_board(library, tmp_path):
    (tmp_path / "mig").write_text("1 3 6")
    found = report(library, tmp_path, NVML_MIG=str(tmp_path / "mig"))
    assert values(found) == {
        "GPU-1": {**FIRST, "gpu_energy": 123.456},
        "GPU-2": {**{name: SECOND[name] for name in BOARD}, "gpu_mig_devices": 3},
        **{f"MIG-{number}": {"gpu_mem_used": number * GIB, "gpu_mem_total": 20 * GIB} for number in (1, 3, 6)},
    }
    assert found["dropped"] == []


def test_a_gpu_in_mig_mode_without_a_device_has_none(library, tmp_path):
    (tmp_path / "mig").touch()
    gpu = values(report(library, tmp_path, NVML_MIG=str(tmp_path / "mig")))["GPU-2"]
    assert gpu == {**{name: SECOND[name] for name in BOARD}, "gpu_mig_devices": 0}


def test_mig_devices_that_the_agent_may_not_see_are_counted(library, tmp_path):
    (tmp_path / "mig").write_text("1")
    found = report(library, tmp_path, NVML_MIG=str(tmp_path / "mig"), NVML_FORBIDDEN="1")
    assert found["dropped"] == [
        {"sensor": "nvidia", "reason": "no permission", "count": 7, "example": "GPU-2, MIG device 6: Insufficient Permissions"}
    ]
    assert set(values(found)["GPU-2"]) == {*BOARD, "gpu_mig_devices"}


CHANGED = """
import json, os
from tokiod.agent.sampler import Sampler
from tokiod.agent.sensors.nvidia import Nvidia
from tokiod.agent.tree import Tree

sampler, seen = Sampler([Nvidia(Tree(os.environ["ROOT"]))]), []
for now, mig in ((0.0, "1 3"), (10.0, "3"), (70.0, "3"), (130.0, "3 4")):
    with open(os.environ["NVML_MIG"], "w") as file:
        file.write(mig)
    found = sampler.sample(now)["nvidia"]
    seen.append([sorted(of for name, of in found.values if name == "gpu_mem_used"), dict(found.drops)])
sampler.close()
print(json.dumps(seen))
"""


def test_mig_devices_that_are_destroyed_and_made_are_followed_each_minute(library, tmp_path):
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidiactl").touch()
    (tmp_path / "mig").touch()
    env = {**os.environ, "LD_LIBRARY_PATH": str(library), "NVML_ASKED": str(tmp_path / "asked")}
    env |= {"NVML_MIG": str(tmp_path / "mig"), "ROOT": str(tmp_path)}
    shown = subprocess.run([sys.executable, "-c", CHANGED], cwd=ROOT, env=env, capture_output=True, text=True, check=True).stdout
    assert json.loads(shown) == [
        [["GPU-1", "MIG-1", "MIG-3"], {}],
        [["GPU-1", "MIG-3"], {"unreadable": 2}],
        [["GPU-1", "MIG-3"], {}],
        [["GPU-1", "MIG-3", "MIG-4"], {}],
    ]
