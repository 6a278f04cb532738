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
        ("zebra_snmb", "unknown source kind 'zebra_snmb', did you mean zebra_snmp?"),
        ("mysql", "unknown source kind 'mysql'; known kinds: lustre2, zebra_snmp"),
        ("", "unknown source kind ''; known kinds: lustre2, zebra_snmp"),
        ("os.path", "unknown source kind 'os.path'; known kinds: lustre2, zebra_snmp"),
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
    with pytest.raises(ConfigError, match=r"^unknown source kind 'absent'; no kind is installed$"):
        plugins.load("absent")


def test_a_plugin_that_cant_be_imported_says_which_and_why(add):
    add("needy", "import a_missing_driver")
    add("mistyped", "def live(:")
    with pytest.raises(
        ConfigError,
        match=r"^source kind 'needy' of tokiod \(collectors.needy\) cannot be imported: ModuleNotFoundError: No module named 'a_mis",
    ):
        plugins.load("needy")
    with pytest.raises(ConfigError, match=r"^source kind 'mistyped' of tokiod \(collectors.mistyped\) cannot be imported: SyntaxError: "):
        plugins.load("mistyped")


def test_a_module_that_is_no_plugin_says_what_it_lacks(add):
    add("half", "class Config: pass\ndef live(config, site): pass\n")
    with pytest.raises(ConfigError, match=r"^source kind 'half' of tokiod \(collectors.half\) is not a plugin: it has no Saved, saved$"):
        plugins.load("half")


def test_every_kind_of_this_distribution_is_a_plugin():
    assert [plugins.load(kind).__name__ for kind in plugins.kinds()] == [f"collectors.{kind}" for kind in plugins.kinds()]


def test_listing_the_kinds_imports_none_of_them():
    code = "import sys; from tokiod.config import plugins; plugins.kinds(); print([m for m in sys.modules if m.startswith('collectors.')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


# ---- kinds of other distributions


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Put the metadata and the modules of a distribution on sys.path, as pip does."""
    place = tmp_path / "site-packages"
    place.mkdir()
    monkeypatch.syspath_prepend(str(place))
    added = []

    def install(name, entry_points, **modules):
        metadata = place / f"{name.replace('-', '_')}-1.2.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
        (metadata / "entry_points.txt").write_text("[tokiod.collectors]\n" + "".join(f"{k} = {v}\n" for k, v in entry_points.items()))
        for module, text in modules.items():
            (place / f"{module}.py").write_text(text)
            added.append(module)

    yield install
    for module in added:
        sys.modules.pop(module, None)


def test_an_entry_point_of_another_distribution_is_a_kind(add, install):
    add("lustre2", WHOLE)
    install("site-kinds", {"zebra_snmp": "zebra_kind"}, zebra_kind=WHOLE)
    assert plugins.kinds() == ["lustre2", "zebra_snmp"]
    assert "zebra_kind" not in sys.modules
    assert plugins.load("zebra_snmp") is sys.modules["zebra_kind"]


def test_an_entry_point_may_name_an_object(add, install):
    add("lustre2", WHOLE)
    parts = "\n".join(f"    {line}" for line in WHOLE.splitlines())
    install("site-kinds", {"kept": "zebra_more:Kept.Inner"}, zebra_more=f"class Kept:\n  class Inner:\n{parts}\n")
    assert plugins.load("kept") is sys.modules["zebra_more"].Kept.Inner


def test_a_kind_that_is_provided_twice_is_an_error_that_names_both_and_stops_no_other(add, install):
    add("lustre2", WHOLE)
    add("lmt2", WHOLE)
    install("site-kinds", {"lustre2": "zebra_kind"}, zebra_kind=WHOLE)
    with pytest.raises(ConfigError) as caught:
        plugins.load("lustre2")
    expected = "tokiod (collectors.lustre2) and distribution site-kinds 1.2 (zebra_kind): uninstall one"
    assert caught.value.faults == [f"source kind 'lustre2' is provided more than once, by {expected}"]
    assert plugins.kinds() == ["lmt2", "lustre2"]
    assert plugins.load("lmt2") is sys.modules["collectors.lmt2"]


@pytest.mark.parametrize(
    ("name", "target", "fault"),
    [
        ("broken", "zebra_kind", "cannot be imported: ModuleNotFoundError: No module named 'zebra_kind'"),
        ("broken", "zebra_other:absent", "cannot be imported: AttributeError: module 'zebra_other' has no attribute 'absent'"),
        ("broken", "zebra_other", "is not a plugin: it has no Config, Saved, live, saved"),
    ],
)
def test_an_entry_point_that_can_not_be_loaded_is_an_error_that_names_its_distribution(add, install, name, target, fault):
    add("lustre2", WHOLE)
    install("site-kinds", {name: target}, zebra_other="")
    with pytest.raises(ConfigError) as caught:
        plugins.load(name)
    assert caught.value.faults == [f"source kind '{name}' of distribution site-kinds 1.2 ({target}) {fault}"]
    assert plugins.kinds() == ["broken", "lustre2"]
    assert plugins.load("lustre2") is sys.modules["collectors.lustre2"]


def test_the_name_of_an_entry_point_must_be_a_word(add, install):
    add("lustre2", WHOLE)
    install("site-kinds", {"zebra-snmp": "zebra_kind"}, zebra_kind=WHOLE)
    with pytest.raises(ConfigError, match=r"^source kind 'zebra-snmp' of distribution site-kinds 1.2 \(zebra_kind\): its name must be "):
        plugins.load("zebra-snmp")


def test_a_distribution_that_is_installed_while_the_process_runs_is_found(add, install):
    add("lustre2", WHOLE)
    assert plugins.kinds() == ["lustre2"]
    install("site-kinds", {"zebra_snmp": "zebra_kind"}, zebra_kind=WHOLE)
    assert plugins.kinds() == ["lustre2", "zebra_snmp"]
