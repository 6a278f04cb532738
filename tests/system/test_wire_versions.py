"""The writer and the collectors as two units, of which one is of the version before (tests/data/wire-1.tar.xz), in either order."""

import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from unpacked import unpack
from waiting import wait_for

from tokiod.clock import SimulatedClock
from tokiod.ledger.ledger import Ledger
from tokiod.runtime.process_setup import python_command
from tokiod.simulator.scene import Scene
from tokiod.simulator.site import Site
from tokiod.simulator.sources import JOBS, LMT

pytestmark = pytest.mark.system

OLD = Path(__file__).parents[1] / "data" / "wire-1.tar.xz"
BEGIN = 1_541_307_600


class Units:
    """The units of a scene, each of this version or of the one before."""

    def __init__(self, scene):
        self.scene, self.running = scene, {}
        unpack(OLD, scene.directory / "old")

    def start(self, name, *, old):
        environment = os.environ | ({"PYTHONPATH": str(self.scene.directory / "old")} if old else {})
        line = python_command("tokiod.cli.tokiod", name, "--config", str(self.scene.config_path), "--clock", str(self.scene.clock))
        with self.log(name).open("ab") as log:
            self.running[name] = subprocess.Popen(
                line, stdout=log, stderr=log, env=environment, cwd=self.scene.directory, start_new_session=True
            )

    def stop(self, name):
        self.running[name].terminate()
        assert self.running.pop(name).wait(60) == 0

    def log(self, name):
        return self.scene.directory / f"log-{name}"

    def events(self, name, event):
        lines = (json.loads(line) for line in self.log(name).read_text().splitlines() if line.startswith("{"))
        return [line for line in lines if line["event"] == event]

    def state(self, source):
        with Ledger.open_readonly(self.scene.config.archive.ledger) as ledger:
            return next((row.state, row.state_reason) for row in ledger.sources() if row.name == source.name)


@pytest.fixture
def units():
    with tempfile.TemporaryDirectory(prefix="wire-") as directory:
        site = Site(seed=5, epoch=BEGIN - 3600, osts=6, osss=3, trouble=False)
        scene = Scene(Path(directory), site, SimulatedClock(BEGIN, time.time(), 20), retention=100_000, sources=(LMT, JOBS))
        scene.prepare()
        scene.start_simulator()
        made = Units(scene)
        try:
            yield made
        finally:
            for process in made.running.values():
                process.terminate()
                process.wait(60)
            scene.close()


def stores(units, source, message):
    before = sum(window.seconds for window in units.scene.stored(source))
    wait_for(
        lambda: sum(window.seconds for window in units.scene.stored(source)) > before,
        40,
        f"{message}: {units.log('collectors').read_text()[-2000:]}",
    )


@pytest.mark.parametrize("first", ["writer", "collectors"])
def test_two_units_are_upgraded_in_either_order(units, first):
    second = "collectors" if first == "writer" else "writer"
    for name in ("writer", "collectors"):
        units.start(name, old=True)
    stores(units, LMT, "the version before stores nothing")
    stores(units, JOBS, "the version before stores no jobs")
    units.stop(first)
    units.start(first, old=False)
    stores(units, LMT, f"nothing is stored after the upgrade of the {first}")
    if first == "collectors":
        # The version before has a number of its own for tables only from this one on.
        sentence = "the writer speaks version 1 of the wire, without tables: upgrade it"
        wait_for(lambda: units.state(JOBS)[0] == "waiting" and sentence in units.state(JOBS)[1], 20, "jobs do not wait for the writer")
        assert units.events("collectors", "bus.connected")[-1]["wire"] == 1
    units.stop(second)
    units.start(second, old=False)
    stores(units, LMT, "nothing is stored after both upgrades")
    stores(units, JOBS, "no jobs are stored after both upgrades")
    assert units.events("collectors", "bus.connected")[-1]["wire"] == 2
    end = int(units.scene.clock.time()) // 60 * 60
    start = units.scene.stored(LMT)[0].start
    wait_for(lambda: units.scene.complete_to(start, end), 60, "not complete")
    for name in ("collectors", "writer"):
        units.stop(name)
    compared = units.scene.compare()
    assert (compared.differences, compared.equal, compared.filled > 1000) == ([], True, True)
