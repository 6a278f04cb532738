import datetime as dt
import json
import os
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import collectors
from tokiod.config import load as configuration
from tokiod.config import machine_checks, plugins
from tokiod.config.schema import Config
from tokiod.config.sections import ArchiveConfig, BusConfig, FeedConfig
from tokiod.errors import ConfigError
from tokiod.window import Calendar

PLUGIN = """
from typing import Literal
import msgspec
from tokiod.collector import SourceConfig
from tokiod.units import Duration, Size

class Tls(msgspec.Struct, kw_only=True, frozen=True):
    ca: str
    depth: int = 1

class Config(SourceConfig):
    url: str = "fake://host"
    interval: Duration = Duration(5)
    buffer: Size = Size(1024)
    tables: tuple[str, ...] = ("ost",)
    mode: Literal["mdt", "host"] = "mdt"
    password_file: str = ""
    tls: Tls | None = None
    pair: Tls = Tls(ca="x")

    @property
    def step(self):
        return self.interval

    def datasets(self):
        return frozenset(f"datatargets/{table}" for table in self.tables)

    def faults(self):
        return ["tables: at least one is needed", "nothing to collect"] if not self.tables else []

class Saved(msgspec.Struct): pass
def live(config, site): raise NotImplementedError
def saved(inputs, options, site): raise NotImplementedError
"""
HEAD = """\
timezone = "America/Los_Angeles"
[archive]
path = "/var/lib/tokiod/tts/%Y-%m-%d/{system}.hdf5"
"""
SOURCE = """\
[[source]]
name = "a"
kind = "faketree"
system = "cscratch"
"""


@pytest.fixture(autouse=True)
def _plugins(tmp_path, monkeypatch):
    """Kinds of source that no file of this repository names: modules on collectors.__path__."""
    directory = tmp_path / "collectors"
    directory.mkdir()
    (directory / "faketree.py").write_text(PLUGIN)
    (directory / "broken.py").write_text("raise RuntimeError('no\\nkey')")
    monkeypatch.setattr(collectors, "__path__", [*collectors.__path__, str(directory)])
    yield
    sys.modules.pop("collectors.faketree", None)


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Load a text as tokiod.toml of the current directory."""
    monkeypatch.chdir(tmp_path)

    def load(text):
        Path("tokiod.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
        return configuration.load(Path("tokiod.toml"))

    return load


@pytest.fixture
def faults(load):
    """Every fault of a text."""

    def faults(text):
        with pytest.raises(ConfigError) as caught:
            load(text)
        assert str(caught.value) == "\n".join(caught.value.faults)
        return caught.value.faults

    return faults


def test_a_whole_configuration_is_read_as_it_is_meant(load, tmp_path):
    config = load(
        f"""{HEAD}
