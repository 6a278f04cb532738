"""The archive, ledger and configuration of tokiod 0.1.0 (tests/data): this version reads them and continues where that one stopped.

The fixture is what `tokiod run` of commit 7988c9c left after two midnights of a simulated site with LMT and collectd: sealed days of LMT,
live days of collectd, and a live file of the current day of both. site.json makes the simulator repeat that site exactly.
"""

import tarfile
import tempfile
import time
from pathlib import Path

import pytest

from tokiod.clock import SimulatedClock
from tokiod.config import load as configuration
from tokiod.ledger.ledger import Ledger
from tokiod.reports.gaps import gaps
from tokiod.reports.status import read
from tokiod.simulator.scene import Scene, wait_for
from tokiod.simulator.site import Site
from tokiod.simulator.sources import COLLECTD, LMT
from tokiod.tts.layout import form_of, open_for_reading

pytestmark = pytest.mark.system

FIXTURE = Path(__file__).parents[1] / "data" / "archive-0.1.0.tar.xz"
WRITTEN_IN = "/var/lib/tokiod"


@pytest.fixture
def scene():
    with tempfile.TemporaryDirectory(prefix="upgrade-") as directory:
        with tarfile.open(FIXTURE) as archive:
            archive.extractall(directory, filter="data")
        config = Path(directory) / "tokiod.toml"
        config.write_text(config.read_text().replace(WRITTEN_IN, directory))
        stopped = int((Path(directory) / "stopped").read_text())
        clock = SimulatedClock(float(stopped), time.time(), 240)
        made = Scene(
            Path(directory), Site.read(Path(directory) / "site.json"), clock, window=300, sources=(LMT, COLLECTD), retention=100_000
        )
        try:
            yield made
        finally:
            made.close()


def test_what_an_older_version_stored_is_read(scene):
    config = configuration.load(scene.config_path)
    assert [(source.name, source.kind) for source in config.source] == [("demo-lmt", "lmt"), ("demo-collectd", "collectd_es")]
    status = read(config, scene.clock.time())
    assert {line.name: line.state for line in status.sources} == {"demo-lmt": "stopped", "demo-collectd": "stopped"}
    with Ledger.open_readonly(config.archive.ledger) as ledger:
        assert [gap for gap in gaps(config, ledger, scene.clock.time()) if gap.state != "due"] == []
    assert {form_of(file) for path in scene.files() for file in [open_for_reading(path)]} == {"live", "sealed"}
    comparison = scene.compare()
    assert (comparison.differences, comparison.equal, comparison.filled > 190_000) == ([], True, True)


def test_a_daemon_continues_the_archive_of_an_older_version(scene):
    before = {source.name: scene.stored(source) for source in scene.sources}
    scene.prepare()
    scene.start_simulator()
    scene.start_daemon()
    end = int(scene.clock.time()) // 300 * 300 + 3600
    wait_for(lambda: scene.complete_to(before["demo-collectd"][0].start, end), 120, f"not complete; see {scene.log}")
    assert scene.stop_daemon() == 0
    comparison = scene.compare()
    assert (comparison.differences, comparison.equal, comparison.filled > 200_000) == ([], True, True)
    assert "aside" not in "".join(str(path) for path in scene.directory.rglob("*"))
