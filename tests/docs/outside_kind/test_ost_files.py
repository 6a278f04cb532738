"""The kind ost_files passes the contract suite."""

import pytest
import tokiod_ost_files as ost_files

from tokiod.collector import Site
from tokiod.testing import FakeClock
from tokiod.testing.collector_contract import CollectorContract
from tokiod.window import Calendar, Window

START = 1_517_126_400
SITE = Site(Calendar("UTC"), FakeClock(START + 7200))


class TestOstFiles(CollectorContract):
    @pytest.fixture
    def directory(self, tmp_path):
        for ost in range(3):
            lines = [f"{START + 60 * row} {10**12 + 7 * row * (ost + 1)} {5 * row}\n" for row in range(61)]
            (tmp_path / f"OST000{ost}.txt").write_text("".join(lines))
        return tmp_path

    @pytest.fixture
    def collector(self, directory):
        return lambda: ost_files.live(ost_files.Config(name="n", kind="ost_files", system="s", directory=str(directory)), SITE)

    @pytest.fixture
    def saved(self, directory):
        return lambda: ost_files.saved(sorted(directory.glob("*.txt")), ost_files.Saved(), SITE)

    @pytest.fixture
    def window(self):
        return Window(START, START + 3600)

    @pytest.fixture
    def datasets(self):
        return frozenset(ost_files.DATASETS)
