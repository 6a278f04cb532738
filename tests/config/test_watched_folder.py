"""Stanzas with `watch`, in whole configuration files, of every kind there is."""

import msgspec
import pytest

from tokiod.config import load as config
from tokiod.config import plugins
from tokiod.config.watched_folder import Watched, watched
from tokiod.errors import ConfigError

HEAD = """\
timezone = "America/Los_Angeles"
[archive]
path = "/var/lib/tokiod/tts/%Y-%m-%d/{system}.hdf5"
"""


def stanza(name="spool", kind="lmt", system="cscratch", watch="/var/spool/lmt", **others):
    values = {"name": name, "kind": kind, "system": system, "watch": watch, **others}
    return "[[source]]\n" + "".join(f"{key} = {msgspec.json.encode(value).decode()}\n" for key, value in values.items())


@pytest.fixture
def load(tmp_path):
    def load(*stanzas):
        path = tmp_path / "tokiod.toml"
        path.write_text(HEAD + "".join(stanzas))
        return config.load(path)

    return load


def faults(load, *stanzas):
    with pytest.raises(ConfigError) as error:
        load(*stanzas)
    return [fault.partition(": ")[2] for fault in error.value.faults]


@pytest.mark.parametrize("kind", [kind for kind in plugins.kinds() if not plugins.load(kind).Saved.no_files])
def test_every_kind_can_be_watched_for_without_a_word_of_where_its_live_source_is(load, kind):
    (source,) = load(stanza(kind=kind)).source
    assert isinstance(source, Watched)
    assert (source.watch, source.polled) == ("/var/spool/lmt", False)
    assert source.step == source.options.step >= 1
    assert source.datasets() or source.tables
    assert source.options == plugins.load(kind).Saved()


def test_options_of_the_saved_form_are_keys_of_the_stanza(load):
    (source,) = load(stanza(mdt_names="host", step=60, scan="1m")).source
    assert (source.options.mdt_names, source.options.step, source.step, int(source.scan)) == ("host", 60, 60, 60)


def test_the_limits_of_counters_are_those_of_the_files_that_are_put_into_the_folder(load):
    (source,) = load(stanza() + "max_rate = { bytes = 1e9 }\n").source
    assert source.max_rates() == source.options.max_rates()
    assert source.max_rates()["datatargets/readbytes"] == 1e9


def test_keys_that_only_a_live_source_has_are_refused_like_any_other_unknown_one(load):
    (fault,) = faults(load, stanza(url="sqlite:///var/lib/lmt.sqlite3"))
    assert "url" in fault


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"watch": "spool/lmt"}, "watch: expected an absolute path, got 'spool/lmt'"),
        ({"scan": "0s"}, "scan: must be greater than zero"),
        ({"max_size": "0 B"}, "max_size: must be greater than zero"),
        ({"max_time": "0s"}, "max_time: must be greater than zero"),
        ({"step": 0}, "step: expected an integer >= 1"),
        ({"mdt_names": "mds"}, "mdt_names: expected mdt or host, got 'mds', did you mean mdt?"),
        ({"step": 7}, "steps of 7 s do not divide the days of America/Los_Angeles"),
    ],
)
def test_what_is_wrong_is_told_at_its_place(load, given, sentence):
    (fault,) = faults(load, stanza(**given))
    assert fault.startswith("source spool: ")
    assert sentence in fault


def test_a_kind_without_saved_files_can_not_be_watched_for(load):
    found = faults(load, stanza(kind="nodes", system="cluster.nodes"))
    assert found == [f"source spool: watch: {plugins.load('nodes').Saved.no_files}"]


def test_two_sources_can_not_watch_one_folder(load):
    found = faults(load, stanza(), stanza(name="other", system="escratch"))
    assert ["another source watches the same folder" in fault for fault in found] == [True]


def test_a_dataset_is_filled_from_a_folder_or_from_a_live_source(load):
    live = '[[source]]\nname = "live"\nkind = "lmt"\nsystem = "cscratch"\nurl = "sqlite:///var/lib/lmt.sqlite3"\n'
    found = faults(load, live, stanza())
    assert any("is also filled by source live" in fault for fault in found)


def test_the_stanza_of_a_kind_is_made_once():
    assert watched(plugins.load("lmt").Saved) is watched(plugins.load("lmt").Saved)
