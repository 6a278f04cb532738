"""The examples in config/ are what a person starts from: they are right, whole, and say what the code says."""

import re
import tomllib
from pathlib import Path

import pytest

from tokiod.change_sink import SinkConfig
from tokiod.collector import SourceConfig
from tokiod.config import load as configuration
from tokiod.config import plugins
from tokiod.config.sections import RETIRED_KEYS

CONFIG = Path(__file__).parents[2] / "config"
MAIN = (CONFIG / "tokiod.toml").read_text()
SITE = MAIN.partition("\n[[source]]")[0] + "\n"
SINKS = {path.stem: path.read_text() for path in sorted((CONFIG / "sinks").glob("*.toml"))}
KINDS = {path.stem: path.read_text() for path in sorted(CONFIG.glob("*.toml")) if path.stem != "tokiod"}
DEFAULT = re.compile(r"^#(?=\w+ = )", re.MULTILINE)
OTHER = re.compile(r"^# (?=\w+ = )", re.MULTILINE)
"""What a person fills in, where it is wanted: no default."""
OPTION = re.compile(r"^(?:# ?)?(\w+) = ", re.MULTILINE)


@pytest.fixture
def load(tmp_path):
    def load(text):
        path = tmp_path / "tokiod.toml"
        path.write_text(text)
        return configuration.load(path)

    return load


def test_what_the_example_comments_out_is_the_default(load):
    assert len(DEFAULT.findall(MAIN)) == 26
    assert load(DEFAULT.sub("", MAIN)) == load(MAIN)


def test_the_example_names_every_option(load):
    document, config = tomllib.loads(OTHER.sub("", DEFAULT.sub("", MAIN))), load(MAIN)
    assert set(document) == set(config.__struct_fields__) - {"sink", "host"}
    for table in ("archive", "bus", "feed", "hub", "metrics", "jobs"):
        assert set(document[table]) == set(getattr(config, table).__struct_fields__) - {*(RETIRED_KEYS if table == "bus" else ())}
    assert set(document["source"][0]) >= set(SourceConfig.__struct_fields__)


def test_every_kind_has_a_stanza_and_every_stanza_a_kind():
    assert list(KINDS) == plugins.kinds()


@pytest.mark.parametrize("kind", KINDS)
def test_a_stanza_is_fine_and_what_it_comments_out_is_the_default(load, kind):
    (source,) = load(SITE + KINDS[kind]).source
    assert source.kind == kind
    assert load(SITE + DEFAULT.sub("", KINDS[kind])).source == (source,)


@pytest.mark.parametrize("kind", KINDS)
def test_a_stanza_names_every_option_of_its_kind(kind):
    fields = set(plugins.load(kind).Config.__struct_fields__)
    assert set(OPTION.findall(KINDS[kind])) | set(SourceConfig.__struct_fields__) == fields


def test_every_kind_of_sink_has_a_stanza_and_every_stanza_a_kind():
    assert list(SINKS) == plugins.SINKS.kinds()


@pytest.mark.parametrize("kind", SINKS)
def test_a_stanza_of_a_sink_is_fine_names_every_option_and_what_it_comments_out_is_the_default(load, kind):
    (sink,) = load(SITE + SINKS[kind]).sink
    assert sink.kind == kind
    assert load(SITE + DEFAULT.sub("", SINKS[kind])).sink == (sink,)
    fields = set(plugins.load_sink(kind).Config.__struct_fields__)
    assert set(OPTION.findall(SINKS[kind])) | set(SinkConfig.__struct_fields__) == fields
