"""The documents name files that are there, and link to places that are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]*)(?:#[^)\s]*)?\)", page.read_text("utf-8")):
        if target and "://" not in target:
            assert (page.parent / target).exists(), target


def test_every_test_that_a_promise_names_is_there():
    named = re.findall(r"\b(?:tests/(?:\w+/)*)?test_\w+\.py", (ROOT / "docs" / "guarantees.md").read_text("utf-8"))
    there = {str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py")}
    assert len(named) > 30
    assert [name for name in named if not any(path == name or path.endswith(f"/{name}") for path in there)] == []


def test_the_architecture_has_one_line_for_each_package():
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    rows = re.findall(r"^\| `([\w.]+)`", page, re.MULTILINE)
    packages = {f"tokiod.{path.parent.name}" for path in (ROOT / "tokiod").glob("*/__init__.py")}
    assert sorted(rows) == sorted({"tokiod", "collectors", "sinks"} | packages)
