"""The page for users who do not see it, not all of its colours, or have no mouse: axe-core, a keyboard, simulated eyes, print."""

import base64
import io

import axe as axe_core
import numpy as np
import pytest
from maven import Unavailable
from page import PAST, drawn, show, text, wait
from PIL import Image
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from web_site import FAILED, LOST, ROWS, WebSite

from tokiod.simulator.sources import free_port

pytestmark = pytest.mark.system

VIEWS = {"map": f"{PAST}&target=OST0000", "jobs": f"{PAST}&view=jobs", "calendar": "?view=calendar", "systems": "?view=systems",
         "sources": "?view=sources",
         "gaps": "?view=gaps", "stages": "?view=stages"}  # fmt: skip
RUN = """
const done = arguments[arguments.length - 1];
axe.run(document, {resultTypes: ["violations"]}).then(({violations}) =>
  done(violations.map(({id, impact, nodes}) => [id, impact, nodes.map(({target, failureSummary}) => `${target}: ${failureSummary}`)])));
"""
INTERACTIVE = """
const all = document.querySelectorAll("button, select, input, summary, [tabindex='0']");
return [...all].filter((one) => one.checkVisibility({visibilityProperty: true}));
"""
EYES = ["none", "protanopia", "deuteranopia", "tritanopia", "achromatopsia"]
STATES = ["value", "value, partly missing", "zero", "missing", "lost", "not yet due"]
LEAST_DIFFERENCE = 12
"""Of 255, in the mean of all pixels."""


@pytest.fixture(scope="module")
def axe():
    try:
        return axe_core.axe()
    except Unavailable as error:
        from conftest import absent  # noqa: PLC0415

        absent(str(error))


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    made = WebSite(tmp_path_factory.mktemp("web"), free_port(), '[jobs]\nusers_in = ["page"]\n')
    made.store_jobs()
    with made.served():
        yield made


