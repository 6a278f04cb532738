"""What happens while a page is open: afterwards each of its cells looks as the files and the ledger say, and as in a page opened then."""

import calendar
import json
import re
import time
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from expected_pixels import BLANK, MISSING, differences, read
from expected_pixels import LOST as LOST_LOOK
from page import colours, drawn, faults, heal, publish, show, store, text, wait
from selenium import webdriver
from selenium.webdriver.common.by import By
from web_site import COLUMNS, COUNTER, DAY, FAILED, GAUGE, LOST, NOW, ROWS, START, STEP, values, window

from tokiod.bus.feed import Feed
from tokiod.ledger.ledger import Ledger
from tokiod.tts.live.create import create
from tokiod.tts.live.live_file import LiveFile
from tokiod.tts.sealed.seal import seal
from tokiod.tts.spec import FileSpec, GroupSpec, MatrixSpec

pytestmark = pytest.mark.system

MIDNIGHT = START + 86400
AN_HOUR_LATER = "const now = Date.now; Date.now = () => now() + 3600000;"
CUT = {"offline": True, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}


@pytest.fixture
def site(web_site):
    """The site, served."""
    with web_site.served() as web_site.process:
        yield web_site


def opened(browser, site, **where):
    show(browser, site, *([where["where"]] if where else []))
    wait(lambda: drawn(browser), "nothing is drawn")
    wait(lambda: text(browser, "state").startswith(("live", "no messages")), "the page does not follow the events")
    wait(lambda: bool(site.feed.poll() or site.feed.subscriptions), "the feed has no subscriber")


def picture(browser):
    return browser.execute_script("return document.getElementById('picture').toDataURL()")


def check(browser, site, **where):
    """Compare each cell on the screen with the files, and all pixels with a page that is opened now."""
    check_cells(browser, site, **where)
    followed = picture(browser)
    browser.refresh()
    wait(lambda: drawn(browser), "nothing is drawn")
    assert picture(browser) == followed


def check_cells(browser, site, *, days=(DAY,), first=0, rows=ROWS + 12, columns=COLUMNS, due=START + ROWS * STEP, until=None):
    """Compare each cell on the screen with the files.

    first: the row of the first day that the picture begins with; due: the time from which on windows are not due; until: rows of the file
    before which cells are compared.
    """
    compared = rows if until is None else until - first
    cells = read([site.file.parent.parent / day / "fs.hdf5" for day in days], GAUGE, columns, first, compared)
    places = [(row, column) for row in range(compared) for column in range(len(columns))]
    found = iter(colours(browser, *places, rows=rows, columns=len(columns)))
    shown = [[{tuple(map(int, one.split(","))) for one in next(found)} for _ in columns] for _ in range(compared)]
    assert list(differences(cells, states(site, first, compared, due), shown)) == []


def states(site, first, rows, due):
    """Return the state of what is missing in each row, as the ledger has it."""
    with Ledger.open_readonly(site.config.archive.ledger) as ledger:
        lost = [one.window for one in ledger.unstored("one") if one.state == "lost"]
    times = [START + (first + row) * STEP for row in range(rows)]
    return [BLANK if time >= due else LOST_LOOK if any(one.start <= time < one.end for one in lost) else MISSING for time in times]


