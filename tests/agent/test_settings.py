"""The agent's configuration and keys: every error at once with its line, and no secret that other users can read."""

import json
import re
import tomllib
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from keyed import Keyring

from tokiod.agent.configured_events import JOB_EVENTS, NODE_EVENTS
from tokiod.agent.job_cgroup import METRICS
from tokiod.agent.job_patterns import job_of, site_forms
from tokiod.agent.keys import read_keys
from tokiod.agent.sensors import SENSORS as SENSORS_OF_ALL
from tokiod.agent.sensors import sensors_of
from tokiod.agent.settings import Settings, SettingsError, _parse, read_settings, settings_of_node
from tokiod.agent.tree import Tree

EXAMPLE = Path(__file__).parents[2] / "config" / "agent" / "agent.toml"
KNOWN = "hub, hub_key_file, job_cgroups, key_file, node, perf_jobs, perf_node, without"
FORM = 'expected SCHEDULER=REGULAR EXPRESSION with one group, the id, as in "moab=moab/job_([0-9]+)"'
SENSORS = frozenset({"cpu", "ipmi"})
WHOLE = 'hub = "tcp://a:1"\nhub_key_file = "h.key"\nkey_file = "/k/c.key_secret"\n'


@pytest.fixture
def settings(tmp_path):
    def read(text, host="nid7.example.org"):
        (tmp_path / "agent.toml").write_text(text)
        return read_settings(str(tmp_path / "agent.toml"), host, SENSORS)

    return read


def test_paths_are_relative_to_the_file_and_the_name_is_that_of_the_host(settings, tmp_path):
    assert settings(WHOLE) == Settings("tcp://a:1", str(tmp_path / "h.key"), "/k/c.key_secret", "nid7", ())


def test_a_credential_of_the_keys_name_comes_before_the_file(settings, tmp_path, monkeypatch):
    text = WHOLE.replace("/k/c.key_secret", "node.key_secret")
    (tmp_path / "given").mkdir()
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path / "given"))
    assert settings(text).key_file == str(tmp_path / "node.key_secret")
    (tmp_path / "given" / "node.key_secret").touch()
    assert settings(text).key_file == str(tmp_path / "given" / "node.key_secret")


def test_the_example_is_read_with_and_without_its_comments(settings):
    text = EXAMPLE.read_text()
    assert settings(text).hub == "tcp://10.0.0.1:5561"
    uncommented = re.sub(r"(?m)^# (?=\w+ =)", "", text)
    found = settings(uncommented)
    assert (found.node, found.without, found.perf_node) == ("nid001234", ("ipmi",), ("instructions", "cycles"))
    assert {name: value for name, value in tomllib.loads(uncommented).items() if isinstance(value, list)} == {
        name: list(getattr(found, name)) for name in ("without", "perf_node", "perf_jobs", "job_cgroups")
    }
    assert (found.job_cgroups, job_of("x/moab/job_12", site_forms(found.job_cgroups))) == (("moab=moab/job_([0-9]+)",), ("moab", "12"))


def test_the_configuration_of_a_report_may_be_missing_at_its_usual_place_alone(tmp_path, monkeypatch):
    monkeypatch.setattr("tokiod.agent.settings.DEFAULT_CONFIG", str(tmp_path / "agent.toml"))
    assert settings_of_node(str(tmp_path / "agent.toml"), "nid7", SENSORS) is None
    (tmp_path / "agent.toml").write_text(WHOLE + 'perf_jobs = ["cycles", "cycles"]')
    assert settings_of_node(str(tmp_path / "agent.toml"), "nid7", SENSORS).perf_jobs == ("cycles",)
    remedy = "copy agent.toml of the package there (docs/nodes.md); --once needs none"
    for path, said in (("other.toml", f"other.toml: No such file or directory: {remedy}"), ("", "Is a directory")):
        with pytest.raises(SettingsError) as found:
            settings_of_node(str(tmp_path / path), "nid7", SENSORS)
        assert str(found.value) == f"{tmp_path}{'/' if path else ': '}{said}"
    (tmp_path / "latin.toml").write_bytes(b'node = "\xe9"')
    with pytest.raises(SettingsError, match=r"/latin\.toml: 'utf-8' codec can't decode byte 0xe9"):
        settings_of_node(str(tmp_path / "latin.toml"), "nid7", SENSORS)


def test_the_sensors_of_a_node_are_all_but_those_that_its_settings_leave_out():
    names = [sensor.name for sensor in SENSORS_OF_ALL]
    assert [sensor.name for sensor in sensors_of(Tree(), None)] == names
    lists = {"without": ("ipmi",), "perf_node": ("cycles",), "perf_jobs": ("page_faults",), "job_cgroups": ("x=y/(a)",)}
    found = {sensor.name: sensor for sensor in sensors_of(Tree(), Settings("", "", "", "", **lists), ["lustre_jobs"])}
    assert [*found] == [name for name in names if name not in {"ipmi", "lustre_jobs"}]
    assert found["perf"].metrics == (NODE_EVENTS["cycles"],)
    assert found["jobs"].metrics[len(METRICS) :] == (JOB_EVENTS["page_faults"],)
    assert found["jobs"]._forms == site_forms(["x=y/(a)"])


def test_the_name_of_a_node_has_128_characters_at_most(settings):
    assert settings(WHOLE, "n" * 128).node == "n" * 128
    with pytest.raises(SettingsError, match=r'node: expected letters, digits, "\.", "_" and "-", got "n{129}"$'):
        settings(WHOLE, "n" * 129)


