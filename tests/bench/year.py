"""A year of twenty systems, 10.5 M windows in the ledger and 7,300 files: what a daemon's start and `tokioctl status` cost.

One window in ten thousand was lost, so that a source is fifty ranges, not one. No floor: these are seconds to wait.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING

from tests.bench.measure import Row
from tokiod.clock import SimulatedClock
from tokiod.errors import TokiodError
from tokiod.ledger.ledger import Ledger
from tokiod.ranges import Ranges
from tokiod.simulator.scene import Scene, wait_for
from tokiod.simulator.site import Site
from tokiod.supervisor.control_socket import Ping, Pong, ask
from tokiod.tts.live.create import create
from tokiod.tts.sealed.seal import seal
from tokiod.tts.spec import FileSpec, GroupSpec, MatrixSpec
from tokiod.window import Calendar, Window

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

IMPORTS = "floor: import click, msgspec, sqlite3 and tomllib"
NOW = 1_795_132_800 + 12 * 3600
"""Noon of a day (UTC)."""
DAYS, SYSTEMS, MINUTE, DAY = 365, 20, 60, 86400
LOST_EVERY = 10_000
SIZES = {"osts": 4, "osss": 2, "mdts": 1}


def rows(directory: Path, *, quick: bool) -> Iterator[Row]:
    scene = _scene(directory / "year", DAYS if not quick else 30)
    try:
        scene.start_simulator()
        down = _status(scene)
        began = time.monotonic()
        scene.start_daemon()
        wait_for(lambda: _is_ready(scene), 60, f"the daemon does not get ready; see {scene.log}")
        ready = time.monotonic() - began
        wait_for(lambda: _is_at_rest(scene), 300, f"the daemon does not collect what was lost; see {scene.log}")
        up = _status(scene)
    finally:
        scene.close()
    days = f"{DAYS if not quick else 30} days of {SYSTEMS} systems"
    yield Row(f"daemon ready again: {days}", "s", None, ready, None, "below 1")
    for state, (floor, ours) in (("down", down), ("up and at rest", up)):
        yield Row(f"tokioctl status --json, daemon {state}: {days}", "s", floor, ours, ours / floor, "at most 0.06", IMPORTS)


def _scene(directory: Path, days: int) -> Scene:
    site = Site(NOW - 3600, timezone="UTC", trouble=False, **SIZES)
    scene = Scene(directory, site, SimulatedClock(float(NOW), time.time(), 1.0), retention=(days + 1) * DAY)
    scene.prepare()
    text = scene.config_path.read_text()
    head, stanza = text[: text.index("[[source]]")], text[text.index("[[source]]") :]
    more = (stanza.replace('"demo-lmt"', f'"lmt-{n}"').replace('"demo"', f'"system-{n}"') for n in range(1, SYSTEMS))
    scene.config_path.write_text(head + stanza + "".join(more))
    _fill(scene, Window((NOW // DAY - days) * DAY, NOW - 5 * MINUTE))
    return scene


def _fill(scene: Scene, span: Window) -> None:
    """Make the ledger and the files of a past in which one minute in ten thousand was lost."""
    archive = scene.config.archive
    _files(scene, span)
    with Ledger.open(archive.ledger) as ledger, ledger._database.transaction() as sql:
        for number, source in enumerate(scene.config.source):
            lost = [Window(t, t + MINUTE) for t in range(span.start + (number + 7) * MINUTE, span.end - DAY, LOST_EVERY * MINUTE)]
            stored = Ranges([(span.start, span.end)])
            for window in lost:
                stored.remove(window.start, window.end)
            windows = span.seconds // MINUTE - len(lost)
            sql.executemany("INSERT INTO stored VALUES (?, ?, ?)", [(source.name, *pair) for pair in stored])
            sql.executemany(
                "INSERT INTO unstored VALUES (?, ?, ?, 'lost', 3, 'Gone', 'the source has it no longer', ?, NULL)",
                [(source.name, window.start, window.end, float(window.end)) for window in lost],
            )
            sql.execute(
                """INSERT INTO source (name, kind, system, step, length, retention, since, last_start, last_end, last_cells, stored_at,
                   windows, state, data_end) VALUES (?, 'lmt', ?, 5, 60, ?, ?, ?, ?, 100, ?, ?, 'running', ?)""",
                (source.name, source.system, int(source.retention), span.start, span.end - MINUTE, *[span.end] * 2, windows, span.end),
            )
            counted = [(source.name, t, t + MINUTE, 100, float(NOW)) for t in range(span.end - DAY, span.end, MINUTE)]
            sql.executemany('INSERT INTO counted (source, start, "end", records, stored_at) VALUES (?, ?, ?, ?, ?)', counted)


def _files(scene: Scene, span: Window) -> None:
    """Make a sealed file for each day that is over, and give it to every system."""
    calendar = Calendar("UTC")
    for start in range(span.start, NOW // DAY * DAY, DAY):
        day = calendar.day(start)
        first, *others = [scene.config.archive.file(day, source.system) for source in scene.config.source]
        matrices = {"dataservers/cpuload": MatrixSpec(("oss",), counter=False)}
        spec = FileSpec(day.start, day.end, {"dataservers": GroupSpec(5, "lmt")}, matrices)
        create(first, spec, created=day.end)
        seal(first, first, day.end)
        for other in others:
            os.link(first, other)


def _is_ready(scene: Scene) -> bool:
    try:
        pong = ask(scene.config.control, Ping(), 1.0)
    except TokiodError:
        return False
    return isinstance(pong, Pong) and pong.ready


def _is_at_rest(scene: Scene) -> bool:
    """Return whether the minutes that were lost are collected, which its source still has: the machine has nothing else to do then."""
    with closing(sqlite3.connect(f"file:{scene.config.archive.ledger}?mode=ro", uri=True)) as sql:
        return sql.execute("SELECT count(*) FROM unstored").fetchone() == (0,)


def _status(scene: Scene) -> tuple[float, float]:
    """Return the least seconds of importing what it needs of others, and of it, of ten turns each."""
    command = [sys.executable.replace("python3", "python").rsplit("/", 1)[0] + "/tokioctl", "status", "--json"]
    command += ["--config", str(scene.config_path), "--clock", str(scene.clock)]
    imports = [sys.executable, "-c", "import click, msgspec, sqlite3, tomllib"]
    pairs = [(_seconds(imports), _seconds(command)) for _ in range(10)]
    floors, taken = zip(*pairs, strict=True)
    return min(floors), min(taken)


def _seconds(command: list[str]) -> float:
    began = time.monotonic()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    return time.monotonic() - began
