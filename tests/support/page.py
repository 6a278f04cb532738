"""The page of a WebSite in a real Chromium."""

import numpy as np
from selenium.webdriver.common.by import By
from web_site import COUNTER, FAILED, GAUGE, ROWS, START, STEP, values

from tests.support.waiting import wait_for
from tokiod.batch import Batch
from tokiod.ledger.ledger import Ledger

END = START + (ROWS + 12) * STEP
PAST = f"?system=fs&dataset={GAUGE}&start={START}&end={END}"
COLOURS = """
const canvas = document.getElementById("picture"), context = canvas.getContext("2d");
const [rows, columns, cells] = arguments;
return cells.map(([row, column]) => {
  const wide = canvas.width / rows, high = canvas.height / columns;
  const size = [Math.max(1, Math.floor(wide) - 1), Math.floor(high) - 1];
  const {data} = context.getImageData(Math.ceil(row * wide), Math.ceil(column * high), ...size);
  const found = new Set();
  for (let at = 0; at < data.length; at += 4) found.add(data.slice(at, at + 3).join());
  return [...found].sort();
});
"""

LINE_COLOURS = """
const [canvas, row, rows] = arguments, {width, height} = canvas, context = canvas.getContext("2d");
const from = Math.ceil((row * width) / rows), until = Math.ceil(((row + 1) * width) / rows);
return [[0, height - 8], [height - 8, 8]].map(([top, high]) => {
  const {data} = context.getImageData(from, top, until - from, high), found = new Set();
  for (let at = 0; at < data.length; at += 4) found.add(data.slice(at, at + 4).join());
  return [...found].sort();
});
"""


def show(browser, site, where=PAST):
    browser.get(f"http://127.0.0.1:{site.socket}/{where}")


def drawn(browser):
    return browser.execute_script("return Number(document.getElementById('picture').dataset.drawn || 0)")


def text(browser, name):
    return browser.find_element(By.ID, name).text


def colours(browser, *cells, rows=ROWS + 12, columns=3):
    """The colours of cells (row, column) of the picture, each as it has."""
    return browser.execute_script(COLOURS, rows, columns, [list(cell) for cell in cells])


def line_colours(browser, canvas, row, rows=ROWS + 12):
    """The colours of a row in the line of a canvas, RGBA: above its foot, and in the foot."""
    return browser.execute_script(LINE_COLOURS, canvas, row, rows)


def wait(condition, message):
    wait_for(condition, 20, message)


def faults(browser):
    return [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]


def heal(site, rows, value):
    """Store rows, and publish them as the writer does."""
    store(site, rows, value)
    publish(site, *rows)


def store(site, rows, value):
    cells = values()
    cells[slice(*FAILED)] = 7.0
    cells[slice(*rows)] = value
    site.write(cells)
    with Ledger.open(site.config.archive.ledger) as ledger:
        site.store(ledger, *rows)


def publish(site, first, last):
    """Publish rows of OST0000."""
    times = START + STEP * np.arange(first, last)
    for dataset, form in ((GAUGE, "gauge"), (COUNTER, "counter")):
        batch = Batch(dataset, form, STEP, ("OST0000",), times, np.zeros(len(times), np.uint32), np.ones(len(times)))
        site.feed.publish("fs", batch, START)
