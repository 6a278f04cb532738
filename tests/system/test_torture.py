"""A short torture, as CI runs it: SIGKILL at random instants, every cell right after each; and it would notice if one were not."""

import importlib.util
import os
import random
import re
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import h5py
import pytest
from planted import plant
from waiting import wait_for

from tokiod.clock import SimulatedClock
from tokiod.ledger.ledger import Ledger
from tokiod.simulator.scene import Scene
from tokiod.simulator.site import Site
from tokiod.simulator.sources import LUSTRE, SOURCES
from tokiod.tts.layout import form_of, open_for_reading
from tokiod.tts.live.files import Files
from tokiod.window import Window

pytestmark = pytest.mark.system

TORTURE = Path(__file__).with_name("torture.py")
WITHIN = ["timeout", "800"]
"""Ends the script by SIGTERM: killed, it would leave its daemon running."""
KILLS = 7
RATE = 120
"""Simulated seconds in a real one: the kills go on until a day is over, so it shall come quickly. The retention, in which nothing was at
most of the time, is the longer, the quicker the clock is."""
SEED = 20_180_129


@pytest.fixture(scope="module")
def tortured(tmp_path_factory):
    """What the torture said, and where it left its archive."""
    directory = tmp_path_factory.mktemp("t")
    line = [*WITHIN, sys.executable, str(TORTURE), "--kills", str(KILLS), "--seed", str(SEED), "--directory", str(directory), "--equal"]
    line += ["--rate", str(RATE)]
    return subprocess.run(line, capture_output=True, text=True, check=False), directory


@pytest.fixture
def score(monkeypatch):
    """A fresh score of the torture's."""
    monkeypatch.syspath_prepend(TORTURE.parent)
    spec = importlib.util.spec_from_file_location("torture", TORTURE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module.Score()
    del sys.modules[spec.name]


def test_a_few_kills_leave_no_file_unreadable_no_cell_lost_or_different_and_sealed_files_as_if_nothing_had_been(tortured):
    done, _ = tortured
    assert done.returncode == 0, done.stderr + done.stdout
    assert f"seed {SEED}" in done.stderr
    line = re.fullmatch(r"kills (\d+) unreadable 0 lost 0 different 0 seconds \d+\n", done.stdout)
    assert int(line[1]) >= KILLS


@pytest.mark.usefixtures("score")
def test_a_ledger_is_believed_only_after_the_writer_that_did_not_lose_it(tmp_path):
    from torture_ledger import READY, SAID  # noqa: PLC0415 - as below
    from tortured import Tortured  # noqa: PLC0415 - as below

    its = Tortured(Scene(tmp_path, Site(0), SimulatedClock(0.0, 0.0, 1.0)), random.Random(SEED))
    said = []
    for event, last in ((None, READY), (READY, READY), (SAID, SAID), (READY, READY), (SAID, SAID)):
        said += [] if event is None else [f'{{"event": "{event}"}}\n']
        its.scene.log.write_text("".join(said))
        assert its.said_last(READY, SAID) == last
    assert (its.said(READY), its.said(SAID)) == (2, 2)


def test_a_tally_adds_up_the_runs_with_the_same_faults(score, tmp_path):
    module = sys.modules["torture"]
    runs = [("kills", 3, 0), ("all", 5, 1), ("all", 7, 0)]
    for number, (faults, score.kills, score.lost) in enumerate(runs):
        line = module.tally(tmp_path / "tally", score, number, faults)
    assert line == "2 runs with faults all: kills 12 unreadable 0 lost 1 different 0"


def test_a_night_has_fallen_and_the_day_before_it_is_sealed(tortured):
    _, directory = tortured
    forms = {}
    for path in (directory / "tts").glob("2018-11-0[34]/*.hdf5"):
        with open_for_reading(path) as file:
            forms.setdefault(path.parent.name, set()).add(form_of(file))
    assert forms == {"2018-11-03": {"sealed"}, "2018-11-04": {"live"}}


REPAIRED = """
import subprocess, sys
from pathlib import Path
from torture_disk import disk
with disk(*map(Path, sys.argv[1:3])) as its:
    print("mounted" if its else "not permitted", flush=True)
    input()
    if its:
        its.fail()
        its.repair()
        print("broken" if its.is_broken() else "repaired")
"""


def test_a_disk_is_repaired_though_another_process_has_copied_the_mounts_of_this_machine(tmp_path):
    """Such as a container: it kept the file system, and with it the error that had made it read-only."""
    command = [sys.executable, "-c", REPAIRED, tmp_path / "tts", tmp_path / "store"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TORTURE.parent), str(TORTURE.parents[2])])}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as script:
        if script.stdout.readline() != "mounted\n":
            script.communicate("\n")
            pytest.skip("mounts need root")
        with subprocess.Popen(["unshare", "--mount", "cat"], stdin=subprocess.PIPE) as copy:
            own, copied = (Path("/proc", str(pid), "ns/mnt") for pid in ("self", copy.pid))
            wait_for(lambda: copied.readlink() != own.readlink(), 30, "unshare has not begun")
            printed, _ = script.communicate("\n")
            copy.stdin.close()
    assert printed == "repaired\n"


