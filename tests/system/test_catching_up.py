"""Real subscribers of a real daemon: one that stands still while the writer is killed and a column is added, and `tokioctl tail`.

test_catching_up.py follow CONFIG CLOCK PICTURE SINCE: keeps a picture of what it hears, and writes it to PICTURE.
"""

from __future__ import annotations

import csv
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.support.waiting import wait_for
from tokiod.clock import SimulatedClock
from tokiod.config import load as configuration
from tokiod.reader.followed_file import FollowedFile
from tokiod.simulator.scene import Scene
from tokiod.simulator.site import Site
from tokiod.subscribe.subscriber import Archive, Subscriber, Update

pytestmark = pytest.mark.system

MIDNIGHT = 1_517_184_000
RATE = 60
COLUMN = "datatargets/readbytes"


def follow(config_path: str, clock: str, place: str, since: str) -> None:
    config, simulated = configuration.load(Path(config_path)), SimulatedClock.parse(clock)
    picture, counts = {}, {"Update": 0, "Gap": 0, "Stalled": 0, "caught_up": 0}
    options = {"silence": 0.3, "high_water": 20, "archive": Archive.of(config, simulated), "since": int(since)}
    with Subscriber(config.feed.endpoint, ["demo/"], **options) as subscriber:
        written = 0.0
        for event in subscriber:
            counts[type(event).__name__] += 1
            if isinstance(event, Update):
                counts["caught_up"] += event.caught_up
                draw(picture, event.batch)
            if time.monotonic() - written > 0.5:
                Path(f"{place}.new").write_bytes(pickle.dumps((picture, counts)))
                Path(f"{place}.new").replace(place)
                written = time.monotonic()


def draw(picture, batch):
    names = [(batch.dataset, column) for column in batch.columns]
    for stamp, column, value in zip(batch.time.tolist(), batch.column.tolist(), batch.value.tolist(), strict=True):
        if np.isnan(value):
            picture.pop((*names[column], stamp), None)
        else:
            picture[*names[column], stamp] = value


def held(scene, until):
    cells = {}
    for path in scene.files():
        with FollowedFile(path) as reader:
            for dataset in reader.datasets():
                stamps, columns, values = reader.read(dataset, 0, until)
                for row, column in np.argwhere(~np.isnan(values)).tolist():
                    cells[dataset, columns[column], int(stamps[row])] = float(values[row, column])
    return cells


@pytest.fixture
def scene():
    """A small site whose last OST appears later, shortly before midnight."""
    with tempfile.TemporaryDirectory(prefix="follow-") as directory:
        clock = SimulatedClock(MIDNIGHT - 600.0, time.time(), RATE)
        site = Site(epoch=MIDNIGHT - 1500, timezone="UTC", osts=4, osss=2, mdts=1, growth=1500)
        made = Scene(Path(directory), site, clock, retention=4 * 3600)
        made.prepare()
        try:
            made.start_simulator()
            made.start_daemon()
            yield made
        finally:
            made.close()


@contextmanager
def started(*command):
    with subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGCONT)
            process.kill()


def seen(place):
    return pickle.loads(place.read_bytes()) if place.exists() else ({}, {})


