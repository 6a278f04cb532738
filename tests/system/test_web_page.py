"""The page in a real Chromium: what is on the screen is what the files hold."""

import os
import shutil

import numpy as np
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from web_site import COLUMNS, COUNTER, DAY, EVIL, FAILED, GAUGE, LOST, ROWS, START, STEP, WebSite, values

from tests.support.waiting import wait_for
from tokiod.batch import Batch
from tokiod.bus.feed import Feed
from tokiod.ledger.ledger import Ledger
from tokiod.simulator.sources import free_port

pytestmark = pytest.mark.system

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
PLACES = """
return [...document.querySelectorAll("#picture, #lines canvas")].map((one) => {
  const {left, width} = one.getBoundingClientRect();
  return [left, width];
});
"""
AXIS_COLOURS = """
const canvas = document.getElementById("axis"), {width, height} = canvas;
const {data} = canvas.getContext("2d").getImageData(0, 0, width, height), found = new Set();
for (let at = 0; at < data.length; at += 4) found.add(data.slice(at, at + 3).join());
return [...found];
"""


@pytest.fixture(scope="module")
def chromium():
    if not shutil.which("chromedriver"):
        sentence = "Chromium is not installed: apt-get install chromium chromium-driver"
        pytest.fail(sentence) if os.environ.get("CI") == "true" else pytest.skip(sentence)
    os.environ["SE_OFFLINE"] = "true"
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,900"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService("/usr/bin/chromedriver"))
    yield driver
    driver.quit()


@pytest.fixture
def browser(chromium):
    """A browser without a page of another test and without its log."""
    chromium.get("about:blank")
    chromium.get_log("browser")
    return chromium


@pytest.fixture
def site(tmp_path):
    made = WebSite(tmp_path, free_port())
    with Feed(made.config.feed.endpoint, "one") as made.feed:
        yield made


def show(browser, site, where=PAST):
    browser.get(f"http://127.0.0.1:{site.socket}/{where}")


def drawn(browser):
    return browser.execute_script("return Number(document.getElementById('picture').dataset.drawn || 0)")


def text(browser, name):
    return browser.find_element(By.ID, name).text


def colours(browser, *cells):
    """The colours of cells (row, column) of the picture, each as it has."""
    return browser.execute_script(COLOURS, ROWS + 12, 3, [list(cell) for cell in cells])


def wait(condition, message):
    wait_for(condition, 20, message)


def faults(browser):
    return [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]


def test_value_zero_missing_lost_and_not_due_differ_on_the_screen_and_not_by_colour_alone(browser, site):
    with site.served():
        show(browser, site)
        wait(lambda: drawn(browser), "nothing is drawn")
        value, zero, missing, failed, lost, blank = colours(browser, (200, 1), (3, 1), (150, 1), (135, 1), (125, 1), (245, 1))
        assert faults(browser) == []
    assert (len(value), len(zero), len(blank)) == (1, 1, 1)
    assert zero == ["71,1,85"]
    assert blank == ["255,255,255"]
    assert "200,16,46" in lost
    assert "255,255,255" in lost
    assert missing == failed == ["110,110,110", "215,215,215"]
    assert value not in (zero, blank)


def test_the_readout_names_target_time_state_and_the_ledgers_reason_and_a_name_is_never_markup(browser, site):
    with site.served():
        show(browser, site)
        wait(lambda: drawn(browser), "nothing is drawn")
        picture = browser.find_element(By.ID, "picture")
        picture.send_keys(Keys.ARROW_DOWN)
        wait(lambda: EVIL in text(browser, "readout"), "the first target is not named")
        browser.execute_script("arguments[0].scrollIntoView()", picture)
        box = picture.rect
        place = (125.5 / (ROWS + 12) - 0.5) * box["width"]
        webdriver.ActionChains(browser).move_to_element_with_offset(picture, int(place), 0).perform()
        wait(lambda: "lost" in text(browser, "readout"), "the lost hour is not described")
        assert text(browser, "readout").startswith(f"OST0000, {DAY} 00:10:2")
        assert text(browser, "readout").endswith(": lost (lost: the source deleted it)")
        assert browser.find_elements(By.TAG_NAME, "img") == []
        assert faults(browser) == []


def test_every_element_works_by_keyboard_and_the_url_holds_the_view(browser, site):
    with site.served():
        show(browser, site)
        wait(lambda: drawn(browser), "nothing is drawn")
        browser.find_element(By.TAG_NAME, "body").send_keys("/")
        assert browser.switch_to.active_element.get_attribute("id") == "search"
        picture = browser.find_element(By.ID, "picture")
        picture.send_keys(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ENTER)
        wait(lambda: "OST0000: at most" in text(browser, "lines"), "no line of the target")
        assert "target=OST0000" in browser.current_url
        whole = text(browser, "title")
        picture.send_keys("+")
        wait(lambda: f"end={END}" not in browser.current_url and text(browser, "title") != whole, "the map is not zoomed")
        shared = browser.current_url
        title = text(browser, "title")
        browser.get("about:blank")
        browser.get(shared)
        wait(lambda: drawn(browser) and text(browser, "title") == title, "another view than the shared one")
        wait(lambda: "OST0000: at most" in text(browser, "lines"), "no line of the shared target")
        show(browser, site, f"{PAST}&target=OST9999")
        wait(lambda: text(browser, "error") == f"{GAUGE} has no column OST9999 in the span", "an unknown target is not reported")


