"""config/grafana/tokiod-data.json against a real web process: each query is answered, and each column that it selects is in the answer."""

import json
import re
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from jsonata import Jsonata
from web_site import COUNTER, EVIL, GAUGE, ROWS, START, STEP, WebSite

from tokiod.tts.schema import DATASETS
from tokiod.web.operations import OPERATIONS

DASHBOARD = json.loads((Path(__file__).parents[2] / "config" / "grafana" / "tokiod-data.json").read_text())
VARIABLES = {one["name"]: one for one in DASHBOARD["templating"]["list"]}
CHOSEN = {"system": "fs", "dataset": GAUGE, "other": COUNTER, "target": EVIL}
QUERIES = [(panel["title"], target) for panel in DASHBOARD["panels"] for target in panel["targets"]]
QUERIES += [(name, one["query"]["infinityQuery"]) for name, one in VARIABLES.items() if one["type"] == "query"]
TYPES = {"string": str, "number": (int, float, type(None)), "timestamp_epoch": int, "timestamp_epoch_s": int}
MILLISECONDS = 1000


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    made = WebSite(tmp_path_factory.mktemp("grafana"))
    with made.served():
        yield made


def filled(text):
    """Replace the variables as Grafana does."""
    text = text.replace("${__from:date:seconds}", str(START)).replace("${__to:date:seconds}", str(START + ROWS * STEP))
    for name, value in CHOSEN.items():
        text = text.replace(f"${{{name}:percentencode}}", quote(value, safe="")).replace(f"${{{name}}}", value)
    assert "${" not in text
    return text


def rows(site, query):
    """The rows that Infinity finds in an answer: by its root selector, an expression of JSONata."""
    answer = site.get(filled(query["url"]))
    assert answer.status == 200, answer.body
    data = json.loads(answer.body)
    return data if not query["root_selector"] else Jsonata(filled(query["root_selector"])).evaluate(data)


@pytest.mark.parametrize(("where", "query"), QUERIES, ids=lambda one: one if isinstance(one, str) else "")
def test_every_query_is_answered_with_rows_that_have_its_columns_and_their_types(site, where, query):
    found = rows(site, query)
    assert found, where
    for column in query["columns"]:
        values = [Jsonata(column["selector"]).evaluate(row) for row in found]
        assert all(isinstance(value, TYPES[column["type"]]) for value in values), column
        if column["type"].startswith("timestamp"):
            scale = 1 if column["type"].endswith("_s") else MILLISECONDS
            assert all(START * scale <= value < (START + ROWS * STEP) * scale or column["selector"] == "end" for value in values)


def test_every_path_and_parameter_is_of_the_api():
    known = {one.path: {parameter.name for parameter in one.parameters} for one in OPERATIONS}
    for where, query in QUERIES:
        parts = urlsplit(query["url"])
        assert set(parse_qs(parts.query, keep_blank_values=True)) <= known[parts.path], where


def test_what_is_chosen_at_first_is_in_the_schema_and_every_variable_is_used():
    assert {VARIABLES[name]["current"]["value"] for name in ("dataset", "other")} <= set(DATASETS)
    used = set(re.findall(r"\$\{(\w+)[:}]", json.dumps(DASHBOARD)))
    assert used - {"__from", "__to"} == set(VARIABLES)


def test_no_panel_is_there_twice_or_over_another():
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels}) == len(panels)
    places = [panel["gridPos"] for panel in panels]
    cells = [(x, y) for at in places for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])]
    assert (len(cells), max(x for x, _ in cells)) == (len(set(cells)), 23)
