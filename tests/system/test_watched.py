"""A daemon that watches folders, with real files of real kinds: what is put in is archived as `tokioctl archive` would."""

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path

import h5py
import lmt_database
import numpy as np
import pytest
from waiting import wait_for

from tokiod.archive.lock import lock_owner
from tokiod.config import load as configuration
from tokiod.ledger.ledger import Ledger, LedgerNotReady
from tokiod.ledger.received_files import Totals
from tokiod.tts.layout import dataset_names

pytestmark = pytest.mark.system

START, STEP, ZONE = lmt_database.START, lmt_database.STEP, lmt_database.ZONE
STEPS = 2160


class Site:
    def __init__(self, directory):
        self.directory = directory
        self.spool = directory / "spool"
        self.spool.mkdir()
        self.path = directory / "tokiod.toml"
        self.path.write_text(
            f'timezone = "{ZONE}"\n[archive]\npath = "{directory}/tts/%Y-%m-%d/{{system}}.hdf5"\n'
            f'[bus]\nendpoint = "ipc://{directory}/bus"\n[feed]\nendpoint = "ipc://{directory}/feed"\n'
            f'[[source]]\nname = "copies"\nkind = "lmt"\nsystem = "lc1"\nwatch = "{self.spool}"\nscan = "2s"\n'
        )
        self.config = configuration.load(self.path)
        self.daemon = None

    def start(self):
        with (self.directory / "log").open("ab") as log:
            command = [sys.executable, "-m", "tokiod.cli.tokiod", "run", "--config", str(self.path)]
            self.daemon = subprocess.Popen(command, stdout=log, stderr=log)

    def stop(self):
        if self.daemon is not None:
            self.daemon.terminate()
            assert self.daemon.wait(150) == 0
            self.daemon = None

    def put(self, path):
        shutil.copy(path, self.spool / f".{path.name}")
        (self.spool / f".{path.name}").rename(self.spool / path.name)

    @property
    def totals(self):
        with self.ledger() as ledger:
            return ledger and ledger.received_files("copies").totals()

    @contextmanager
    def ledger(self):
        """The ledger, None while the writer has not made it yet."""
        try:
            opened = Ledger.open_readonly(self.config.archive.ledger) if self.config.archive.ledger.exists() else None
        except LedgerNotReady:
            opened = None
        with opened or nullcontext():
            yield opened

    def until(self, totals):
        wait_for(lambda: self.totals == totals, 60, f"{totals} wanted: {(self.directory / 'log').read_text()[-3000:]}")

    def is_collecting(self):
        with self.ledger() as ledger:
            return ledger is not None and any(source.state_reason.startswith("collecting ") for source in ledger.sources())

    def kill_collectors(self):
        children = Path(f"/proc/{self.daemon.pid}/task/{self.daemon.pid}/children").read_text().split()
        for pid in {int(pid) for pid in children} - {lock_owner(self.config.archive.lock)}:
            os.kill(pid, signal.SIGKILL)

    def cells(self):
        """{(dataset, column, time): value} of all files."""
        return {key: value for path in (self.directory / "tts").rglob("*.hdf5") for key, value in cells(path).items()}


def cells(path):
    found = {}
    with h5py.File(path) as file:
        for group in (name for name in file if not name.startswith("_")):
            times = file[group]["timestamps"][...]
            for name in dataset_names(file[group]):
                values, columns = file[group][name][...], [c.decode() for c in file[group][name].attrs["columns"]]
                there = ~((values == 0) & np.signbit(values))
                found |= {(f"{group}/{name}", columns[c], int(times[r])): values[r, c] for r, c in zip(*there.nonzero(), strict=True)}
    return found


def archived(tmp_path, *inputs):
    out = tmp_path / "reference.hdf5"
    span = ["--start", "2018-01-28T00:00:00", "--end", "2018-01-29T00:00:00", "--timezone", ZONE]
    command = [sys.executable, "-m", "tokiod.cli.tokioctl", "archive", "lmt", *map(str, inputs), "--output", str(out), *span]
    subprocess.run(command, check=True, capture_output=True)
    return cells(out)


@pytest.fixture(scope="module")
def copies(tmp_path_factory):
    """Three copies of one database: its first three hours, and two that go on where the one before ends."""
    directory = tmp_path_factory.mktemp("copies")
    whole = lmt_database.tables(steps=3 * STEPS)
    made = []
    for part in range(3):
        first = lmt_database.FIRST_TS_ID + part * STEPS
        rows = {
            name: [row for row in content if first <= row[_ts_id(name)] < first + STEPS] if _ts_id(name) is not None else content
            for name, content in whole.items()
        }
        made.append(lmt_database.save(directory / f"copy{part}.sqlite3", rows))
    return made


def _ts_id(table):
    names = lmt_database.COLUMNS[table]
    return names.index("TS_ID") if "TS_ID" in names else None


@pytest.fixture
def site(tmp_path):
    made = Site(tmp_path)
    yield made
    if made.daemon is not None:
        made.daemon.kill()
        made.daemon.wait()


def test_copies_that_come_before_while_and_after_the_daemon_was_down_make_one_archive_of_every_cell(site, copies, tmp_path):
    site.put(copies[0])
    site.start()
    site.until(Totals(1, 0))
    site.put(copies[2])
    site.until(Totals(2, 0))
    site.stop()
    site.put(copies[1])
    site.start()
    site.until(Totals(3, 0))
    assert site.cells() == archived(tmp_path, *copies)


def test_the_collectors_killed_while_they_collect_a_file_collect_it_again_and_nothing_is_different(site, copies, tmp_path):
    for copy in copies:
        site.put(copy)
    site.start()
    chance = random.Random(5)
    for _ in range(2):
        wait_for(site.is_collecting, 60, "no file is collected")
        time.sleep(chance.uniform(0, 0.2))
        site.kill_collectors()
        with closing(sqlite3.connect(site.config.archive.ledger)) as ledger, ledger:
            ledger.execute("UPDATE source SET state_reason = 'killed'")
    site.until(Totals(3, 0))
    assert site.cells() == archived(tmp_path, *copies)


def test_status_tells_what_was_rejected_and_where_it_is(site, copies):
    site.start()
    (site.spool / "notes.txt").write_text("not a database\n")
    site.put(copies[0])
    site.until(Totals(1, 1))
    time.sleep(0.2)
    told = subprocess.run(
        [sys.executable, "-m", "tokiod.cli.tokioctl", "status", "--json", "--config", str(site.path)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert told.returncode == 0, told.stderr
    assert f"1 files of {site.spool} collected, 1 rejected: see {site.spool}/rejected" in told.stdout
    assert "is not a SQLite file" in (site.spool / "rejected" / "notes.txt.reason").read_text()


def test_a_backfill_of_a_folder_is_refused_with_what_to_do_instead(site):
    command = [sys.executable, "-m", "tokiod.cli.tokioctl", "backfill", "--config", str(site.path), "copies", "2018-01-28", "2018-01-29"]
    told = subprocess.run(command, check=False, capture_output=True, text=True)
    assert told.returncode != 0
    assert "copies is a watched folder, which is not queried: put the files of that time into the folder" in told.stderr