[bus]
endpoint = "ipc:///run/other/bus"
max_windows = 2
max_bytes = "1 MiB"
[feed]
endpoint = "ipc:///run/elsewhere"
{SOURCE}
url = "fake://user@host:12/db?x=y"
interval = "10s"
buffer = "2 kB"
tables = ["ost", "mds"]
mode = "host"
window = "2m"
settle = "0s"
retention = "4w"
timeout = "1m"
tls = {{ca = "/etc/ca", depth = 2}}
[source.pair]
ca = "y"
"""
    )
    plugin = sys.modules["collectors.faketree"]
    assert config == Config(
        timezone="America/Los_Angeles",
        archive=ArchiveConfig(path="/var/lib/tokiod/tts/%Y-%m-%d/{system}.hdf5"),
        bus=BusConfig(endpoint="ipc:///run/other/bus", max_windows=2, max_bytes=2**20),
        feed=FeedConfig(endpoint="ipc:///run/elsewhere"),
        source=(
            plugin.Config(
                name="a",
                kind="faketree",
                system="cscratch",
                url="fake://user@host:12/db?x=y",
                interval=10,
                buffer=2000,
                tables=("ost", "mds"),
                mode="host",
                window=120,
                settle=0,
                retention=4 * 7 * 86400,
                timeout=60,
                tls=plugin.Tls(ca="/etc/ca", depth=2),
                pair=plugin.Tls(ca="y"),
            ),
        ),
        secrets=tmp_path,
    )


def test_what_may_be_left_out_has_the_defaults_of_the_design(load, tmp_path):
    assert load(HEAD) == Config(
        timezone="America/Los_Angeles",
        archive=ArchiveConfig(path="/var/lib/tokiod/tts/%Y-%m-%d/{system}.hdf5"),
        bus=BusConfig(endpoint="ipc:///run/tokiod/private/bus", max_windows=4, max_bytes=64 * 2**20),
        feed=FeedConfig(endpoint="ipc:///run/tokiod/feed"),
        source=(),
        secrets=tmp_path,
    )


def test_a_site_without_sources_is_warned_of(load):
    assert configuration.warnings(load(HEAD)) == ["no [[source]] section: the daemon collects no data"]
    assert configuration.warnings(load(HEAD + SOURCE)) == []


@pytest.mark.parametrize(
    ("template", "root"),
    [
        ("/var/lib/tokiod/tts/%Y-%m-%d/{system}.hdf5", "/var/lib/tokiod/tts"),
        ("/tts/{system}/%Y/%j.hdf5", "/tts"),
        ("/tts/x/{system}-%Y-%m-%d.hdf5", "/tts/x"),
        ("/%Y%m%d{system}", "/"),
    ],
)
def test_the_root_is_the_directory_that_all_files_share(template, root):
    archive = ArchiveConfig(path=template)
    assert (archive.root, archive.ledger, archive.lock) == (
        Path(root),
        Path(root) / ".tokiod" / "ledger.sqlite3",
        Path(root) / ".tokiod" / "lock",
    )


def test_a_file_is_named_by_the_sites_date_and_the_system():
    day = Calendar("America/Los_Angeles").day(int(dt.datetime(2018, 1, 28, 7, 59, 59, tzinfo=dt.UTC).timestamp()))
    assert ArchiveConfig(path="/tts/%Y-%m-%d/{system}.hdf5").file(day, "cscratch") == Path("/tts/2018-01-27/cscratch.hdf5")


def test_a_secret_is_looked_for_beside_the_file_or_where_it_says(load, tmp_path):
    (tmp_path / "kept").mkdir()
    for path in (tmp_path / "pw", tmp_path / "kept" / "pw"):
        path.write_text(f"of {path.parent.name}\n")
        path.chmod(0o600)
    heads = ("", 'secrets = "kept"\n', f'secrets = "{tmp_path}/kept"\n')
    assert [str(load(head + HEAD).secret("file:pw")) for head in heads] == [f"of {tmp_path.name}", "of kept", "of kept"]


def test_every_fault_is_told_at_once_with_its_line_in_order(faults):
    assert faults(
        """\
