"""The OpenAPI document: valid, as the file in docs, and what the process answers over a socket, error by error."""

import json
import re
from pathlib import Path
from urllib.parse import quote, urlencode

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openapi_spec_validator import OpenAPIV31SpecValidator
from web_site import COLUMNS, COUNTER, GAUGE, NOW, ROWS, START, STEP, WebSite

from tokiod.web.openapi import document, encoded
from tokiod.web.operations import OPERATIONS

ROOT = Path(__file__).parents[2]
DOCUMENT = document()
SPAN = {"start": str(START), "end": str(START + ROWS * STEP)}
PATHS = [one.path for one in OPERATIONS if one.name != "events"]
REQUESTS = {
    "system": ["fs", "no", "", "<img src=x onerror=alert(1)>"],
    "dataset": [GAUGE, COUNTER, f"{GAUGE},{GAUGE}", f"{GAUGE},{COUNTER}", "datatargets/no", "../../etc/passwd", "a/b" * 100],
    "start": [str(START), "-20m", "2018-01-29T00:00:00Z", "-3y", "now", "0", "-99w", "1e9", "yesterday"],
    "end": [str(NOW), "now", "-1s", "2018-01-29T00:10:00+00:00", "9" * 13, ""],
    "width": ["1", "720", "4096", "4097", "0", "x", "-1", ""],
    "how": ["max", "sum", ""],
    "column": [*COLUMNS, "no", ""],
    "across": ["max", "min", ""],
    "source": ["one", "no", ""],
    "by": ["bytes", "open", "opne", "read write", ""],
    "of": ["job", "user", "target", ""],
    "target": ["MDT0002", "fs-*", "no", ""],
    "limit": ["1", "500", "501", "x", ""],
    "other": ["1"],
}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    made = WebSite(tmp_path_factory.mktemp("openapi"))
    made.store_jobs()
    with made.served():
        yield made


def described(path, status):
    """The schema and content type of an answer."""
    ((kind, content),) = DOCUMENT["paths"][path]["get"]["responses"][str(status)]["content"].items()
    return content["schema"] | {"components": DOCUMENT["components"]}, kind


def check(path, answer):
    """Compare an answer with its description; return its data."""
    schema, kind = described(path, answer.status)
    assert answer.headers["Content-Type"].partition(";")[0] == kind
    if kind != "application/json":
        return answer.body
    data = json.loads(answer.body)
    jsonschema.validate(data, schema, jsonschema.Draft202012Validator)
    return data


def fits(path, query):
    """Whether all parameters are as described; an empty one is as none."""
    known = {one["name"]: one for one in DOCUMENT["paths"][path]["get"]["parameters"] if one["in"] == "query"}
    for name, value in query.items():
        schema = known.get(name, {}).get("schema", False)
        typed = int(value) if schema and schema["type"] == "integer" and re.fullmatch("-?[0-9]+", value) else value
        if name not in known or (value and not jsonschema.Draft202012Validator(schema).is_valid(typed)):
            return False
    return all(query.get(name) for name, one in known.items() if one["required"])


def test_the_document_is_valid_and_is_the_file():
    OpenAPIV31SpecValidator(DOCUMENT).validate()
    assert (ROOT / "docs" / "web" / "openapi.json").read_bytes() == encoded(), "run `make docs`"


def test_the_document_is_served(site):
    assert json.loads(site.get("/api/v1/openapi.json").body) == DOCUMENT


def test_every_path_of_the_document_is_in_the_manual_with_its_parameters_and_each_error_with_its_status():
    text = (ROOT / "docs" / "web.md").read_text()
    for operation in OPERATIONS:
        (line,) = re.findall(rf"^\| `{operation.path}` \|(.*?)\|", text, re.MULTILINE)
        assert set(re.findall(r"`(\w+)`", line)) == {one.name for one in operation.parameters}
    errors = {(error.name, error.status) for operation in OPERATIONS for error in operation.all_errors} | {("not_found", 404)}
    rows = re.findall(r"^\| (\d{3}) \| (.*) \|$", text, re.MULTILINE)
    assert {(name, int(status)) for status, names in rows for name in re.findall(r"`([a-z]+_?\w*)`", names)} == errors


@pytest.mark.parametrize("path", PATHS)
def test_what_a_path_needs_is_enough_and_the_answer_is_as_described(site, path):
    needed = {"system": "fs", "dataset": GAUGE} | SPAN
    names = [one["name"] for one in DOCUMENT["paths"][path]["get"]["parameters"] if one["required"]]
    answer = site.get(f"{path}?{urlencode({name: needed[name] for name in names})}")
    assert answer.status == 200
    check(path, answer)


@settings(max_examples=150, deadline=None)
@given(path=st.sampled_from(PATHS), query=st.fixed_dictionaries({}, optional={k: st.sampled_from(v) for k, v in REQUESTS.items()}))
def test_any_request_gets_a_described_answer_and_one_as_described_no_fault_of_its_parameters(site, path, query):
    answer = site.get(f"{path}?{urlencode(query, quote_via=quote)}", X_Forwarded_For=f"{hash((path, *query.items()))}")
    data = check(path, answer)
    if not fits(path, query):
        assert (answer.status, data["error"]["parameter"] in {*query, "system", "dataset", "start"}) == (400, True)
    elif answer.status == 400:
        assert data["error"]["type"] in {"span_too_long", "too_many_cells"} or data["error"]["parameter"] in {"start", "end"}


def test_an_answer_that_the_client_has_is_described_too(site):
    path = f"/api/v1/matrix?{urlencode({'system': 'fs', 'dataset': GAUGE} | SPAN)}"
    tag = site.get(path).headers["ETag"]
    answer = site.get(path, If_None_Match=tag)
    assert str(answer.status) in DOCUMENT["paths"]["/api/v1/matrix"]["get"]["responses"]
    assert answer.status == 304
