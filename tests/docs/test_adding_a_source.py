"""docs/adding-a-source.md: its module is a plugin, its test class passes, and its files become a TTS file."""

import importlib
import re
import sys
from pathlib import Path

import h5py
import pytest
from click.testing import CliRunner
from collector_contract import CollectorContract

import collectors
from tokiod.cli.tokioctl import main
from tokiod.collector import Site
from tokiod.config import load as configuration
from tokiod.config import plugins
from tokiod.testing.clock import FakeClock
from tokiod.window import Calendar, Window

PAGE = (Path(__file__).parents[2] / "docs" / "adding-a-source.md").read_text("utf-8")
START = 1_517_126_400
SITE = Site(Calendar("UTC"), FakeClock(START + 7200))


def block(mark):
    (text,) = re.findall(rf"^```{mark}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return text


@pytest.fixture(scope="module", autouse=True)
def ost_files(tmp_path_factory):
    """The module of the page, where it would be put."""
    directory = tmp_path_factory.mktemp("collectors")
    (directory / "ost_files.py").write_text(block("python"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collectors, "__path__", [*collectors.__path__, str(directory)])
        names["ost_files"] = importlib.import_module("collectors.ost_files")
        yield names["ost_files"]
    sys.modules.pop("collectors.ost_files", None)


names = {"CollectorContract": CollectorContract, "START": START, "SITE": SITE, "Window": Window, "pytest": pytest}
exec(compile(block("python test"), "docs/adding-a-source.md", "exec"), names)
TestOstFiles = names["TestOstFiles"]


def test_the_module_is_a_plugin_and_its_stanza_is_right(tmp_path):
    assert "ost_files" in plugins.kinds()
    (tmp_path / "tokiod.toml").write_text(f'timezone = "UTC"\n[archive]\npath = "/a/%Y-%m-%d/{{system}}.hdf5"\n{block("toml")}')
    (source,) = configuration.load(tmp_path / "tokiod.toml").source
    assert (source.kind, source.step, source.directory) == ("ost_files", 60, "/srv/ost-counters")


def test_its_files_become_a_tts_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for ost in range(2):
        lines = [f"{START + 60 * row} {1000 * row} {10 * row + ost}\n" for row in range(61)]
        Path(f"OST000{ost}.txt").write_text("".join(lines) + "15171")
    program, *arguments = block("sh").replace("OST*.txt", "OST0000.txt OST0001.txt").split()
    done = CliRunner().invoke(main, arguments)
    assert (program, done.exit_code) == ("tokioctl", 0), done.output
    with h5py.File("day.hdf5") as file:
        assert file["datatargets/readbytes"][...].tolist() == [[1000.0, 1000.0]] * 60
        assert file["datatargets/writebytes"].attrs["columns"].tolist() == [b"OST0000", b"OST0001"]