@pytest.mark.parametrize(
    ("text", "errors"),
    [
        ("", ["hub: missing", "hub_key_file: missing", "key_file: missing"]),
        ('hubb = "x"\nnode = 3\n', [f":1: unknown key hubb; known: {KNOWN}", ":2: node: expected a text"]),
        ("hub tcp\n", [':1: expected NAME = "VALUE" on one line']),
        ("hub = tcp://a:1\n", [':1: hub: expected a text in double quotes, or a list of them, as in ["ipmi"]']),
        (WHOLE + 'hub = "tcp://b:1"\n', [":4: hub is there twice"]),
        (WHOLE + 'without = ["ipim"]\n', ["without: unknown sensor ipim; known: cpu, ipmi"]),
        (WHOLE + 'perf_jobs = ["cycle"]\n', [f"perf_jobs: unknown event cycle; known: {', '.join(JOB_EVENTS)}"]),
        (WHOLE + 'perf_node = ["task_clock"]\n', [f"perf_node: unknown event task_clock; known: {', '.join(NODE_EVENTS)}"]),
        (WHOLE + 'perf_node = "cycles"\n', [":4: perf_node: expected a list of texts"]),
        (WHOLE + 'job_cgroups = ["x=(a", "x=(a)", "y"]\n', [f'job_cgroups: {FORM}, got "{given}"' for given in ("x=(a", "y")]),
        (WHOLE + 'job_cgroups = ["a=[^"/]"]\n', [':4: job_cgroups: expected a text in double quotes, or a list of them, as in ["ipmi"]']),
        (WHOLE + 'without = "ipmi"\n', [":4: without: expected a list of texts"]),
        (WHOLE + 'node = "a/b"\n', ['node: expected letters, digits, ".", "_" and "-", got "a/b"']),
        (WHOLE.replace("tcp://a:1", "ipc://x"), ['hub: expected "tcp://HOST:PORT", got "ipc://x"']),
    ],
)  # fmt: skip
def test_each_error_has_its_place(settings, tmp_path, text, errors):
    with pytest.raises(SettingsError) as found:
        settings(text)
    path = str(tmp_path / "agent.toml")
    assert str(found.value).splitlines() == [f"{path}{error}" if error[0] == ":" else f"{path}: {error}" for error in errors]


@given(st.lists(st.text('[]\\/"x,=# ', max_size=9), max_size=4))
def test_a_list_of_any_texts_is_what_toml_reads(texts):
    line = f'without = {json.dumps(texts)} # ] " x'
    found = {}
    assert list(_parse("f", [line], found)) == []
    assert found["without"] == tomllib.loads(line)["without"] == texts


@given(st.text(st.characters(blacklist_categories=["Cs"]), max_size=60))
def test_what_is_read_as_a_text_is_what_toml_reads(text):
    line = 'node = "' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if not text.isprintable():
        return
    found = {}
    assert list(_parse("f", [line], found)) == []
    assert found["node"] == tomllib.loads(line)["node"] == text


def test_keys_are_those_of_keygen_and_what_is_none_is_named_with_its_remedy(tmp_path):
    ring = Keyring(tmp_path / "keys")
    allowed = ring.allowed("compute")
    hub, own = (str(ring.directory / name) for name in ("server.key", "compute.key_secret"))
    found = read_keys(hub, own)
    assert (found.hub, found.public, found.secret) == (ring.server.public, allowed.own.public, allowed.own.secret)
    assert found.secret.decode() not in repr(found)
    (tmp_path / "secret").write_text(f'secret-key = "{"x" * 40}"\n')
    (tmp_path / "latin").write_bytes(b"\xe9")
    of_hub, of_class = "copy the hub's file that ends in .key", "copy the file of the node's class that ends in .key_secret"
    for paths, said in (
        ((hub, str(ring.directory / "compute.key")), f"{ring.directory}/compute.key: contains no secret key: {of_class}"),
        ((hub, f"{tmp_path}/secret"), f"{tmp_path}/secret: contains no secret key: {of_class}"),
        ((f"{tmp_path}/secret", own), f"{tmp_path}/secret: contains no public key: {of_hub}"),
        ((f"{hub}x", own), f"key {hub}x: No such file or directory: {of_hub}"),
        ((hub, f"{tmp_path}/latin"), f"key {tmp_path}/latin: not a file of keys: {of_class}"),
    ):
        with pytest.raises(SettingsError) as refused:
            read_keys(*paths)
        assert str(refused.value) == said


@pytest.mark.parametrize("mode", [0o640, 0o620, 0o610, 0o604, 0o602, 0o601])
def test_a_key_that_others_can_use_is_refused_and_a_credential_may_show_the_right_of_its_acl(tmp_path, monkeypatch, mode):
    ring = Keyring(tmp_path / "keys")
    ring.made("node")
    hub, own = (str(ring.directory / name) for name in ("server.key", "node.key_secret"))
    Path(own).chmod(mode)
    refused = f"^{re.escape(own)}: other users can read it \\(mode {mode:04o}\\): chmod 0600 it$"
    with pytest.raises(SettingsError, match=refused):
        read_keys(hub, own)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    with pytest.raises(SettingsError, match=refused) if mode & 0o007 else nullcontext():
        read_keys(hub, own)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path / "key"))
    with pytest.raises(SettingsError, match=refused):
        read_keys(hub, own)
