"""What happens while a page is open: afterwards it shows what a page that is opened then shows, pixel by pixel."""

import json

import numpy as np
import pytest
from page import colours, drawn, faults, heal, publish, show, store, text, wait
from web_site import COLUMNS, COUNTER, FAILED, GAUGE, NOW, ROWS, START, STEP, values

from tokiod.bus.feed import Feed
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


def check(browser):
    """Compare what is on the screen with a page that is opened now."""
    followed = picture(browser)
    browser.refresh()
    wait(lambda: drawn(browser), "nothing is drawn")
    assert picture(browser) == followed


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
    check(browser)


def test_the_network_is_cut(browser, site):
    opened(browser, site)
    try:
        cut(browser, offline=True)
        heal(site, FAILED, 7.0)
        assert not is_healed(browser)
    finally:
        cut(browser, offline=False)
    wait(lambda: is_healed(browser), "what was stored meanwhile is still hatched")
    check(browser)


def test_the_laptop_sleeps_for_an_hour(browser, site):
    """Nothing tells the page that its connection is dead. It looks at the clock."""
    opened(browser, site)
    browser.execute_cdp_cmd("Page.setWebLifecycleState", {"state": "frozen"})
    store(site, FAILED, 7.0)  # and no event comes through
    browser.execute_cdp_cmd("Page.setWebLifecycleState", {"state": "active"})
    assert not is_healed(browser)
    browser.execute_script(AN_HOUR_LATER)
    wait(lambda: is_healed(browser), "what was stored meanwhile is still hatched")
    check(browser)


def test_the_web_process_is_killed(browser, web_site):
    with web_site.served() as process:
        opened(browser, web_site)
        process.kill()
    heal(web_site, FAILED, 7.0)
    with web_site.served():
        wait(lambda: is_healed(browser), "what was stored meanwhile is still hatched")
        check(browser)


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
    check(browser)
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
    check(browser)


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
        check(browser)
        systems = json.loads(web_site.get("/api/v1/systems").body)
        assert systems["systems"][0]["day"] == "2018-01-30"
        assert faults(browser) == []
