"""The reader needs numpy and h5py alone, and reader/pyproject.toml installs exactly the modules that it imports."""

import subprocess
import sys
import tomllib
from pathlib import Path

from job_days import DAY, JobDays, polled
from stitched_days import save

import tokiod
from tokiod.window_data import job_key

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "reader" / "pyproject.toml").read_text())
WHOLE = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PROGRAM = """
import sys
allowed = {"numpy", "h5py", "tokiod", *sys.stdlib_module_names}
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in allowed and not name.startswith(("_", "sitecustomize")):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Refuse())
import tokiod
with tokiod.open("fs", "2018-01-01", "2018-01-02", timezone="America/Los_Angeles", path=sys.argv[1]) as archive:
    print(archive.array("datatargets/readrates")[:2].tolist(), archive.reduce("datatargets/readbytes", "1d", "p50").values.tolist())
    for ask in (archive.frame, archive.__getitem__, archive.dask):
        try:
            ask("datatargets/readbytes")
        except ImportError as error:
            print(error)
from pathlib import Path
place = Path(sys.argv[1])
with tokiod.open("fs", int(sys.argv[2]), int(sys.argv[2]) + 3600, path=place.parent / "%Y-%m-%d" / "{system}.hdf5") as archive:
    figures = archive.job_figures(by="job")
    print(figures["job"].tolist(), figures["read_bytes"].tolist(), archive.job_figures("7")["open"].tolist())
    try:
        archive.jobs()
    except ImportError as error:
        print(error)
print(*sorted(name for name in sys.modules if name.partition(".")[0] == "tokiod"))
try:
    tokiod.open("fs", 0, 1, config="x")
except ImportError as error:
    print(error)
"""


def test_it_reads_without_any_other_package_and_a_call_that_needs_one_names_it(tmp_path):
    place = save(tmp_path, 1, ["a", "b"], [[3600, 7200], [0, 3600]])
    made = JobDays(tmp_path / "jobs")
    made.store(polled(DAY + 5, b"fs-OST0000", job_key("7", "1000"), DAY, {"open.samples": 3, "read_bytes.sum": 2**40}))
    done = subprocess.run([sys.executable, "-c", PROGRAM, place.path, str(DAY)], capture_output=True, text=True, check=True, timeout=60)
    values, frame, array, dask, jobs, jobs_frame, modules, config = done.stdout.splitlines()
    assert values == "[[1.0, 2.0], [0.0, 1.0]] [[1800.0, 5400.0]]"
    assert frame == "a frame needs pandas: pip install pandas; without it, array() and reduce() return numpy's arrays"
    assert array.startswith("a DataArray needs xarray: pip install xarray")
    assert dask.startswith("an array of dask needs 'dask[array]': pip install 'dask[array]'")
    assert jobs == "['7'] [1099511627776] [3]"
    assert jobs_frame == "a frame needs pandas: pip install pandas; without it, job_figures() returns numpy's arrays"
    assert config.startswith("a configuration needs the whole of tokiod: pip install . in a checkout; without it, give path=")
    installed = set(PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"].values())
    needed = {name for name in modules.split() if not name.startswith("tokiod.reader")}
    assert [name for name in needed if not {f"{name.replace('.', '/')}.py", f"{name.replace('.', '/')}/__init__.py"} & installed] == []


def test_what_it_installs_exists_and_agrees_with_the_whole():
    for path in PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]:
        assert (ROOT / "reader" / path).exists()
    project = PROJECT["project"]
    assert (project["name"], project["version"]) == (WHOLE["name"], f"{WHOLE['version']}+reader")
    assert WHOLE["version"] == tokiod.__version__
    bounds = {text.partition("#")[0].strip() for text in WHOLE["dependencies"]}
    assert set(project["dependencies"]) < bounds
    assert project["optional-dependencies"] == {name: WHOLE["optional-dependencies"][name] for name in project["optional-dependencies"]}
    assert project["entry-points"] == WHOLE["entry-points"]
