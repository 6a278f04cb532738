"""Dashboard and alerts name metrics that there are, and every alert tells a person where to read on."""

import json
import re
from pathlib import Path

import pytest

from tokiod.metrics import catalogue
from tokiod.web.counts import METRICS

ROOT = Path(__file__).parents[2]
RULES = (ROOT / "config" / "prometheus" / "tokiod.rules.yml").read_text()
RULES_TESTS = (ROOT / "config" / "prometheus" / "tokiod.rules.test.yml").read_text()
DASHBOARD = json.loads((ROOT / "config" / "grafana" / "tokiod.json").read_text())
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()
ALERTS = {chunk.split("\n")[0].strip(): chunk for chunk in RULES.split("- alert:")[1:]}

SERIES = re.compile(r"\b(tokiod_\w+)\b(?:\{([^}]*)\})?")
LABEL = re.compile(r'(\w+)=~?"([^"]*)"')
ALL = (*catalogue.ALL, *METRICS)
ADDED = {"instance", "job", "le"}
"""Labels of Prometheus' own."""


def series():
    """Return every name that a histogram, counter or gauge has in Prometheus, with what it is."""
    names = {}
    for metric in ALL:
        suffixes = ("_bucket", "_sum", "_count") if metric.type == "histogram" else ("",)
        names |= {metric.name + suffix: metric for suffix in suffixes}
    return names


def expressions():
    """Yield every PromQL expression of ours, with where it is."""
    yield from ((name, re.search(r"expr: (.*)", chunk)[1]) for name, chunk in ALERTS.items())
    yield from ((panel["title"], target["expr"]) for panel in DASHBOARD["panels"] for target in panel["targets"])
    yield from ((variable["name"], variable["query"]["query"]) for variable in DASHBOARD["templating"]["list"][1:])
    yield from (("tests of the rules", one) for one in re.findall(r"series: '(.*?)'", RULES_TESTS))


@pytest.mark.parametrize(("where", "expression"), list(expressions()))
def test_every_metric_that_is_named_exists_with_its_labels_and_their_values(where, expression):
    known = series()
    for name, selector in SERIES.findall(expression):
        assert name in known, where
        for label, value in LABEL.findall(selector):
            given = known[name].labels.get(label)
            assert label in ADDED or label in known[name].labels, where
            assert not given or value in given or value == "$source", where


def test_what_is_grouped_by_is_a_label_of_something_in_the_expression():
    for where, expression in expressions():
        labels = ADDED | {label for name, _ in SERIES.findall(expression) for label in series()[name].labels}
        for group in re.findall(r"(?:by|without|on) \(([^)]*)\)", expression):
            assert set(re.split(r",\s*", group)) <= labels, where


def test_every_metric_is_shown_or_alerted_upon():
    """All but the few whose use is elsewhere."""
    used = {series()[name].name for _, expression in expressions() for name, _ in SERIES.findall(expression)}
    assert {metric.name for metric in ALL} - used == {
        "tokiod_backfill_jobs",
        "tokiod_backfill_left_seconds",
        "tokiod_bus_incomplete_bytes",
        "tokiod_bus_unacknowledged_bytes",
        "tokiod_process_up",
        "tokiod_ready",
        "tokiod_records_total",
        "tokiod_source_watermark_timestamp_seconds",
        "tokiod_web_ended_total",
        "tokiod_web_reloads_total",
        "tokiod_writer_cells_total",
    }


@pytest.mark.parametrize("alert", ALERTS)
def test_every_alert_says_what_it_is_how_bad_and_where_to_read_on(alert):
    chunk = ALERTS[alert]
    assert re.search(r"severity: (page|ticket)\}", chunk)
    assert re.search(r'summary: ".{20,}"', chunk)
    assert re.search(r'description: ".{20,}\."', chunk)
    assert f'runbook_url: "docs/operations.md#{alert.lower()}"' in chunk


@pytest.mark.parametrize("alert", ALERTS)
def test_every_alert_has_its_section_in_the_operations_manual(alert):
    (section,) = re.findall(rf"^### {alert}\n(.*?)(?=^#|\Z)", OPERATIONS, re.MULTILINE | re.DOTALL)
    for word in ("Means", "Look", "Do"):
        assert f"**{word}.**" in section, f"{alert} has no {word}"


@pytest.mark.parametrize("alert", ALERTS)
def test_every_alert_has_a_test_in_which_it_fires_and_one_in_which_it_does_not(alert):
    silent = re.findall(rf"^ *- \{{eval_time: \w+, alertname: {alert}\}}$", RULES_TESTS, re.MULTILINE)
    fires = re.findall(rf"^ *alertname: {alert}\n *exp_alerts:", RULES_TESTS, re.MULTILINE)
    assert (len(silent) >= 2, len(fires)) == (True, 1)


def test_the_manual_has_a_section_for_no_alert_that_there_is_not():
    assert set(re.findall(r"^### (Tokiod\w+)$", OPERATIONS, re.MULTILINE)) == set(ALERTS)


def test_every_metric_is_in_the_manual_with_what_it_means():
    for metric in ALL:
        (line,) = re.findall(rf"^\| `{metric.name}` \| (.*) \|$", OPERATIONS, re.MULTILINE)
        assert line == f"{metric.type} | {', '.join(metric.labels) or '-'} | {metric.text}", metric.name


def test_the_dashboard_has_no_panel_twice_or_over_another():
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels}) == len(panels)
    cells = [(x, y) for panel in panels for x in across(panel, "x", "w") for y in across(panel, "y", "h")]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


def across(panel, start, length):
    return range(panel["gridPos"][start], panel["gridPos"][start] + panel["gridPos"][length])
