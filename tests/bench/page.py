"""The page of `tokiod web` in a real Chromium: the first picture, what a commit takes to the screen, a drag, and a month of days."""

from __future__ import annotations

import os
import random
import shutil
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

from tests.bench import reading
from tests.bench.measure import Row, skipped
from tests.bench.web import CONFIG, web
from tests.support.expected_pixels import TOLERANCE, colour, colour_range, levels
from tokiod.batch import Batch
from tokiod.bus.feed import Feed
from tokiod.simulator.scene import wait_for
from tokiod.simulator.sources import free_port
from tokiod.tts.live.create import create
from tokiod.tts.live.live_file import LiveFile
from tokiod.tts.spec import FileSpec, GroupSpec, MatrixSpec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray
    from selenium.webdriver import Chrome

DAYS, COMMITS, MOVES = 30, 200, 200
HOURS_3, WINDOW_ROWS, ROWS_PER_PIXEL = 3 * 720, 12, 2
NOTES = """
window.shown = [];
window.watched = null;
const look = () => {
  const canvas = document.getElementById("picture"), {data} = canvas.getContext("2d").getImageData(...window.watched), found = new Set();
  for (let at = 0; at < data.length; at += 4) found.add(data.slice(at, at + 3).join());
  return [...found];
};
new MutationObserver((changes) => {
  for (const {target, attributeName} of changes) {
    if (target.id !== "title" && !attributeName) continue;
    const note = [attributeName ?? "title", performance.now(), Date.now(), []];
    window.shown.push(note);
    if (window.watched && attributeName) requestAnimationFrame(() => requestAnimationFrame(() => (note[2] = Date.now(), note[3] = look())));
  }
}).observe(document, {subtree: true, childList: true, attributes: true, attributeFilter: ["data-drawn"]});
"""
"""When a picture was shown, by its title, and when all of it was. Of a watched part of the canvas, its colours in the frame after that."""
WATCH = """
const {width, height} = document.getElementById("picture"), [from, to] = [...arguments].map((part) => part * width);
window.shown.length = 0;
window.watched = [Math.ceil(from) + 1, 0, Math.max(1, Math.floor(to - from) - 3), height];
"""
"""Watch the pixels of some rows, given as parts of the width, without those that other rows have a part in."""
COMPLETE = "const picture = document.getElementById('picture'); return !picture || 'complete' in picture.dataset"
"""Whether the lines below the map are there too: the server works for them."""
PLACE = "const at = document.getElementById('picture').getBoundingClientRect(); return [at.x, at.y, at.width, at.height]"