OPERATIONS = """
import os, sys
from pathlib import Path
import numpy as np
from tokiod.tts.live.files import Files
path, data, files = Path(sys.argv[1], "file"), np.zeros(1), Files()
fd = os.open(path, os.O_RDWR | os.O_CREAT)
arguments = {
    "open": (path,), "create": (path,), "write": (fd, b"x"), "pwrite": (fd, data, 0), "pread_into": (fd, data, 0),
    "allocate": (fd, 8), "rename": (path, path), "link": (path, path.parent / "other"), "unlink": (path,),
    "listdir": (path.parent,), "free_space": (path.parent,),
    "fsync_directory": (path.parent,), "make_directory": (path.parent,), "stat": (path,),
}
for name, operation in vars(Files).items():
    while callable(operation) and not name.startswith("_"):
        try:
            operation(files, *arguments.get(name, (os.dup(fd) if name == "close" else fd,)))
        except OSError as error:
            if error.filename == "a torture":
                print(name)
                break
"""


@pytest.mark.usefixtures("score")
def test_every_kind_of_file_operation_fails_in_a_writer_while_it_is_to(tmp_path):
    from torture_operations import failing, failures, flag  # noqa: PLC0415 - as below

    (tmp_path / "sitecustomize.py").write_text("import os, sys\n" + failing(tmp_path))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(TORTURE.parents[2])])}
    flag(tmp_path).touch()
    command = [sys.executable, "-c", OPERATIONS, str(tmp_path), "writer"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    kinds = {name for name, operation in vars(Files).items() if callable(operation) and not name.startswith("_")}
    assert (set(done.stdout.split()), "fsync_directory" in kinds) == (kinds, True)
    counted = set(re.findall(r"(\w+) \d+", failures(tmp_path)))
    assert kinds - {"make_directory"} <= counted <= kinds  # which may fail in the sync that it does


def test_a_file_of_the_past_that_is_lost_or_has_changed_is_noticed(tmp_path, score):  # noqa: ARG001 - it finds torture_past
    from torture_past import Past  # noqa: PLC0415 - beside the program under test, where `score` finds it

    scene = Scene(tmp_path, Site(1_541_310_000), SimulatedClock(1_541_313_600.0, 0.0, 1.0))
    scene.prepare()
    past = Past.made(scene)
    assert past.wrong(None) == []
    one, other = sorted(past.files)[7:9]
    one.unlink()
    with h5py.File(other, "r+") as file:
        file["datatargets/readrates" if other.stem == "net" else "datatargets/readbytes"][100, 0] = 12345.5
    assert past.wrong(None) == [f"{one} of the past is lost", f"{other} of the past has changed"]


def cut(path, _):
    os.truncate(path, 100)


def lose(path, dataset):
    plant(path, -0.0, dataset)


def change(path, dataset):
    plant(path, 12345.5, dataset)


@pytest.mark.parametrize("source", SOURCES, ids=[source.name for source in SOURCES])
@pytest.mark.parametrize(("damage", "found"), [(lose, (0, 1, 0)), (change, (0, 0, 1)), (cut, (1, 0, 0))])
def test_the_torture_counts_what_is_lost_different_or_unreadable(tortured, score, source, damage, found):
    _, directory = tortured
    scene = Scene(directory, Site.read(directory / "site.json"), SimulatedClock(0.0, 0.0, 1.0), sources=(source,))
    path = scene.files(source)[-1]
    sound = path.read_bytes()
    try:
        damage(path, source.shown)
        score.check(scene, determined=False)
    finally:
        path.write_bytes(sound)
    assert (score.unreadable, score.lost, score.different) == found
    assert len(score.notes) == 1


def test_the_torture_counts_a_sum_of_jobs_that_is_not_what_they_did(tortured, score, monkeypatch):
    from tests.simulation import job_sums  # noqa: PLC0415 - once torture.py has been loaded

    _, directory = tortured
    scene = Scene(directory, Site.read(directory / "site.json"), SimulatedClock(0.0, 0.0, 1.0), sources=(LUSTRE,))
    score.check(scene, determined=False)
    assert (score.different, score.notes) == (0, [])
    assert score.sums > 100
    right = job_sums.series
    monkeypatch.setattr(job_sums, "series", lambda *given, **options: doubled(right(*given, **options)))
    score.check(scene, determined=False)
    assert score.different == 1
    assert "the job table, sums:" in score.notes[0]


def doubled(found):
    return replace(found, counts={name: 2 * values for name, values in found.counts.items()})


def test_what_was_ever_stored_must_be_there_and_explained_also_when_the_ledger_says_less(tortured, score):
    from tortured import Tortured  # noqa: PLC0415 - beside the program under test, where `score` finds it

    _, directory = tortured
    scene = Scene(directory, Site.read(directory / "site.json"), SimulatedClock(0.0, 0.0, 1.0), sources=(LUSTRE,))
    path, ledger, its = scene.files()[-1], scene.config.archive.ledger, Tortured(scene, random.Random(SEED))
    its.learn()
    spans = its.kept(LUSTRE)
    end = spans[-1].end
    # At most what was missed just before the last window: the torture may have ended before that was told, and the next start tells it.
    missed = its.unexplained(end)
    assert missed in ([], [f"{LUSTRE.name} {Window(before.end, last.start)}" for before, last in pairwise(spans)][-1:])
    sound = {one: one.read_bytes() for one in (path, ledger)}
    try:
        with Ledger.open(ledger) as opened:
            opened.forget(LUSTRE.system, Window(end - 3600, end), float(end))
        plant(path, -0.0, LUSTRE.shown)
        score.check(scene, determined=False, stored=its.kept)
        assert (score.lost, score.different) == (1, 0)
        assert its.unexplained(end) != missed
    finally:
        for one, content in sound.items():
            one.write_bytes(content)