timezone = "America/Los_Angles"
colour = "red"
[archive]
path = "tts/%Y/{system}"
[bus]
max_windows = 0
max_bytes = 12
endpont = "x"
[feed]
endpoint = 7
[[source]]
name = "cscratch-lmt"
kind = "faketree"
system = "cscratch"
window = 30
intervall = "5s"
tables = ["ost", 1]
mode = "hots"
[source.tls]
ca = 1
dept = 2
[[source]]
kind = "faketre"
system = ["x"]
window = "30"
[[source]]
name = "c"
"""
    ) == [
        "tokiod.toml:1: timezone: unknown time zone 'America/Los_Angles', did you mean America/Los_Angeles?",
        "tokiod.toml:2: colour: unknown key",
        "tokiod.toml:4: archive: path: expected an absolute path, got 'tts/%Y/{system}'",
        (
            "tokiod.toml:4: archive: path: no file for each day: "
            "2024-01-01 of cscratch and 2024-01-02 of cscratch would both be tts/2024/cscratch"
        ),
        "tokiod.toml:6: bus: max_windows: expected an integer >= 1",
        'tokiod.toml:7: bus: max_bytes: expected a size, written like "64 MiB" or "1 GB", got 12, did you mean "12 B"?',
        "tokiod.toml:8: bus: endpont: unknown key, did you mean endpoint?",
        "tokiod.toml:10: feed: endpoint: expected text in quotes, got an integer",
        (
            'tokiod.toml:15: source cscratch-lmt: window: expected a time span, written like "30s", "5m", "1h" or "90d", got 30, '
            'did you mean "30s"?'
        ),
        "tokiod.toml:16: source cscratch-lmt: intervall: unknown key, did you mean interval?",
        "tokiod.toml:17: source cscratch-lmt: tables: expected text in quotes, got an integer - at [1]",
        "tokiod.toml:18: source cscratch-lmt: mode: expected mdt or host, got 'hots', did you mean host?",
        "tokiod.toml:20: source cscratch-lmt: tls.ca: expected text in quotes, got an integer",
        "tokiod.toml:21: source cscratch-lmt: tls.dept: unknown key, did you mean depth?",
        'tokiod.toml:22: source #2: name: missing; for example name = "cscratch-lmt"',
        "tokiod.toml:23: source #2: kind: unknown source kind 'faketre', did you mean faketree?",
        "tokiod.toml:24: source #2: system: expected text in quotes, got an array",
        'tokiod.toml:25: source #2: window: expected a time span, written like "30s", "5m", "1h" or "90d", got \'30\', did you mean "30s"?',
        'tokiod.toml:26: source c: kind: missing; for example kind = "lmt"',
        'tokiod.toml:26: source c: system: missing; for example system = "cscratch"',
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "",
            [
                "tokiod.toml: archive: missing; write a section [archive]",
                'tokiod.toml: timezone: missing; for example timezone = "America/Los_Angeles"',
            ],
        ),
        ('timezone = "UTC"\narchive = "x"', ["tokiod.toml:2: archive: expected a table, got text in quotes"]),
        (
            HEAD + "[source]\nname = 1",
            ["tokiod.toml:4: source: write [[source]], with two brackets: one section for each source (got a table)"],
        ),
        ("source = [3]\n" + HEAD, ["tokiod.toml:1: source #1: expected a table, got an integer"]),
        (
            HEAD + '[bus]\nmax_windows = 0\nendpoint = "x"\n[feed]\nendpont = 1\nendpoint = "x"',
            [
                "tokiod.toml:5: bus: max_windows: expected an integer >= 1",
                'tokiod.toml:6: bus: endpoint: expected "ipc:///an/absolute/path"',
                "tokiod.toml:8: feed: endpont: unknown key, did you mean endpoint?",
                'tokiod.toml:9: feed: endpoint: expected "ipc:///an/absolute/path" or "tcp://127.0.0.1:PORT"',
                "tokiod.toml:9: feed: endpoint: the bus and the feed have the same endpoint (line 6)",
            ],
        ),
        (HEAD + "[[sources]]", ["tokiod.toml:4: sources: unknown key, did you mean source?"]),
        (
            HEAD + SOURCE + "[source.pair]\nca = 1\nx = 2",
            ["tokiod.toml:9: source a: pair.ca: expected text in quotes, got an integer", "tokiod.toml:10: source a: pair.x: unknown key"],
        ),
        (
            HEAD + '[[source]]\nname = "a\\nb"\nkind = "faketree"\nsystem = "c d"',
            [
                "tokiod.toml:5: source #1: name: expected letters, digits, '_', '.' and '-', a letter or digit first, got 'a\\nb'",
                "tokiod.toml:7: source #1: system: expected letters, digits, '_', '.' and '-', a letter or digit first, got 'c d'",
            ],
        ),
        (HEAD + SOURCE + '"odd\\nkey" = 1', ['tokiod.toml:8: source a: "odd\\nkey": unknown key']),
        (
            HEAD + SOURCE + "tables = []",
            ["tokiod.toml:4: source a: nothing to collect", "tokiod.toml:8: source a: tables: at least one is needed"],
        ),
        (
            HEAD + SOURCE.replace("faketree", "broken"),
            ["tokiod.toml:6: source a: kind: source kind 'broken' of tokiod (collectors.broken) cannot be imported: RuntimeError: no key"],
        ),
    ],
)
def test_a_wrong_shape_is_told_where_it_is(faults, text, expected):
    assert faults(text) == expected


def test_a_stanza_with_a_fault_is_still_held_against_the_others(faults):
    broken = SOURCE.replace('"a"', '"b"') + "window = 3\n"
    unknown = SOURCE.replace("faketree", "flowers") + "petals = 5\n"
    assert faults(HEAD + SOURCE + broken + unknown) == [
        "tokiod.toml:8: source b: datatargets/ost of cscratch is also filled by source a (line 4)",
        'tokiod.toml:12: source b: window: expected a time span, written like "30s", "5m", "1h" or "90d", got 3, did you mean "3s"?',
        "tokiod.toml:14: source a: name: another source has the same name (line 5)",
        f"tokiod.toml:15: source a: kind: unknown source kind 'flowers'; known kinds: {', '.join(plugins.kinds())}",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"a = 1\nb = = 2\n", "tokiod.toml:2: not TOML: write one key = value in a line"),
        (b'\na = """', "tokiod.toml:2: not TOML: a closing quotation mark is missing, at the end of the file"),
        (b"a = 1\na = 2\n", "tokiod.toml:2: not TOML: a is set twice (line 1)"),
        (b"a = 2018-02-31\n", "tokiod.toml:1: not TOML: Invalid date or datetime (column 5)"),
        (b"a = '\xff'", "tokiod.toml: not UTF-8 text (byte 5)"),
        (b"a = " + b"[" * 9999, "tokiod.toml: nested too deeply"),
    ],
)
def test_a_file_that_is_no_toml_is_one_line(faults, text, expected):
    assert faults(text) == [expected]


