"""docs/sensors has a page for each sensor, with each of its metrics as the code declares it; docs/sensors.md lists the pages."""

import re
from pathlib import Path

import pytest

from tokiod.agent.sensors import SENSORS

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "sensors.md").read_text()


def fields(page):
    """Return what a page states of its sensor before its first paragraph."""
    stated = page.split("\n\n")[1]
    return {name: " ".join(said.split()) for name, said in re.findall(r"^- (\w+): (.*?)(?=^- |\Z)", stated, re.MULTILINE | re.DOTALL)}


@pytest.mark.parametrize("sensor", SENSORS, ids=lambda sensor: sensor.name)
def test_the_page_of_a_sensor_has_its_rights_and_metrics(sensor):
    page = (DOCS / "sensors" / f"{sensor.name}.md").read_text()
    assert [line for line in page.splitlines() if line.startswith("| `") and line.count("|") == 6] == [
        f"| `{metric.name}` | {metric.unit} | {metric.kind} | {metric.combine} | {metric.about} |" for metric in sensor.metrics
    ]
    assert list(fields(page)) == ["Reads", "Rights", "Period"]
    (row,) = re.findall(rf"^\| \[{sensor.name}\]\(sensors/{sensor.name}\.md\) \| (.*) \| (.*) \| (.*) \|$", TEXT, re.MULTILINE)
    assert row[0] == fields(page)["Reads"]
    assert fields(page)["Rights"].startswith(row[1].partition(";")[0])
    assert fields(page)["Period"].startswith(row[2])


def test_each_page_is_of_a_sensor():
    assert {path.stem for path in (DOCS / "sensors").iterdir()} == {sensor.name for sensor in SENSORS}


def test_what_the_table_of_colmets_metrics_names_exists():
    table = TEXT.partition("## From colmet\n")[2]
    named = {name for row in re.findall(r"^\|[^|]*\|[^|]*\|([^|]*)\|$", table, re.MULTILINE) for name in re.findall(r"`([a-z_0-9]+)`", row)}
    assert named - {metric.name for sensor in SENSORS for metric in sensor.metrics} == set()
