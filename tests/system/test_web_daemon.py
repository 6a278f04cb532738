"""The page of a real daemon, in a real Chromium: after its processes are killed, each pixel is what the file holds, by itself."""

import calendar
import re
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from expected_pixels import BLANK, differences, read
from page import COLOURS, drawn, faults, text
from selenium.webdriver.common.by import By
from waiting import wait_for

from tests.support.faulty_scene import FaultyScene
from tokiod.clock import SimulatedClock
from tokiod.simulator.site import Site
from tokiod.simulator.sources import LMT

pytestmark = pytest.mark.system

MIDNIGHT, RATE, STEP, DATASET = 1_517_184_000, 10, 5, "datatargets/readbytes"


@pytest.fixture(scope="module")
def scene():
    """A daemon that has stored all windows up to now, and its page."""
    with tempfile.TemporaryDirectory(prefix="tokiod-") as directory:
        clock = SimulatedClock(MIDNIGHT + 12 * 3600.0, time.time(), RATE)
        made = FaultyScene(
            Path(directory), Site(epoch=int(clock.epoch) - 300, timezone="UTC", osts=4, osss=2, mdts=1), clock, retention=600
        )
        made.prepare()
        try:
            made.start_simulator()
            made.start_daemon()
            settle(made)
            made.start_web()
            yield made
        finally:
            made.close()


def settle(scene):
    """Wait until another window is stored, and all before it."""
    end = (int(scene.clock.time()) // scene.window + 1) * scene.window
    wait_for(lambda: scene.complete_to(scene.site.epoch, end), 90, f"not complete up to {end}; see {scene.log}")
    return end


def shown(browser):
    """The epoch seconds at which the picture begins and ends, by its title."""
    found = re.findall(r"[0-9-]{10} [0-9:]{8}", text(browser, "title"))
    return [calendar.timegm(time.strptime(one, "%Y-%m-%d %H:%M:%S")) for one in found]


def wrong(browser, scene, stored):
    """The cells before a time that look otherwise than the file says."""
    begin, end = shown(browser)
    names = [one.get_attribute("textContent") for one in browser.find_elements(By.CSS_SELECTOR, "#labels span")]
    rows, compared = (end - begin) // STEP, (stored - begin) // STEP
    cells = read(scene.files(LMT), DATASET, names, (begin - MIDNIGHT) // STEP, rows)
    places = [[row, column] for row in range(compared) for column in range(len(names))]
    found = iter(browser.execute_script(COLOURS, rows, len(names), places))
    looks = [[{tuple(map(int, one.split(","))) for one in next(found)} for _ in names] for _ in range(compared)]
    looks += [[{(255, 255, 255)}] * len(names)] * (rows - compared)
    return [one for one in differences(cells, [BLANK] * rows, looks) if one[0] < compared and not np.isnan(cells[one[0], one[1]])]


@pytest.mark.parametrize("process", ["writer", "collectors", "feed"])
def test_after_a_kill_the_page_shows_what_was_stored_since(browser, scene, process):
    browser.get(f"http://{scene.config.web.address}/?system={LMT.system}&dataset={DATASET}&live=1200")
    wait_for(lambda: drawn(browser) and text(browser, "state").startswith("live"), 60, "the page is not live")
    assert scene.kill(process)
    settle(scene)
    with scene.frozen("collectors"):
        time.sleep(1)  # the windows in flight
        stored = scene.stored()[-1].end
        wait_for(lambda: shown(browser)[1] >= stored and wrong(browser, scene, stored) == [], 60, "the page is not what the file is")
    assert faults(browser) == []