def test_a_number_too_long_for_python_is_one_line(faults):
    (fault,) = faults("a = " + "9" * 9999)
    assert fault.startswith("tokiod.toml: not TOML: Exceeds the limit (4300 digits) for integer string conversion")


def test_a_file_that_cant_be_read_says_why(tmp_path):
    missing = "No such file or directory (--config or TOKIOD_CONFIG names another)"
    for path, reason in ((tmp_path / "missing.toml", missing), (tmp_path, "Is a directory")):
        with pytest.raises(ConfigError) as caught:
            configuration.load(path)
        assert caught.value.faults == [f"{path}: {reason}"]


def test_a_file_that_may_not_be_read_says_so(tmp_path):
    path = tmp_path / "tokiod.toml"
    path.touch(0o000)
    user = os.geteuid()
    os.seteuid(user or 65534)
    try:
        with pytest.raises(ConfigError) as caught:
            configuration.load(path)
    finally:
        os.seteuid(user)
    assert caught.value.faults == [f"{path}: Permission denied"]


def test_a_socket_of_the_page_in_a_directory_that_this_user_may_not_see_is_no_error_of_the_check():
    """The unit's directory is closed to other users, who may run `tokiod check`."""
    user = os.geteuid()
    with tempfile.TemporaryDirectory() as name:
        path, closed = Path(name) / "tokiod.toml", Path(name) / "closed"
        (closed / "web").mkdir(parents=True)
        path.write_text(HEAD + f'[web]\naddress = "{closed}/web/http"\n')
        Path(name).chmod(0o755)
        closed.chmod(0o000)
        os.seteuid(user or 65534)
        try:
            found = machine_checks.problems(configuration.load(path))
        finally:
            os.seteuid(user)
            closed.chmod(0o700)
    assert [one for one in found if one.startswith("web")] == []


@pytest.mark.parametrize(
    "planted",
    [
        'url = "mysql://user:SECRET@host/db"',
        'url = "mysql://user:SECRET/x@host/db"',
        'url = "mysql://host/db?password=SECRET"',
        'url = "mysql://user:SECRET@host/db',
        'password = "SECRET"',
        'password_file = ["SECRET"]',
        'tables = ["http://u:SECRET@h"]',
        'tls = {ca = "http://u:SECRET@h"}',
        '[source.pair]\nca = "http://u:SECRET@h"',
        '[source.pair]\nca = ["SECRET"]',
        '[feed]\nendpoint = "tcp://u:SECRET@host"',
        '[bus]\nendpoint = "SECRET"',
        '[bus]\npassword = "SECRET"',
    ],
)
def test_a_secret_in_the_file_is_refused_and_never_shown(faults, planted):
    (told,) = faults(HEAD + SOURCE + planted.replace("SECRET", "hunter-2-marked"))
    assert told.startswith(("tokiod.toml:8:", "tokiod.toml:9:"))
    assert "hunter" not in told


def test_the_fault_of_a_url_with_a_password_says_what_to_do_instead(faults):
    assert faults(HEAD + SOURCE + 'url = "mysql://user:x@host/db"\nwindow = 3') == [
        "tokiod.toml:8: source a: url: a URL must not contain a secret: put it into a file or the environment and name that",
        'tokiod.toml:9: source a: window: expected a time span, written like "30s", "5m", "1h" or "90d", got 3, did you mean "3s"?',
    ]