def test_systems_and_gaps_show_states_and_reasons_and_the_map_has_a_table_of_its_numbers(browser, site):
    with site.served():
        show(browser, site)
        wait(lambda: drawn(browser), "nothing is drawn")
        browser.find_element(By.CSS_SELECTOR, "#numbers summary").click()
        wait(lambda: "at least" in text(browser, "table"), "no numbers")
        cells = [row.text.split()[-6:] for row in browser.find_elements(By.CSS_SELECTOR, "#table tbody tr")]
        assert cells[1] == [str(ROWS - 26), "0", "1", "13", "12", "12"]
        browser.find_element(By.CSS_SELECTOR, "[data-view=systems]").click()
        wait(lambda: DAY in text(browser, "systemtable"), "no newest file")
        browser.find_element(By.CSS_SELECTOR, "[data-view=sources]").click()
        wait(lambda: "20 s" in text(browser, "sourcetable"), "no lag")
        browser.find_element(By.CSS_SELECTOR, "[data-view=gaps]").click()
        wait(lambda: "the source deleted it" in text(browser, "gaptable"), "no reason")
        assert text(browser, "axislegend") == "missing: failed, asked again\nlost: the source does not hold it any more"
        found = browser.execute_script(AXIS_COLOURS)
        assert {"200,16,46", "255,255,255"} <= set(found)
        assert faults(browser) == []


def test_a_day_of_the_calendar_says_how_much_of_it_is_stored_and_opens_it(browser, site):
    with site.served():
        show(browser, site, "?view=calendar")
        wait(lambda: browser.find_elements(By.CSS_SELECTOR, ".day.lost"), "no day with lost data")
        (day,) = browser.find_elements(By.CSS_SELECTOR, ".day.lost")
        assert day.accessible_name == f"{DAY}: 90 % stored, 60 s lost, 60 s missing"
        day.click()
        wait(lambda: drawn(browser) and f"start={START}&end={START + 86400}" in browser.current_url, "the day is not opened")
        assert f"{DAY} 00:00:00 to" in text(browser, "title")
        assert faults(browser) == []


def test_below_the_map_are_the_sum_and_the_busiest_server_on_its_time_axis(browser, site):
    with site.served():
        show(browser, site, PAST.replace(GAUGE, COUNTER))
        wait(lambda: len(browser.find_elements(By.CSS_SELECTOR, "#lines canvas")) == 2, "no lines")
        wait(lambda: "CPU load, busiest OSS: at most" in text(browser, "lines"), "no values")
        assert "sum of all targets: at most" in text(browser, "lines")
        places = browser.execute_script(PLACES)
        assert places[0] == places[1] == places[2]
        labels = [one.get_attribute("textContent") for one in browser.find_elements(By.CSS_SELECTOR, "#labels span")]
        assert labels == list(COLUMNS)
        words = text(browser, "legend").splitlines()
        assert [word.partition(", ")[0] for word in words] == ["value", "value", "zero", "missing", "lost", "not yet due"]
        assert faults(browser) == []


def test_a_healed_gap_appears_by_itself_also_after_the_web_process_was_killed(browser, site):
    with site.served():
        wait(lambda: bool(site.feed.poll() or site.feed.subscriptions), "the feed has no subscriber")
        show(browser, site)
        wait(lambda: drawn(browser), "nothing is drawn")
        heal(site, FAILED, 7.0)
        wait(lambda: len(colours(browser, (135, 1))[0]) == 1, "the healed gap is still hatched")
    with site.served():
        wait(lambda: bool(site.feed.poll()), "the feed has no subscriber")
        wait(lambda: text(browser, "state").startswith(("live", "no messages")), "the page did not come back")
        heal(site, LOST, 9.0)
        wait(lambda: "200,16,46" not in colours(browser, (125, 1))[0], "what was lost is still red")


def heal(site, rows, value):
    """Store rows, and publish them as the writer does."""
    cells = values()
    cells[slice(*FAILED)] = 7.0
    cells[slice(*rows)] = value
    site.write(cells)
    with Ledger.open(site.config.archive.ledger) as ledger:
        site.store(ledger, *rows)
    times = START + STEP * np.arange(*rows)
    site.feed.publish("fs", Batch(GAUGE, "gauge", STEP, ("OST0000",), times, np.zeros(len(times), np.uint32), np.ones(len(times))), START)


def test_pages_that_the_browser_keeps_for_going_back_hold_no_connection(browser, site):
    """A browser allows six connections to a host, and each page has one for the events."""
    with site.served():
        for _ in range(8):
            browser.get("about:blank")
            show(browser, site)
            wait(lambda: drawn(browser), "nothing is drawn")
        wait(lambda: "tokiod_web_viewers 1.0\n" in site.get("/metrics").body.decode(), "pages that are gone still follow the events")
