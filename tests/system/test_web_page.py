"""The page in a real Chromium: what is on the screen is what the files hold."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from threading import Event

import pytest
from msgspec.structs import replace
from page import END, PAST, colours, drawn, faults, heal, line_colours, publish, show, text, wait
from recorded_stages import save, work
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select
from waiting import wait_for
from web_site import COLUMNS, COUNTER, DAY, EVIL, FAILED, GAUGE, LOST, NOW, ROWS, START, Client, WebSite, window

from tokiod.ledger.ledger import Ledger
from tokiod.simulator.sources import free_port
from tokiod.web.client_limits import MAX_STREAMS

pytestmark = pytest.mark.system

PLACES = """
return [...document.querySelectorAll("#picture, #lines canvas")].map((one) => {
  const {left, width} = one.getBoundingClientRect();
  return [left, width];
});
"""
JOB_ROWS = """
return [...document.querySelectorAll("#jobtable tbody tr")].map((row) => [...row.cells].map((cell) => cell.innerText));
"""
AXIS_COLOURS = """
const canvas = document.getElementById("axis"), {width, height} = canvas;
const {data} = canvas.getContext("2d").getImageData(0, 0, width, height), found = new Set();
for (let at = 0; at < data.length; at += 4) found.add(data.slice(at, at + 3).join());
return [...found];
"""


def test_value_zero_missing_lost_and_not_due_differ_on_the_screen_and_not_by_colour_alone(browser, web_site):
    with web_site.served():
        show(browser, web_site)
        wait(lambda: drawn(browser), "nothing is drawn")
        value, zero, missing, failed, lost, blank = colours(browser, (200, 1), (3, 1), (150, 1), (135, 1), (125, 1), (245, 1))
        assert faults(browser) == []
    assert (len(value), len(blank)) == (1, 1)
    assert {"71,1,85"} <= set(zero) <= {"71,1,85", "200,200,200"}  # dots, of which a small cell may have none
    assert blank == ["255,255,255"]
    assert "200,16,46" in lost
    assert "255,255,255" in lost
    assert missing == failed == ["110,110,110", "215,215,215"]
    assert value not in (zero, blank)


def test_the_readout_names_target_time_state_and_the_ledgers_reason_and_a_name_is_never_markup(browser, web_site):
    with web_site.served():
        show(browser, web_site)
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


def test_every_element_works_by_keyboard_and_the_url_holds_the_view(browser, web_site):
    with web_site.served():
        show(browser, web_site)
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
        show(browser, web_site, f"{PAST}&target=OST9999")
        wait(lambda: text(browser, "error") == f"{GAUGE} has no column OST9999 in the span", "an unknown target is not reported")


def test_systems_and_gaps_show_states_and_reasons_and_the_map_has_a_table_of_its_numbers(browser, web_site):
    with web_site.served():
        show(browser, web_site)
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


def test_a_day_of_the_calendar_says_how_much_of_it_is_stored_and_opens_it(browser, web_site):
    with web_site.served():
        show(browser, web_site, "?view=calendar")
        wait(lambda: browser.find_elements(By.CSS_SELECTOR, "button.day.lost"), "no day with lost data")
        (day,) = browser.find_elements(By.CSS_SELECTOR, "button.day.lost")
        assert day.accessible_name == f"29 90 % stored, 60 s lost, 60 s missing; {DAY}"
        day.click()
        wait(lambda: drawn(browser) and f"start={START}&end={START + 86400}" in browser.current_url, "the day is not opened")
        assert f"{DAY} 00:00:00 to" in text(browser, "title")
        assert faults(browser) == []


def test_below_the_map_are_the_sum_and_the_busiest_server_on_its_time_axis(browser, web_site):
    with web_site.served():
        show(browser, web_site, PAST.replace(GAUGE, COUNTER))
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


CLEAR = ["0,0,0,0"]
ASKED = "return performance.getEntriesByType('resource').filter(({name, responseEnd}) => name.includes(arguments[0]) && responseEnd).length"


def lines_of(browser, count=2):
    """The canvases of the lines, once they are drawn."""
    wait(lambda: len(browser.find_elements(By.CSS_SELECTOR, "#lines canvas")) == count, "no lines")
    wait(lambda: browser.find_element(By.ID, "picture").get_attribute("data-complete"), "the lines are not complete")
    return browser.find_elements(By.CSS_SELECTOR, "#lines canvas")


def opaque(found):
    return [f"{one},255" for one in found]


def test_lines_show_what_is_lost_missing_and_not_due_as_the_map_does_and_name_when_and_why(browser, web_site):
    with web_site.served():
        show(browser, web_site, f"{PAST}&target=OST0000")
        one, largest = lines_of(browser)
        lost, missing = (opaque(found) for found in colours(browser, (125, 1), (138, 1)))
        assert lost != missing
        for line in (one, largest):
            assert line_colours(browser, line, 125) == [lost, lost]
            assert line_colours(browser, line, 138) == [missing, missing]
            assert line_colours(browser, line, 245) == [CLEAR, CLEAR]
            above, foot = line_colours(browser, line, 200)
            assert (len(above) > 1, foot) == (True, CLEAR)
        # A cell of the target alone: where others have values, the foot is hatched below the line.
        assert line_colours(browser, one, 150) == [missing, missing]
        above, foot = line_colours(browser, largest, 150)
        assert (above == missing, foot) == (False, missing)
        words = "; hatched: cells are missing; red with crosses: lost"
        for line, caption in zip((one, largest), browser.find_elements(By.CSS_SELECTOR, "#lines figcaption"), strict=True):
            assert caption.text.endswith(words)
            assert line.accessible_name == f"{caption.text} {DAY} 00:10:00 to {DAY} 00:11:00 (the source deleted it)"
        assert faults(browser) == []


def test_lines_follow_what_is_healed_and_what_is_lost_since_they_were_drawn(browser, web_site):
    with web_site.served():
        wait(lambda: bool(web_site.feed.poll() or web_site.feed.subscriptions), "the feed has no subscriber")
        show(browser, web_site)
        (line,) = lines_of(browser, 1)
        _, red = line_colours(browser, line, 125)
        with Ledger.open(web_site.config.archive.ledger) as ledger:
            ledger.lost("one", window(*FAILED), "NoData", "too old", NOW)
        publish(web_site, 0, 12)
        wait(lambda: line_colours(browser, line, 138)[1] == red, "the lost window is not red")
        assert line.accessible_name.endswith("(the source deleted it) and 1 more")
        heal(web_site, LOST, 9.0)
        wait(lambda: line_colours(browser, line, 125)[1] == CLEAR, "what was lost is still red")
        assert "the source deleted it" not in line.accessible_name
        assert faults(browser) == []


def test_the_reason_of_a_gap_stays_after_a_part_of_it_was_fetched_again(browser, web_site):
    with web_site.served():
        wait(lambda: bool(web_site.feed.poll() or web_site.feed.subscriptions), "the feed has no subscriber")
        show(browser, web_site)
        (line,) = lines_of(browser, 1)
        publish(web_site, 0, 12)
        wait(lambda: text(browser, "state").startswith("live"), "the page does not follow the feed")
        (line,) = lines_of(browser, 1)
        publish(web_site, LOST[0] + 6, LOST[1])
        asked = f"start={START + (LOST[0] + 6) * 5}&"
        wait(lambda: browser.execute_script(ASKED, asked) == 2, "the part is not fetched again")
        picture = browser.find_element(By.ID, "picture")
        picture.send_keys(*[Keys.ARROW_RIGHT] * (LOST[0] + 2))
        wait(lambda: text(browser, "readout").endswith(": lost (lost: the source deleted it)"), "the reason is not shown")
        words = f"lost {DAY} 00:10:00 to {DAY} 00:11:00 (the source deleted it)"
        wait(lambda: words in line.accessible_name, "the line has another reason")


def test_a_healed_gap_appears_by_itself_also_after_the_web_process_was_killed(browser, web_site):
    with web_site.served():
        wait(lambda: bool(web_site.feed.poll() or web_site.feed.subscriptions), "the feed has no subscriber")
        show(browser, web_site)
        wait(lambda: drawn(browser), "nothing is drawn")
        heal(web_site, FAILED, 7.0)
        wait(lambda: len(colours(browser, (135, 1))[0]) == 1, "the healed gap is still hatched")
    with web_site.served():
        wait(lambda: bool(web_site.feed.poll()), "the feed has no subscriber")
        wait(lambda: text(browser, "state").startswith(("live", "no messages")), "the page did not come back")
        heal(web_site, LOST, 9.0)
        wait(lambda: "200,16,46" not in colours(browser, (125, 1))[0], "what was lost is still red")


def job_rows(browser):
    return browser.execute_script(JOB_ROWS)


def test_jobs_of_the_span_are_sorted_by_what_is_chosen_and_lead_to_their_time_on_the_map(browser, web_site):
    web_site.store_jobs()
    with web_site.served():
        show(browser, web_site, f"{PAST}&view=jobs")
        wait(lambda: job_rows(browser), "no jobs")
        assert job_rows(browser) == [
            ["4711", "2", "0 B/s", "102 GiB/s", "0.2 /s", "92.3 %", "OST0000 100 %"],
            ["#c", "-", "8.53 GiB/s", "0 B/s", "0 /s", "7.7 %", "OST0000 100 %"],
        ]
        assert "1000" not in text(browser, "jobs")
        Select(browser.find_element(By.ID, "jobby")).select_by_visible_text("open")
        wait(lambda: job_rows(browser)[0][0] == "#b", "not sorted by another operation")
        assert "by=open" in browser.current_url
        headings = [one.text for one in browser.find_elements(By.CSS_SELECTOR, "#jobtable th")]
        assert headings == ["job", "nodes", "read", "written", "metadata", "open", "share", "targets"]
        (job,) = browser.find_elements(By.XPATH, "//table[@id='jobtable']//button[text()='4711']")
        assert job.accessible_name == f"4711: show {DAY} 00:00:01 to {DAY} 00:01:06 on the map"
        job.send_keys(Keys.ENTER)
        wait(lambda: drawn(browser) and f"start={START + 1 - 600}&end={START + 66 + 600}" in browser.current_url, "the map is not shown")
        assert "by=" not in browser.current_url
        browser.back()
        wait(lambda: job_rows(browser), "the list does not come back")
        assert faults(browser) == []


def test_where_users_are_shown_a_list_of_them_can_be_chosen_and_a_job_id_is_never_markup(browser, tmp_path):
    site = WebSite(tmp_path, free_port(), '[jobs]\nusers_in = ["page"]\n')
    site.store_jobs()
    with site.served():
        show(browser, site, f"{PAST}&view=jobs&by=open")
        wait(lambda: len(job_rows(browser)) == 2, "no jobs")
        assert job_rows(browser)[0][:2] == [EVIL, "1001"]
        assert browser.find_elements(By.TAG_NAME, "img") == []
        Select(browser.find_element(By.ID, "jobof")).select_by_visible_text("users")
        wait(lambda: [row[0] for row in job_rows(browser)] == ["1001", "1000"], "no users")
        assert "of=user" in browser.current_url
        assert faults(browser) == []


def test_a_system_without_a_job_table_says_what_fills_one(browser, web_site):
    with web_site.served():
        show(browser, web_site, f"{PAST}&view=jobs")
        wait(lambda: "a source of kind lustre_jobstats fills it" in text(browser, "jobspan"), "no reason")
        assert not job_rows(browser)
        assert not browser.find_element(By.ID, "jobsort").is_displayed()


def test_without_stages_or_datasets_nothing_is_offered_that_there_is_not(browser, web_site):
    web_site.file.unlink()
    with web_site.served():
        show(browser, web_site, "?view=stages")
        wait(lambda: text(browser, "stagespan").startswith("No window or file ended"), "no sentence")
        assert text(browser, "stageread") == ""
        show(browser, web_site, "?view=systems")
        wait(lambda: text(browser, "systemtable").endswith(" -"), "there are datasets")
        show(browser, web_site)
        wait(lambda: text(browser, "error") == "The archive has no file of this system yet.", "no sentence")
        assert [browser.find_element(By.ID, name).is_displayed() for name in ("system", "dataset", "search")] == [True, False, False]


def test_pages_that_the_browser_keeps_for_going_back_hold_no_connection(browser, web_site):
    """A browser allows six connections to a host, and each page has one for the events."""
    with web_site.served():
        for _ in range(8):
            browser.get("about:blank")
            show(browser, web_site)
            wait(lambda: drawn(browser), "nothing is drawn")
        wait(lambda: "tokiod_web_viewers 1.0\n" in web_site.get("/metrics").body.decode(), "pages that are gone still follow the events")


def test_the_stages_of_windows_are_bars_with_letters_and_their_seconds_are_in_words(browser, web_site):
    wall = (int(time.time()) - 100) * 10**9
    collectors = [
        work(1, "collection", 1, 2, 3, 6, 7, name="one"),
        work(2, "submission", 7, 8, 20, name="one"),
        work(3, "collection", 61, 62, 63, None, None, name="one", outcome="open", window=1),
    ]
    save(web_site.config.stages, "collectors", [replace(one, wall=wall) for one in collectors])
    with web_site.served():
        show(browser, web_site, "?view=stages&since=600&source=one")
        wait(lambda: len(browser.find_elements(By.CSS_SELECTOR, "#bars tbody tr")) == 2, "no bars")
        bar, unfinished = browser.find_elements(By.CSS_SELECTOR, "#bars .bar")
        assert bar.accessible_name == "due 1.00 s, ask 1.00 s, fetch 3.00 s, parse 1.00 s, submit 1.00 s, bus 12.0 s"
        assert unfinished.accessible_name.endswith("fetch 2.00 s, not over") or ", not over" in unfinished.accessible_name
        widths = browser.execute_script("return [...arguments[0].children].map((one) => one.getBoundingClientRect().width)", bar)
        assert widths == pytest.approx([widths[0], widths[0], 3 * widths[0], widths[0], widths[0], 12 * widths[0]], rel=0.02)
        assert [one.get_attribute("textContent") for one in bar.find_elements(By.CLASS_NAME, "stage")] == list("dafpub")
        browser.find_element(By.CSS_SELECTOR, "#bars button").send_keys(Keys.ENTER)
        wait(lambda: text(browser, "stageread").endswith("bus 12.0 s; 19.0 s in all, stored"), "the stages are not in words")
        rows = [row.text.split() for row in browser.find_elements(By.CSS_SELECTOR, "#stagetable tbody tr")]
        assert ["bus", "1", "12.0", "s", "12.0", "s", "12.0", "s"] in [row[:8] for row in rows]
        assert [one.text for one in browser.find_elements(By.CSS_SELECTOR, "#stagekey li > span:last-child")] == [
            "due",
            "ask",
            "fetch",
            "parse",
            "submit",
            "bus",
        ]
        browser.find_element(By.CSS_SELECTOR, "[data-since='600'] + button").click()
        wait(lambda: "since=3600" in browser.current_url, "the URL does not hold the time")
        assert "source=one" in browser.current_url
        assert faults(browser) == []


def test_the_times_of_the_axis_are_round_and_stand_where_they_are(browser, web_site):
    with web_site.served():
        show(browser, web_site)
        wait(lambda: drawn(browser), "nothing is drawn")
        found = browser.execute_script(
            "return [...document.querySelectorAll('#times span')].map((one) => [one.textContent, one.style.left])"
        )
    assert [word for word, _ in found] == ["01-29", "00:05", "00:10", "00:15", "00:20"]
    assert [float(left.rstrip("%")) for _, left in found] == pytest.approx([100 * 300 * n / (END - START) for n in range(5)], abs=0.001)


def test_a_damaged_file_and_a_dead_server_are_named(browser, web_site):
    with web_site.served():
        show(browser, web_site)
        wait(lambda: drawn(browser), "nothing is drawn")
    wait(lambda: text(browser, "state").startswith("no answer from tokiod web"), "a dead server is not named")
    web_site.file.write_bytes(b"no HDF5")
    with web_site.served():
        show(browser, web_site)
        wait(lambda: "HDF5 can't open it" in text(browser, "error"), "the damaged file is not named")


def test_a_page_without_a_stream_names_the_reason_and_follows_the_events_once_it_may(browser, web_site):
    with web_site.served(), ExitStack() as others:
        for _ in range(MAX_STREAMS):
            others.enter_context(closing(Client(web_site)))
        show(browser, web_site)
        wait(lambda: drawn(browser), "nothing is drawn")
        words = f"not live: {MAX_STREAMS} connections of this client follow the events already; try again"
        wait(lambda: text(browser, "state").startswith(words), "the page does not name the limit")
        others.close()
        wait_for(lambda: text(browser, "state").startswith(("live", "no messages")), 60, "the page does not follow the events")
        heal(web_site, FAILED, 7.0)
        wait(lambda: len(colours(browser, (135, 1))[0]) == 1, "the healed gap is still hatched")


def test_a_page_whose_address_has_no_requests_left_waits_for_its_turn(browser, web_site):
    """Another page of the address sends as many as it can, until this one is refused."""
    refused, is_over = Event(), Event()

    def flood():
        while not is_over.is_set():
            # A request for nothing costs the server little: on a busy machine it answers fewer than it would have to refuse.
            if web_site.get("/api/v1/systems?nothing=1").status == 429:
                refused.set()

    with web_site.served(), ThreadPoolExecutor(2) as clients:
        floods = [clients.submit(flood) for _ in range(2)]
        try:
            assert refused.wait(60)
            show(browser, web_site)
            browser.execute_script("window.isTheSame = true")
            time.sleep(1)
        finally:
            is_over.set()
        wait(lambda: drawn(browser), "nothing is drawn")
        assert browser.execute_script("return window.isTheSame")
        assert text(browser, "error") == ""
        assert [one.result() for one in floods] == [None] * 2
