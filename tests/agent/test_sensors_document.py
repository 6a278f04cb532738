"""docs/sensors has a page for each sensor, and what follows from the declarations is as `make docs` writes it."""

import re
from pathlib import Path

import pytest

from docs.generate.sensors import files
from tokiod.agent import link, rows, sensor
from tokiod.agent.hierarchies import FIRST_USER
from tokiod.agent.sensors import SENSORS, cpu, disk, hwmon, ipmi, jobs, lustre_jobs

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "sensors.md").read_text()


def fields(page):
    """Return what a page states of its sensor before its first paragraph."""
    stated = page.split("\n\n")[1]
    return {name: " ".join(said.split()) for name, said in re.findall(r"^- (\w+): (.*?)(?=^- |\Z)", stated, re.MULTILINE | re.DOTALL)}


def test_the_tables_and_the_list_of_metrics_are_as_make_docs_writes_them():
    written = files()
    assert [path for path, text in written.items() if path.read_text() != text] == [], "run `make docs`"
    assert [path for path, text in written.items() if path.parent.name == "sensors" and "\n| metric |" not in text] == []


@pytest.mark.parametrize("one", SENSORS, ids=lambda one: one.name)
def test_the_period_of_a_page_is_that_of_the_sensor_or_of_its_command(one):
    stated = fields((DOCS / "sensors" / f"{one.name}.md").read_text())
    if command := re.search(r"every (\d+) s, killed after (\d+) s$", stated["Reads"]):
        module = {"ipmi": ipmi, "lustre_jobs": lustre_jobs}[one.name]
        assert (int(command[1]), int(command[2])) == (module.PERIOD_SECONDS, module.DEADLINE_SECONDS)
        assert (stated["Period"], one.period) == (f"{command[1]} s", sensor.TICK_SECONDS)
    else:
        assert stated["Period"].partition(";")[0] == f"{one.period:g} s"


@pytest.mark.parametrize(
    ("page", "stated"),
    [
        ("sensors/cpu.md", f"a fall of up to {cpu.IDLE_SLACK_SECONDS:g} s is no restart"),
        ("sensors/disk.md", f"wraps after {disk._MILLISECONDS_WRAP / 86400:.1f} days"),
        ("sensors/jobs.md", f"memory.stat, io.stat, pressure and events {jobs.FULL_SECONDS:g} s\n"),
        ("sensors/jobs.md", f"`too many jobs` | {jobs.MAX_JOBS:,} run |"),
        ("sensors/jobs.md", f"is empty for {jobs.EMPTY_SECONDS:g} s has ended"),
        ("sensors/jobs.md", f"a uid of {FIRST_USER} or more"),
        ("sensors/lustre_jobs.md", f"{sensor.MAX_NAME_CHARACTERS} characters are kept"),
        ("sensors.md", f"more than {sensor.MOST['W']:,.0f} W, {sensor.MOST['1/min']:,.0f} revolutions a minute or {sensor.MOST['%']:g} %"),
        ("sensors.md", f"A temperature is between {hwmon.COLDEST:g} and {hwmon.HOTTEST:g} degC."),
        ("sensors.md", f"A period of {sensor.RARE_SECONDS:g} s begins at each ten seconds"),
        ("nodes.md", f"keepalives after {dict(link._KEEPALIVE)[link.zmq.TCP_KEEPALIVE_IDLE]} s of silence"),
        ("nodes.md", f"at a moment drawn from {link.SPREAD_SECONDS:g} s"),
        ("nodes.md", f"after {link.MIN_DELAY_SECONDS / 2:g} to {link.MIN_DELAY_SECONDS:g} s, then twice as late"),
        ("nodes.md", f"each time, up to {link.MAX_DELAY_SECONDS:g} s."),
        ("nodes.md", f"has its clock set by more than {rows.MAX_MOVED_SECONDS:g} s |"),
        ("nodes.md", f"the begin of a job may be {rows.MAX_APART_SECONDS:g} s early"),
    ],
)
def test_the_figures_of_the_documents_are_those_of_the_code(page, stated):
    assert " ".join(stated.split()) in " ".join((DOCS / page).read_text().split())


def test_each_page_is_of_a_sensor():
    assert {path.stem for path in (DOCS / "sensors").iterdir()} == {sensor.name for sensor in SENSORS}


def test_what_the_table_of_colmets_metrics_names_exists():
    table = TEXT.partition("## From colmet\n")[2]
    named = {name for row in re.findall(r"^\|[^|]*\|[^|]*\|([^|]*)\|$", table, re.MULTILINE) for name in re.findall(r"`([a-z_0-9]+)`", row)}
    assert named - {metric.name for sensor in SENSORS for metric in sensor.metrics} == set()
