"""[[sink]] sections: kinds that no file of this repository names, and every mistake with its line."""

import sys
from pathlib import Path

import pytest

import sinks
from tokiod.config import effective, plugins
from tokiod.config import load as configuration
from tokiod.errors import ConfigError
from tokiod.units import Size

PLUGIN = """
from tokiod.change_sink import SinkConfig
from tokiod.units import Size

class Config(SinkConfig):
    url: str
    buffer: Size = Size(1024)

    def faults(self):
        return [] if self.url.startswith("fake://") else ["url: expected fake://HOST"]

    def warnings(self):
        return ["buffer: small"] if self.buffer < 10 else []

def sink(config, site): raise NotImplementedError
"""
HEAD = """\
timezone = "UTC"
archive.path = "/var/lib/tokiod/tts/%Y-%m-%d/{system}.hdf5"
site.names = { cscratch = "Cori scratch" }
"""
SINK = """\
[[sink]]
name = "one"
kind = "faked"
url = "fake://host"
"""


@pytest.fixture(autouse=True)
def _plugins(tmp_path, monkeypatch):
    directory = tmp_path / "sinks"
    directory.mkdir()
    (directory / "faked.py").write_text(PLUGIN)
    (directory / "broken.py").write_text("raise RuntimeError('no key')")
    monkeypatch.setattr(sinks, "__path__", [*sinks.__path__, str(directory)])
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("sinks.faked", None)


def load(text):
    Path("tokiod.toml").write_text(text)
    return configuration.load(Path("tokiod.toml"))


def faults(text):
    with pytest.raises(ConfigError) as caught:
        load(text)
    return caught.value.faults


def test_a_section_is_read_by_its_kind():
    config = load(f'{HEAD}sink_state = "/srv/sinks"\n{SINK}buffer = "2 kB"\nsystems = ["cscratch"]\n')
    (sink,) = config.sink
    assert (sink.name, sink.kind, sink.url, sink.buffer, sink.systems) == ("one", "faked", "fake://host", Size(2000), ("cscratch",))
    assert config.sink_state == Path("/srv/sinks")


def test_the_archive_is_no_kind():
    assert "faked" in plugins.SINKS.kinds()
    assert "tts" not in plugins.SINKS.kinds()


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (SINK.replace("faked", "faket"), "tokiod.toml:6: sink one: kind: unknown sink kind 'faket', did you mean faked?"),
        (SINK.replace("faked", "tts"), "tokiod.toml:6: sink one: kind: unknown sink kind 'tts'"),
        (SINK.replace("faked", "broken"), "tokiod.toml:6: sink one: kind: sink kind 'broken' of tokiod (sinks.broken) cannot be imported"),
        (SINK.replace("fake:", "http:"), "tokiod.toml:7: sink one: url: expected fake://HOST"),
        (SINK.replace("host", "me:secret@host"), "tokiod.toml:7: sink one: url: a URL must not contain a secret"),
        (f"{SINK}rate = 1\n", "tokiod.toml:8: sink one: rate: unknown key"),
        (
            f'{SINK}systems = ["cscrach"]\n',
            "tokiod.toml:8: sink one: systems: no source fills the system 'cscrach', did you mean cscratch?",
        ),
        (SINK.replace('"one"', '"a/b"'), "tokiod.toml:5: sink #1: name: expected letters, digits"),
        (SINK + SINK, "tokiod.toml:9: sink one: name: another sink has the same name (line 5)"),
        (SINK.replace("[[sink]]", "[sink]"), "tokiod.toml:4: sink: write [[sink]], with two brackets: one section for each sink"),
        ('[[sink]]\nname = "one"\nkind = "faked"\n', "tokiod.toml:4: sink one: url: missing"),
    ],
)
def test_each_mistake_is_reported_with_its_line(text, fault):
    found = faults(HEAD + text)
    assert [one for one in found if one.startswith(fault)], found
    assert "secret@" not in "".join(found)


def test_a_relative_directory_of_the_state_is_refused():
    assert faults(f'sink_state = "sinks"\n{HEAD}') == ["tokiod.toml:1: sink_state: expected an absolute path, got 'sinks'"]


def test_warnings_of_a_kind_name_the_sink():
    assert "sink one: buffer: small" in configuration.warnings(load(f'{HEAD}{SINK}buffer = "5 B"\n'))


def test_the_effective_configuration_has_the_sections():
    text = HEAD + SINK
    found = [line.partition("  #")[0].rstrip() for line in effective.lines(Path("tokiod.toml"), text, load(text))]
    assert {'name = "one"', 'kind = "faked"', 'url = "fake://host"'} <= {*found[found.index("[[sink]]") :]}