def test_the_file_is_named_as_it_was_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "etc").mkdir()
    Path("etc/site.toml").write_text(HEAD + "x = 1")
    with pytest.raises(ConfigError) as caught:
        configuration.load(Path("etc/site.toml"))
    assert caught.value.faults == ["etc/site.toml:4: archive: x: unknown key"]


def toml(value):
    """Write a value on one line of TOML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name, ensure_ascii=False)} = {toml(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return value.isoformat() if isinstance(value, dt.date) else json.dumps(value, ensure_ascii=False)


ODD = st.sampled_from(
    ["", "0s", "1m", "7m", "90d", "1 MiB", "UTC", "America", "..", "faketree", "broken", "a b", "ipc:///x", "tcp://[::1:x", "/{system}"]
)
SCALAR = ODD | st.text(st.characters(exclude_categories=["Cs", "Cc"])) | st.integers() | st.booleans() | st.dates() | st.just([])
KEYS = ["name", "kind", "system", "window", "retention", "url", "tables", "tls", "pair", "interval", "endpoint", "path", "max_bytes", "x"]
TABLE = st.dictionaries(
    st.sampled_from(KEYS), SCALAR | st.lists(SCALAR, max_size=2) | st.dictionaries(st.sampled_from(["ca", "y"]), SCALAR)
)
STANZA = TABLE.map(lambda changes: {"name": "a", "kind": "faketree", "system": "s"} | changes)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.fixed_dictionaries(
        {"timezone": st.sampled_from(["UTC", "Asia/Kathmandu"]) | SCALAR, "archive": TABLE | st.just({"path": "/%Y-%m-%d{system}"})},
        optional={
            "source": st.lists(STANZA | SCALAR, max_size=3) | SCALAR,
            "bus": TABLE | SCALAR,
            "feed": TABLE | SCALAR,
            "secrets": SCALAR,
            "y": SCALAR,
        },
    )
)
def test_whatever_stands_in_the_file_is_a_configuration_or_told_in_lines(load, document):
    text = "".join(f"{name} = {toml(value)}\n" for name, value in document.items())
    try:
        result, faults = load(text), []
    except ConfigError as error:
        result, faults = None, error.faults
    assert isinstance(result, Config) != bool(faults)
    assert [fault for fault in faults if not fault.startswith("tokiod.toml") or len(fault.splitlines()) > 1] == []
    assert len(set(faults)) == len(faults)


@pytest.mark.parametrize(
    ("stanza", "address"),
    [("", None), ("[metrics]\n", "127.0.0.1:9464"), ('[metrics]\naddress = "[::1]:1234"\n', "[::1]:1234")],
)
def test_metrics_are_off_without_their_table_and_on_loopback_with_it(load, stanza, address):
    config = load(HEAD + stanza)
    assert (None if config.metrics is None else config.metrics.address) == address
    assert config.counters == (None if address is None else config.run / "metrics")


def test_all_that_is_wrong_with_the_metrics_is_told_with_its_place(load):
    with pytest.raises(ConfigError) as refused:
        load(HEAD + '[metrics]\nadress = "x"\naddress = "example.org:80"\n')
    assert refused.value.faults == [
        "tokiod.toml:5: metrics: adress: unknown key, did you mean address?",
        (
            "tokiod.toml:6: metrics: address: expected an IP address of this machine and a port, "
            'as in "127.0.0.1:9464" or "[::1]:9464", got \'example.org:80\''
        ),
    ]


def test_metrics_that_strangers_reach_are_warned_of(load):
    config = load(HEAD + SOURCE + '[metrics]\naddress = "0.0.0.0:9464"\n')
    assert configuration.warnings(config) == [
        "metrics.address: every client that reaches 0.0.0.0:9464 can read the names and states of all sources"
    ]
    assert configuration.warnings(load(HEAD + SOURCE + "[metrics]\n")) == []


@pytest.fixture
def shared(tmp_path):
    directory = tmp_path / "shared"
    directory.mkdir()
    directory.chmod(0o1777)
    return directory


def test_what_all_users_can_reach_is_warned_of(load, shared):
    config = load(f'{HEAD}{SOURCE}[bus]\nendpoint = "ipc://{shared}/bus"\n[feed]\nendpoint = "ipc:///run/feed"\n')
    assert configuration.warnings(config) == [
        f"bus.endpoint: all users can write to {shared} and replace the socket",
    ]


def test_keys_of_the_bus_are_known_and_do_nothing(load):
    config = load(f'{HEAD}{SOURCE}[bus]\nsecret_key_file = "nowhere"\nclients = "gone"\n')
    assert configuration.warnings(config) == [
        "bus.secret_key_file: does nothing, the bus has no keys: remove it",
        "bus.clients: does nothing, the bus has no keys: remove it",
    ]
    assert [one for one in machine_checks.problems(config) if "key_file" in one] == []


def test_a_feed_on_tcp_without_keys_is_refused_unless_anyone_may_subscribe(load):
    open_feed, keys = '[feed]\nendpoint = "tcp://127.0.0.1:5556"\n', 'secret_key_file = "feed.key_secret"\nclients = "clients"\n'
    with pytest.raises(ConfigError, match=r"every local user could subscribe to a feed on tcp without keys: use ipc, set secret_key_file"):
        load(f"{HEAD}{SOURCE}{open_feed}")
    assert configuration.warnings(load(f"{HEAD}{SOURCE}{open_feed}allow_anyone = true\n")) == []
    assert not load(f"{HEAD}{SOURCE}{open_feed}{keys}").feed.allow_anyone
    with pytest.raises(ConfigError, match=r"feed: allow_anyone: only clients with a key may subscribe \(line \d+\)"):
        load(f"{HEAD}{SOURCE}{open_feed}{keys}allow_anyone = true\n")


LMT = 'name = "l"\nkind = "lmt"\nsystem = "l"\nurl = "mysql://user@{host}/filesystem_l"\npassword_file = "p"\n'
COLLECTD = 'name = "c"\nkind = "collectd_es"\nsystem = "c"\nurl = "{scheme}://{host}:9200"\nindex = "i-*"\nuser = "u"\npassword_env = "P"\n'


@pytest.mark.parametrize(
    ("section", "warnings"),
    [
        (LMT.format(host="lmt1"), ["source l: tls: the password goes to lmt1 without TLS"]),
        (LMT.format(host="lmt1") + "tls = true\n", []),
        (LMT.format(host="localhost"), []),
        (COLLECTD.format(scheme="http", host="es1"), ["source c: url: the secret of password_env goes to es1 without TLS"]),
        (COLLECTD.format(scheme="https", host="es1"), []),
        (COLLECTD.format(scheme="http", host="127.0.0.1"), []),
    ],
)
def test_a_secret_that_crosses_the_network_without_tls_is_warned_of(load, section, warnings):
    assert configuration.warnings(load(f"{HEAD}[[source]]\n{section}")) == warnings


def test_the_windows_of_all_interfaces_must_fit(load):
    names = ", ".join(f'"r:{number}"' for number in range(5000))
    section = f'[[source]]\nname = "e"\nkind = "esnet_snmp"\nsystem = "e"\nurl = "https://e"\ninterfaces = [{names}]\nwindow = "24h"\n'
    with pytest.raises(ConfigError, match=r"a window of 86400 s would have 550 MiB, the limit is 512 MiB; 43200 s would do"):
        load(HEAD + section)
    section = section.replace("24h", "12h")
    with pytest.raises(ConfigError, match=r"source e: datatargets/readrates would have 5000 columns, archive.max_columns allows 4000"):
        load(f"{HEAD}max_columns = 4000\n{section}")
    assert configuration.warnings(load(HEAD + section)) == []


def test_windows_that_may_become_too_large_are_warned_of(load):
    section = f"[[source]]\n{LMT.format(host='localhost')}"
    assert configuration.warnings(load(f'{HEAD}{section}window = "2m"\n')) == []
    (warning,) = configuration.warnings(load(f'{HEAD}{section}window = "3h"\n'))
    assert warning.startswith("source l: window: a window of 10800 s is refused where its 21 datasets have more than 591 columns each")
    assert configuration.warnings(load(f'{HEAD}max_columns = 500\n{section}window = "3h"\n')) == []


def test_a_watched_folder_that_all_users_can_write_to_is_warned_of(load, shared):
    section = f'[[source]]\nname = "w"\nkind = "esnet_snmp"\nsystem = "e"\nwatch = "{shared}"\ninterface = ["a:b"]\n'
    assert configuration.warnings(load(HEAD + section)) == [f"source w: watch: all users can put files into {shared}"]
    shared.chmod(0o755)
    assert configuration.warnings(load(HEAD + section)) == []