@pytest.fixture
def screen(browser):
    """Emulate a screen; the next test has the usual one."""

    def emulate(width=1280, mode="light", media="screen", eyes="none"):
        features = [{"name": "prefers-color-scheme", "value": mode}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.execute_cdp_cmd("Emulation.setEmulatedVisionDeficiency", {"type": eyes})

    yield emulate
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    browser.execute_cdp_cmd("Emulation.setEmulatedVisionDeficiency", {"type": "none"})


def shown(browser, site, view):
    show(browser, site, VIEWS[view])
    wait(lambda: browser.execute_script("return document.body?.dataset.shown") == view, f"{view} is not shown")


def serious(browser, axe):
    browser.execute_script(axe)
    return [found for found in browser.execute_async_script(RUN) if found[1] in {"serious", "critical"}]


@pytest.mark.parametrize("mode", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_axe_finds_nothing_serious_in_any_view(browser, screen, site, axe, width, mode):
    screen(width, mode)
    for view in VIEWS:
        shown(browser, site, view)
        if view == "map":
            browser.find_element(By.CSS_SELECTOR, "#numbers summary").click()
        assert serious(browser, axe) == []


def test_axe_finds_a_fault_that_is_planted(browser, screen, site, axe):
    screen()
    shown(browser, site, "gaps")
    browser.execute_script("document.querySelector('main').append(document.createElement('img'))")
    assert [found[0] for found in serious(browser, axe)] == ["image-alt"]


@pytest.mark.parametrize("view", VIEWS)
def test_every_element_of_a_view_is_reached_with_the_tab_key_and_shows_that_it_has_the_focus(browser, site, view):
    shown(browser, site, view)
    wanted, reached = browser.execute_script(INTERACTIVE), []
    assert len(wanted) >= 7
    for _ in range(len(wanted) + 5):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        one = browser.switch_to.active_element
        if one.tag_name != "body":
            reached.append(one)
            assert browser.execute_script("return getComputedStyle(arguments[0]).outlineStyle", one) != "none"
    assert set(wanted) <= set(reached)


def test_a_screen_reader_hears_each_of_the_five_states_and_the_reason(browser, site):
    shown(browser, site, "map")
    wait(lambda: drawn(browser), "nothing is drawn")
    canvas = browser.find_element(By.ID, "picture")
    assert canvas.accessible_name.startswith("Heat map: arrow keys move")
    canvas.send_keys(Keys.ARROW_DOWN, Keys.ARROW_DOWN)
    heard, at = [], 0
    for row in (0, 3, LOST[0], FAILED[0], 150, 245):
        canvas.send_keys(*[Keys.ARROW_RIGHT] * (row - at))
        at = row
        heard.append(text(browser, "readout").partition(": ")[2])
    assert browser.find_element(By.ID, "readout").aria_role == "status"
    assert heard[0].startswith("value, at least ")
    line = browser.find_element(By.CSS_SELECTOR, "#lines canvas")
    wait(lambda: "; red with crosses: lost 2018-01-29 00:10:00 to " in line.accessible_name, "the line says nothing of what is lost")
    assert heard[1:] == ["zero", "lost (lost: the source deleted it)", "missing (failed: no answer)", "missing", "not yet due"]


@pytest.mark.parametrize("media", ["screen", "print"])
@pytest.mark.parametrize("eyes", EYES)
def test_the_states_differ_for_every_eye_and_in_print(browser, screen, site, eyes, media):
    """Also without any colour: in luminance and in shape."""
    screen(media=media, eyes=eyes)
    shown(browser, site, "map")
    wait(lambda: drawn(browser), "nothing is drawn")
    browser.execute_script("dispatchEvent(new Event('beforeprint'))")
    looks = dict(zip(STATES, (pixels(browser, one) for one in browser.find_elements(By.CSS_SELECTOR, "#legend canvas")), strict=True))
    values = looks.pop("value")
    looks |= {"lowest value": values[:, :8], "highest value": values[:, -8:]}
    for name, one in looks.items():
        for other, two in looks.items():
            if name < other:
                wide = min(one.shape[1], two.shape[1])
                assert np.abs(one[:, :wide] - two[:, :wide]).mean() >= LEAST_DIFFERENCE, (name, other)


@pytest.mark.parametrize("media", ["screen", "print"])
@pytest.mark.parametrize("eyes", EYES)
def test_below_the_map_too_lost_missing_and_not_due_differ_for_every_eye_and_in_print(browser, screen, site, eyes, media):
    screen(media=media, eyes=eyes)
    shown(browser, site, "map")
    wait(lambda: browser.find_element(By.ID, "picture").get_attribute("data-complete"), "the lines are not complete")
    browser.execute_script("dispatchEvent(new Event('beforeprint'))")
    whole = pixels(browser, browser.find_element(By.CSS_SELECTOR, "#lines canvas"))
    wide = whole.shape[1] / (ROWS + 12)
    looks = [whole[:, int(first * wide) + 4 :][:, : int(8 * wide)] for first in (LOST[0], FAILED[0], ROWS)]
    for number, one in enumerate(looks):
        for two in looks[:number]:
            assert np.abs(one - two).mean() >= LEAST_DIFFERENCE


def pixels(browser, element):
    """The pixels of an element as a user sees them, without its border, f8[rows, columns, 3]."""
    found = browser.execute_script(
        "arguments[0].scrollIntoView(); const {x, y, width, height} = arguments[0].getBoundingClientRect(); return [x, y, width, height]",
        element,
    )
    x, y, width, height = found
    scroll = browser.execute_script("return [scrollX, scrollY]")
    clip = {"x": x + scroll[0] + 1, "y": y + scroll[1] + 1, "width": width - 2, "height": height - 2, "scale": 1}
    answer = browser.execute_cdp_cmd("Page.captureScreenshot", {"clip": clip, "captureBeyondViewport": True})
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(answer["data"]))).convert("RGB"), float)
