"""docs/sensors.md has a section for each sensor, with each of its metrics as the code declares it."""

import re
from pathlib import Path

import pytest

from tokiod.agent.sensors import SENSORS

TEXT = (Path(__file__).parents[2] / "docs" / "sensors.md").read_text()


@pytest.mark.parametrize("sensor", SENSORS, ids=lambda sensor: sensor.name)
def test_the_section_of_a_sensor_has_its_rights_and_metrics(sensor):
    section = re.search(rf"^## {sensor.name}\n(.*?)(?=^## )", TEXT, re.MULTILINE | re.DOTALL)[1]
    assert [line for line in section.splitlines() if line.startswith("| `") and line.count("|") == 6] == [
        f"| `{metric.name}` | {metric.unit} | {metric.kind} | {metric.combine} | {metric.about} |" for metric in sensor.metrics
    ]
    assert re.findall(r"^- (\w+): .", section, re.MULTILINE) == ["Reads", "Rights", "Period"]


def test_what_the_table_of_colmets_metrics_names_exists():
    table = TEXT.partition("## From colmet\n")[2]
    named = {name for row in re.findall(r"^\|[^|]*\|[^|]*\|([^|]*)\|$", table, re.MULTILINE) for name in re.findall(r"`([a-z_0-9]+)`", row)}
    assert named - {metric.name for sensor in SENSORS for metric in sensor.metrics} == set()
