"""The notebooks of docs/examples run from their first cell to the last on an archive of days, and draw what they say."""

import base64
import json
import struct
from pathlib import Path

import numpy as np
import pytest
from stitched_days import READ, slot

from tokiod.tts.live.create import create
from tokiod.tts.live.live_file import LiveFile
from tokiod.tts.spec import FileSpec, GroupSpec, MatrixSpec

nbformat = pytest.importorskip("nbformat")
NotebookClient = pytest.importorskip("nbclient").NotebookClient
pytest.importorskip("matplotlib")
pytest.importorskip("pandas")

NOTEBOOKS = Path(__file__).parents[2] / "docs" / "examples" / "notebooks"
OSTS = [f"fs-OST{i:04x}" for i in range(6)]
STEP, ROWS, DAYS = 300, 288, 31
WRITTEN, LOAD = "datatargets/writebytes", "dataservers/cpuload"


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """January 2018 without its 3rd day: each OST is busiest at 14:00, OST0004 is missing on the 2nd from 06:00 to 18:00."""
    directory, generator = tmp_path_factory.mktemp("notebooks"), np.random.default_rng(8)
    daily = np.exp(-(((np.arange(ROWS) / 12) - 14) ** 2) / 18)[:, None]
    for day in range(1, DAYS + 1):
        if day == 3:
            continue
        place = slot(directory, day)
        groups = {name: GroupSpec(STEP, "lmt") for name in ("datatargets", "dataservers")}
        columns = {READ: OSTS, WRITTEN: OSTS, LOAD: ["oss0", "oss1"]}
        specs = {name: MatrixSpec(tuple(names), counter=False) for name, names in columns.items()}
        create(place.path, FileSpec(place.start, place.end, groups, specs), created=place.start)
        file = LiveFile.open(place.path)
        for name, names in columns.items():
            scale = 40.0 if name == LOAD else STEP * 2.0**30
            cells = scale * daily * generator.uniform(0.5, 1.5, (ROWS, len(names))) + 1
            if day == 2 and name != LOAD:
                cells[72:216, 4] = -0.0
            file.cells[name].write_rows(0, cells)
        file.commit()
        file.close()
    return directory


def executed(name, first_cell, directory):
    """Return what the cells displayed: texts, and pictures as PNG; the notebook with its pictures is kept in `directory`."""
    notebook = nbformat.read(NOTEBOOKS / name, as_version=4)
    (given,) = (cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ()))
    given.source = first_cell
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(directory)}}).execute()
    outputs = [one for cell in notebook.cells if cell.cell_type == "code" for one in cell.outputs]
    data = [one.get("data", {}) for one in outputs]
    texts = "\n".join([one.get("text", "") for one in outputs] + [one.get("text/plain", "") for one in data])
    return texts, [base64.b64decode(one["image/png"]) for one in data if "image/png" in one]


def of(archive, start, end):
    return f'PATH = "{archive}/%-d.hdf5"\nSYSTEM, START, END, ZONE = "fs", "{start}", "{end}", "America/Los_Angeles"'


def size(png):
    """Return the width and height of a picture."""
    return struct.unpack(">II", png[16:24])


@pytest.mark.parametrize(
    ("name", "span", "words"),
    [
        ("heat-map.ipynb", ("2018-01-01", "2018-01-06"), "p95 of an OST in 10 minutes: 1."),
        ("job.ipynb", ("2018-01-04 13:00", "2018-01-04 15:00"), "fs_tot_gibs_written"),
        ("missing.ipynb", ("2018-01-01", "2018-01-06"), "missing: 21.67 % of all cells"),
    ],
)
def test_a_notebook_draws_a_span(archive, tmp_path, name, span, words):
    texts, pictures = executed(name, of(archive, *span), tmp_path)
    assert words in texts
    assert len(pictures) == 1
    assert min(size(pictures[0])) > 250
    (tmp_path / f"{name}.png").write_bytes(pictures[0])


def test_a_month_s_umami_has_a_row_of_panels_for_each_metric(archive, tmp_path):
    starts = [slot(archive, day).start + 36_000 + 300 * day for day in range(1, DAYS + 1) if day != 3]
    lines = "".join(f"{i},{start},{start + 3600},fs\n" for i, start in enumerate(starts))
    (tmp_path / "jobs.csv").write_text(f"jobid,start,end,system\n{lines}")
    given = f'PATH = "{archive}/%-d.hdf5"\nJOBS, ZONE = "jobs.csv", "America/Los_Angeles"'
    texts, pictures = executed("umami.ipynb", given, tmp_path)
    assert "'fs_tot_gibs_written': 'best'" in texts  # later in the day, each job sees a busier hour
    assert size(pictures[0])[1] > 400
    (tmp_path / "umami.png").write_bytes(pictures[0])


def test_a_notebook_is_stored_without_outputs_and_within_the_reader():
    for path in sorted(NOTEBOOKS.iterdir()):
        cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
        assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells), path.name
        assert any("tokiod.open(" in "".join(cell["source"]) for cell in cells), path.name
