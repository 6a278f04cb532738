import subprocess
import sys

import pytest

import collectors
from tokiod.config import plugins
from tokiod.errors import ConfigError

WHOLE = "class Config: pass\nclass Saved: pass\ndef live(config, site): pass\ndef saved(inputs, options, site): pass\n"


@pytest.fixture
def add(tmp_path, monkeypatch):
    """Put a module among the collectors, and nothing else there."""
    monkeypatch.setattr(collectors, "__path__", [str(tmp_path)])
    added = []

    def add(name, text):
        (tmp_path / f"{name}.py").write_text(text)
        added.append(f"collectors.{name}")

    yield add
    for name in added:
        sys.modules.pop(name, None)


def test_a_file_among_the_collectors_is_a_kind(add):
    add("zebra_snmp", WHOLE)
    add("_part_of_others", "")
    add("lustre2", WHOLE)
    assert plugins.kinds() == ["lustre2", "zebra_snmp"]
    assert plugins.load("lustre2") is plugins.load("lustre2") is sys.modules["collectors.lustre2"]
    assert "collectors.zebra_snmp" not in sys.modules


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        ("zebra_snmb", "'zebra_snmb' is no kind of source, did you mean zebra_snmp?"),
        ("mysql", "'mysql' is no kind of source: there is lustre2, zebra_snmp"),
        ("", "'' is no kind of source: there is lustre2, zebra_snmp"),
        ("os.path", "'os.path' is no kind of source: there is lustre2, zebra_snmp"),
    ],
)
def test_an_unknown_kind_is_told_with_those_there_are(add, kind, fault):
    add("zebra_snmp", WHOLE)
    add("lustre2", WHOLE)
    with pytest.raises(ConfigError) as caught:
        plugins.load(kind)
    assert caught.value.faults == [fault]


@pytest.mark.usefixtures("add")
def test_no_kind_at_all_is_told():
    with pytest.raises(ConfigError, match=r"^'absent' is no kind of source: none is installed$"):
        plugins.load("absent")


def test_a_plugin_that_cant_be_imported_says_which_and_why(add):
    add("needy", "import a_driver_nobody_has")
    add("mistyped", "def live(:")
    with pytest.raises(
        ConfigError, match=r"^collectors.needy can't be imported: ModuleNotFoundError: No module named 'a_driver_nobody_has'$"
    ):
        plugins.load("needy")
    with pytest.raises(ConfigError, match=r"^collectors.mistyped can't be imported: SyntaxError: "):
        plugins.load("mistyped")


def test_a_module_that_is_no_plugin_says_what_it_lacks(add):
    add("half", "class Config: pass\ndef live(config, site): pass\n")
    with pytest.raises(ConfigError, match=r"^collectors.half is not a plugin: it has no Saved, saved$"):
        plugins.load("half")


def test_every_kind_of_this_distribution_is_a_plugin():
    assert [plugins.load(kind).__name__ for kind in plugins.kinds()] == [f"collectors.{kind}" for kind in plugins.kinds()]


def test_listing_the_kinds_imports_none_of_them():
    code = "import sys; from tokiod.config import plugins; plugins.kinds(); print([m for m in sys.modules if m.startswith('collectors.')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