def is_healed(browser):
    return len(colours(browser, (sum(FAILED) // 2, 1))[0]) == 1


def cut(browser, *, offline):
    browser.execute_cdp_cmd("Network.enable", {})
    browser.execute_cdp_cmd("Network.emulateNetworkConditions", CUT | {"offline": offline})


def test_the_writer_is_killed(browser, site):
    """Its successor has another epoch, and what it stored before it published is not among the events."""
    opened(browser, site)
    site.feed.close()
    store(site, FAILED, 7.0)
    site.feed = Feed(site.config.feed.endpoint, "two")
    wait(lambda: bool(site.feed.poll() or site.feed.subscriptions), "the feed has no subscriber")
    publish(site, 0, 12)
    wait(lambda: is_healed(browser), "what was stored meanwhile is still hatched")
    check(browser, site)


def test_the_network_is_cut(browser, site):
    opened(browser, site)
    try:
        cut(browser, offline=True)
        heal(site, FAILED, 7.0)
        assert not is_healed(browser)
    finally:
        cut(browser, offline=False)
    wait(lambda: is_healed(browser), "what was stored meanwhile is still hatched")
    check(browser, site)


def test_the_laptop_sleeps_for_an_hour(browser, site):
    """Nothing tells the page that its connection is dead. It looks at the clock."""
    opened(browser, site)
    browser.execute_cdp_cmd("Page.setWebLifecycleState", {"state": "frozen"})
    store(site, FAILED, 7.0)  # and no event comes through
    browser.execute_cdp_cmd("Page.setWebLifecycleState", {"state": "active"})
    assert not is_healed(browser)
    browser.execute_script(AN_HOUR_LATER)
    wait(lambda: is_healed(browser), "what was stored meanwhile is still hatched")
    check(browser, site)


def test_the_web_process_is_killed(browser, web_site):
    with web_site.served() as process:
        opened(browser, web_site)
        process.kill()
    heal(web_site, FAILED, 7.0)
    with web_site.served():
        wait(lambda: is_healed(browser), "what was stored meanwhile is still hatched")
        check(browser, web_site)


def test_the_day_is_sealed_while_it_is_displayed(browser, site):
    opened(browser, site)
    before = picture(browser)
    sealed = site.file.with_name("sealed")
    seal(site.file, sealed, NOW)
    sealed.replace(site.file)
    publish(site, 0, 12)
    last = drawn(browser)
    wait(lambda: drawn(browser) > last, "the sealed day is not drawn")
    assert picture(browser) == before
    check(browser, site)
    assert faults(browser) == []


def made(path, start, columns, cells):
    """Make a file of a day with both datasets."""
    groups = {name.partition("/")[0]: GroupSpec(STEP, "lmt") for name in (GAUGE, COUNTER)}
    matrices = {GAUGE: MatrixSpec(columns, counter=False), COUNTER: MatrixSpec(columns, counter=True)}
    path.parent.mkdir(exist_ok=True)
    create(path, FileSpec(start, start + 86400, groups, matrices), created=start)
    file = LiveFile.open(path)
    for dataset in (GAUGE, COUNTER):
        file.cells[dataset].write_rows(0, np.where(np.isnan(cells), -0.0, cells))
    file.commit()
    file.close()


def test_an_ost_is_added(browser, site):
    opened(browser, site)
    grown = site.file.with_name("grown")
    made(grown, START, (*COLUMNS, "OST0002"), np.column_stack((values(), np.full(ROWS, 9.0))))
    grown.replace(site.file)
    publish(site, 0, 12)
    names = "return [...document.querySelectorAll('#labels span')].map((one) => one.textContent)"
    wait(lambda: browser.execute_script(names) == [*COLUMNS, "OST0002"], "the new OST has no row")
    assert len(colours(browser, (200, 3), columns=4)[0]) == 1
    check(browser, site, columns=(*COLUMNS, "OST0002"))


def test_the_day_changes(browser, web_site):
    """The page follows the present over midnight: the new day's file is made by its first window."""
    end = MIDNIGHT + 12 * STEP
    with web_site.served(clock=f"{end}@0x0"):
        opened(browser, web_site, where=f"?system=fs&dataset={GAUGE}&start={end - 252 * STEP}&end={end}")
        (blank,) = colours(browser, (251, 1))
        assert blank == ["255,255,255"]
        made(web_site.file.parent.parent / "2018-01-30" / "fs.hdf5", MIDNIGHT, COLUMNS, np.full((12, len(COLUMNS)), 5.0))
        publish(web_site, 86400 // STEP, 86400 // STEP + 12)
        wait(lambda: len(colours(browser, (241, 1))[0]) == 1 and colours(browser, (241, 1))[0] != blank, "the new day is not shown")
        check(browser, web_site, days=(DAY, "2018-01-30"), first=86400 // STEP - 240, due=MIDNIGHT)
        systems = json.loads(web_site.get("/api/v1/systems").body)
        assert systems["systems"][0]["day"] == "2018-01-30"
        assert faults(browser) == []


def test_planted_gaps_are_hatched_and_then_filled_and_a_lost_hour_is_red_and_names_its_reason(browser, site):
    opened(browser, site)
    check(browser, site)
    hatched, red = colours(browser, (sum(FAILED) // 2, 1), (sum(LOST) // 2, 1))
    assert (hatched, red) == (["110,110,110", "215,215,215"], ["200,16,46", "255,255,255"])
    point(browser, sum(LOST) / 2)
    wait(lambda: text(browser, "readout").endswith(": lost (lost: the source deleted it)"), "the reason is not shown")
    point(browser, sum(FAILED) / 2)
    wait(lambda: text(browser, "readout").endswith(": missing (failed: no answer)"), "the reason is not shown")
    wait(lambda: text(browser, "state").startswith(("live", "no messages")), "the page does not follow the events")
    heal(site, FAILED, 7.0)
    wait(lambda: is_healed(browser), "the gap is not filled")
    check(browser, site)


def point(browser, row):
    """Move the mouse to a row of the target in the middle."""
    canvas = browser.find_element(By.ID, "picture")
    browser.execute_script("arguments[0].scrollIntoView()", canvas)
    place = (row / (ROWS + 12) - 0.5) * canvas.rect["width"]
    webdriver.ActionChains(browser).move_to_element_with_offset(canvas, int(place), 0).perform()


def test_a_pixel_that_is_wrong_is_found(browser, site):
    """The comparison itself: one cell of the file is changed without the page."""
    opened(browser, site)
    cells = values()
    cells[200, 1] *= 3
    site.write(cells)
    with pytest.raises(AssertionError, match=r"\(200, 1, "):
        check(browser, site)


def requests(browser):
    """The starts and widths of the pictures that were asked for."""
    script = "return performance.getEntriesByType('resource').map(({name}) => name).filter((name) => name.includes('/matrix'))"
    found = [parse_qs(urlsplit(one).query) for one in browser.execute_script(script)]
    return [(int(one["start"][0]), int(one["width"][0])) for one in found]


def test_of_what_changes_the_pixels_alone_are_fetched(browser, site):
    opened(browser, site)
    publish(site, 0, 12)
    wait(lambda: text(browser, "state").startswith("live"), "the page does not follow the feed")
    before = len(requests(browser))
    heal(site, FAILED, 7.0)
    wait(lambda: is_healed(browser), "the gap is not filled")
    assert (START + FAILED[0] * STEP, FAILED[1] - FAILED[0]) in requests(browser)[before:]
    check(browser, site)


def shown_span(browser):
    """The first row of the picture, and how many it has, by its title."""
    begin, end = (
        calendar.timegm(time.strptime(one, "%Y-%m-%d %H:%M:%S")) for one in re.findall(r"[0-9-]{10} [0-9:]{8}", text(browser, "title"))
    )
    return (begin - START) // STEP, (end - begin) // STEP


def test_a_page_that_follows_the_present_moves_on_with_what_is_stored(browser, web_site):
    """The feed's first message lets the page load everything again, by a time that is older than the new rows: it does not go back."""
    with web_site.served():
        opened(browser, web_site, where=f"?system=fs&dataset={GAUGE}&live=1200")
        (before, rows), loaded = shown_span(browser), loads(browser)
        assert rows == 240
        check_cells(browser, web_site, first=before, rows=rows, until=ROWS)
        web_site.write(np.vstack((values(), np.full((12, len(COLUMNS)), 5.0))))
        with Ledger.open(web_site.config.archive.ledger) as ledger:
            web_site.store(ledger, ROWS, ROWS + 12)
        publish(web_site, ROWS, ROWS + 12)
        wait(lambda: is_shown(browser, ROWS + 11), "the new window is not drawn")
        wait(lambda: loads(browser) > loaded, "the picture is not loaded again")
        first, rows = shown_span(browser)
        assert (rows, first > before) == (240, True)
        check_cells(browser, web_site, first=first, rows=rows, until=ROWS + 12)
        assert faults(browser) == []


def loads(browser):
    """How often the whole picture and its lines were loaded."""
    return int(browser.execute_script("return document.getElementById('picture').dataset.complete"))


def is_shown(browser, row):
    """Whether a row of the first target has a value on the screen."""
    first, rows = shown_span(browser)
    (found,) = colours(browser, (row - first, 0), rows=rows) if row < first + rows else ([],)
    return len(found) == 1 and found != ["255,255,255"]


def test_a_gap_that_is_lost_becomes_red_though_no_cell_changes(browser, site):
    opened(browser, site)
    with Ledger.open(site.config.archive.ledger) as ledger:
        ledger.lost("one", window(*FAILED), "NoData", "too old", NOW)
    publish(site, 0, 12)
    wait(lambda: "200,16,46" in colours(browser, (sum(FAILED) // 2, 1))[0], "the lost window is not red")
    check(browser, site)