def rows(directory: Path, *, quick: bool) -> Iterator[Row]:
    if not shutil.which("chromedriver"):
        yield skipped("the page in Chromium", "", "Chromium is not installed")
        return
    place = directory / "page"
    place.mkdir()
    days, commits = (10, 40) if quick else (DAYS, COMMITS)
    reading.archive(place, days)
    config, port, today = place / "tokiod.toml", free_port(), reading.START + (days + 1) * reading.DAY
    text = CONFIG.format(place).replace(f"{place}/http", f"127.0.0.1:{port}")
    config.write_text(text.replace("[web]", f'[feed]\nendpoint = "ipc://{place}/feed"\n[web]'))
    live = _live(place, today)
    with Feed(f"ipc://{place}/feed", "one") as feed, web(config, f"{today + 4 * 3600}@0x0", port), _chromium() as browser:
        base = f"http://127.0.0.1:{port}/?system=hdf5&dataset={reading.READ}"
        span = f"{base}&start={today}&end={today + 5 * HOURS_3}"
        seconds = [_first(browser, span) for _ in range(5)]
        yield Row("first picture of 3 h x 248 in Chromium, the slowest of 5", "s", min(seconds), max(seconds), None, "below 1 s")
        drags = sorted(_drag(browser))
        yield Row("scripts of one move of a drag, p95", "ms", None, _p95(drags), None, "at most 8 ms", f"max {drags[-1]:.1f} ms")
        ages = sorted(_commits(live, feed, browser, today, commits))
        yield Row(f"a commit until the screen shows it, p95 of {len(ages)}", "s", ages[len(ages) // 2], _p95(ages), None, "below 1 s",
                  "floor: the median")  # fmt: skip
        month = f"{base}&start={reading.START}&end={reading.START + days * reading.DAY}"
        _drop(place)
        for name, target in (("no day kept", "below 4 s"), ("all kept", "below 1 s")):
            whole = _first(browser, month)
            early = browser.execute_script("return window.shown.find(([what]) => what === 'title')[1] / 1000")
            yield Row(f"{days} days of 17,280 x 248 in Chromium, {name}", "s", early, whole, None, target, "floor: the first day is shown")


def _live(place: Path, today: int) -> LiveFile:
    """Return the file of today, the first three hours of which are stored."""
    path = place / f"{np.datetime64(today, 's').astype('M8[D]')}.hdf5"
    matrices = {reading.READ: MatrixSpec(reading.OSTS, counter=True)}
    create(path, FileSpec(today, today + reading.DAY, {"datatargets": GroupSpec(reading.STEP, "lmt")}, matrices), created=today)
    file = LiveFile.open(path)
    file.cells[reading.READ].write_rows(0, np.random.default_rng(1).integers(0, 1 << 30, (HOURS_3, 248)).astype(float))
    file.commit()
    return file


def _first(browser: Chrome, address: str) -> float:
    """Return the seconds from the request of a page until its picture is on the screen, once the page before is complete."""
    wait_for(lambda: bool(browser.execute_script(COMPLETE)), 120, "the page before is not complete")
    browser.get("about:blank")
    browser.get(address)
    while not (found := browser.execute_script("return window.shown.filter(([what]) => what === 'data-drawn').map((one) => one[1])[0]")):
        time.sleep(0.01)
    return float(found) / 1000


def _drag(browser: Chrome) -> list[float]:
    """Return the milliseconds of scripts for each move of a drag over the whole map."""
    time.sleep(2)  # the lines below the map
    box = browser.execute_script(PLACE)
    browser.execute_cdp_cmd("Performance.enable", {})

    def spent() -> float:
        found: list[dict[str, Any]] = browser.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
        return next(float(one["value"]) for one in found if one["name"] == "ScriptDuration") * 1000

    def mouse(kind: str, part: float) -> None:
        at = {"x": box[0] + part * box[2], "y": box[1] + part * box[3] * 0.9, "button": "left", "buttons": 1}
        browser.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": kind, **at})

    mouse("mousePressed", 0.1)
    durations = []
    for move in range(MOVES):
        before = spent()
        mouse("mouseMoved", 0.1 + 0.8 * move / MOVES)
        durations.append(spent() - before)
    return durations


def _commits(live: LiveFile, feed: Feed, browser: Chrome, today: int, commits: int) -> list[float]:
    """Return the seconds from each of some commits until its cells are on the screen, in the colour that the file says."""
    random_times, ages = random.Random(1), []
    names = tuple(reading.OSTS)
    for number in range(commits):
        time.sleep(random_times.uniform(0.05, 0.4))
        first = number * WINDOW_ROWS % HOURS_3
        browser.execute_script(WATCH, first / HOURS_3, (first + WINDOW_ROWS) / HOURS_3)
        values = np.full((WINDOW_ROWS, len(names)), float(1 << (number % 30)))
        live.cells[reading.READ].write_rows(first, values)
        live.commit()
        stored, times = time.time(), today + reading.STEP * np.repeat(np.arange(first, first + WINDOW_ROWS), len(names))
        columns = np.tile(np.arange(len(names), dtype=np.uint32), WINDOW_ROWS)
        feed.publish("hdf5", Batch(reading.READ, "counter", reading.STEP, names, times, columns, values.ravel()), today)
        ages.append(_seen(browser, live.path, first) - stored)
    return ages


def _seen(browser: Chrome, path: Path, first: int) -> float:
    """Return when the rows of a window had the colour that the file says, as UTC epoch seconds. Raises RuntimeError after 10 s."""
    deadline = time.time() + 10
    while time.time() < deadline:
        for _, _, shown_at, colours in browser.execute_script("return window.shown.filter((one) => one[3].length === 1)"):
            wanted, found = _expected(path, first), np.array(colours[0].split(","), int)
            if np.abs(wanted - found).max() <= TOLERANCE:
                return float(shown_at) / 1000
        time.sleep(0.02)
    raise RuntimeError(f"row {first} is not on the screen")


def _expected(path: Path, first: int) -> NDArray[np.int64]:
    """Return the colour of a row, RGB, in the picture of three hours: from the file, by h5py and matplotlib."""
    with h5py.File(path) as file:
        cells = file[reading.READ][:HOURS_3]
    found = levels(cells.reshape(HOURS_3 // ROWS_PER_PIXEL, ROWS_PER_PIXEL, -1).max(axis=1))
    return colour(int(found[first // ROWS_PER_PIXEL, 0]), *colour_range(found))


def _p95(found: list[float]) -> float:
    return found[int(0.95 * (len(found) - 1))]


def _drop(place: Path) -> None:
    """Have the days read from the disk."""
    for path in place.glob("*.hdf5"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@contextmanager
def _chromium() -> Iterator[Chrome]:
    from tests.support import browser  # noqa: PLC0415 - selenium is slow to import

    driver = browser.started()
    driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": NOTES})
    try:
        yield driver
    finally:
        driver.quit()