def test_the_picture_of_one_that_stood_still_while_writer_and_feed_were_killed_and_a_column_was_added_is_the_files(scene, tmp_path):
    place = tmp_path / "picture"
    with started(sys.executable, __file__, "follow", scene.config_path, scene.clock, place, scene.site.epoch) as follower:
        wait_for(lambda: seen(place)[1].get("Update", 0) > 20, 60, f"nothing is heard; see {scene.log}")
        follower.send_signal(signal.SIGSTOP)
        scene.kill("writer")
        scene.kill("feed")
        wait_for(lambda: scene.clock.time() > MIDNIGHT + 200, 60, "no midnight")
        follower.send_signal(signal.SIGCONT)
        wait_for(lambda: scene.clock.time() > MIDNIGHT + 300, 60, "no morning")
        scene.kill("feed")
        wait_for(lambda: scene.clock.time() > MIDNIGHT + 400, 60, "no morning")
        scene.kill("writer")
        end = int(scene.clock.time()) // 60 * 60 + 60
        wait_for(lambda: scene.complete_to(scene.site.epoch // 60 * 60, end), 60, f"not complete; see {scene.log}")
        until = end - 60
        wait_for(lambda: heard_until(seen(place)[0], until) == held(scene, until), 30, "the picture is not the files'")
        assert follower.poll() is None
        picture, counts = seen(place)
    assert counts["Gap"] > 0
    assert counts["caught_up"] > 0
    assert {column for dataset, column, _ in picture if dataset == COLUMN} == set(scene.site.ost_names)
    assert {stamp >= MIDNIGHT for _, _, stamp in picture} == {False, True}


def heard_until(picture, until):
    return {key: value for key, value in picture.items() if key[2] < until}


# ---- tokioctl tail


def tail(scene, *options):
    return [sys.executable, "-m", "tokiod.cli.tokioctl", "tail", *options, "--config", scene.config_path, "--clock", scene.clock]


def test_tail_prints_every_cell_as_csv_tells_gaps_on_stderr_and_ends_quietly_by_ctrl_c_and_by_head(scene, tmp_path):
    wait_for(lambda: scene.complete_to(scene.site.epoch // 60 * 60, MIDNIGHT - 900), 60, f"not complete; see {scene.log}")
    with (tmp_path / "cells.csv").open("w") as out:
        process = subprocess.Popen(
            [str(word) for word in tail(scene, "demo/datatargets/", "--csv", "--since", "12h")],
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            wait_for(lambda: (tmp_path / "cells.csv").stat().st_size > 50_000, 60, "nothing is told")
            process.send_signal(signal.SIGSTOP)
            scene.kill("writer")
            time.sleep(2)
            process.send_signal(signal.SIGCONT)
            until = int(scene.clock.time()) // 60 * 60
            wait_for(lambda: scene.complete_to(scene.site.epoch // 60 * 60, until + 120), 60, f"not complete; see {scene.log}")
            wait_for(lambda: told(tmp_path / "cells.csv", until) == only_targets(held(scene, until)), 30, "not every cell was told")
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=100)
        finally:
            process.kill()
            process.wait()
    assert process.returncode == 130, err
    assert "a new writer; reading the file from 2018-01-" in err
    assert "Traceback" not in err
    head = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {' '.join(map(str, tail(scene, '--json', '--since', '1h')))} | head -n 2"],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert (head.returncode, head.stderr) == (0, "")
    assert [set(json.loads(line)) for line in head.stdout.splitlines()] == [
        {"system", "dataset", "step", "watermark", "caught_up", "cells"}
    ] * 2


def told(path, until):
    cells = {}
    with path.open() as lines:
        for line in csv.DictReader(lines):
            stamp = int(np.datetime64(line["time"].rstrip("Z"), "s").astype(int)) if line["value"] is not None else until
            if stamp < until:
                if line["value"]:
                    cells[line["dataset"], line["column"], stamp] = float(line["value"])
                else:
                    cells.pop((line["dataset"], line["column"], stamp), None)
    return cells


def only_targets(cells):
    return {key: value for key, value in cells.items() if key[0].startswith("datatargets/")}


def test_tail_without_a_daemon_says_so_once_and_waits(scene):
    scene.stop_daemon()
    with started(*tail(scene)) as process:
        line = process.stderr.readline()
        assert line.startswith("no messages from ipc://")
        assert process.poll() is None
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=100)
    assert (process.returncode, out, err) == (130, "", "")


def test_tail_refuses_a_system_that_no_source_has_and_a_time_that_is_none(scene):
    for options, said in (
        (["dmeo"], "unknown system 'dmeo', did you mean demo?"),
        (["--since", "soon"], "--since: 'soon' is not a time"),
        (["--csv", "--json"], "use either --json or --csv"),
        (["--key", "/nowhere/me.key_secret"], "give both --key (your secret key) and --server-key"),
        (["--key", "/nowhere/me.key_secret", "--server-key", "/nowhere/server.key"], "/nowhere/server.key"),
    ):
        done = subprocess.run([str(word) for word in tail(scene, *options)], capture_output=True, text=True, check=False, timeout=150)
        assert (done.returncode, done.stdout, said in done.stderr) == (2, "", True), done.stderr


if __name__ == "__main__":
    follow(*sys.argv[2:])
