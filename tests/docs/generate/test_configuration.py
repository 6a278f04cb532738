"""docs/configuration.md and tokiod.toml(5): each key has a sentence, its range, an example that converts, and when it takes effect."""

import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Annotated

import msgspec
import pytest

from docs.generate.configuration import entries, manual_page, page, sections
from tokiod.collector import SourceConfig
from tokiod.config import convert, plugins
from tokiod.config.sections import ArchiveConfig, BusConfig, FeedConfig, MetricsConfig, WebConfig
from tokiod.config.watched_folder import Watched
from tokiod.option import option

ROOT = Path(__file__).parents[3]
STRUCTS = [
    ArchiveConfig,
    BusConfig,
    FeedConfig,
    MetricsConfig,
    WebConfig,
    SourceConfig,
    Watched,
    *(plugins.load(kind).Config for kind in plugins.kinds()),
]
KEYS = [(struct, entry) for struct in STRUCTS for entry in entries(struct, "reload")]


def test_the_pages_are_as_make_docs_makes_them():
    assert (ROOT / "docs" / "configuration.md").read_text("utf-8") == page(), "run `make docs`"
    assert (ROOT / "docs" / "man5" / "tokiod.toml.5").read_text("utf-8") == manual_page(), "run `make docs`"


def test_every_key_is_on_the_pages():
    text, manual = page(), manual_page()
    for _, entry in KEYS:
        assert f"| `{entry.name}` |" in text
        assert f".B {entry.name.replace('-', chr(92) + '-')}\n" in manual


@pytest.mark.parametrize(("struct", "entry"), KEYS, ids=lambda one: getattr(one, "name", getattr(one, "__module__", "")))
def test_a_key_has_a_sentence_and_an_example_that_converts(struct, entry):
    assert entry.sentence.endswith(".")
    assert entry.example, "no default can serve as the example: give one"
    assert entry.values or entry.kind
    table = tomllib.loads(f"{entry.name} = {entry.example}")
    _, faults = convert.fields(table, struct, ())
    assert [fault for fault in faults if fault.key == (entry.name,)] == []


@pytest.mark.parametrize("section", sections(), ids=lambda section: section.title)
def test_no_row_repeats_another(section):
    sentences = [entry.sentence for entry in section.entries]
    assert len(set(sentences)) == len(sentences)


def test_a_key_without_a_sentence_is_an_error():
    with pytest.raises(KeyError, match=r"name has no option\(\)"):
        entries(msgspec.defstruct("Bare", [("name", str)]), "reload")


def test_bounds_and_effects_are_shown():
    (entry,) = entries(msgspec.defstruct("One", [("n", Annotated[int, option("A number.", ge=1, le=3, effect="restart")], 2)]), "reload")
    assert (entry.values, entry.default, entry.example, entry.effect) == ("1 to 3", "2", "2", "restart")


def test_the_manual_page_is_well_formed():
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z"], input=manual_page(), capture_output=True, text=True, check=True)
    assert done.stderr == ""
