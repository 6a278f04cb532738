"""A corpus of mistakes in a configuration: each is reported with its line, and with what to write instead."""

import pytest

from tokiod.config.load import load
from tokiod.errors import ConfigError

CONFIGURATION = """\
timezone = "America/Los_Angeles"
log_level = "info"
[archive]
path = "/var/lib/tokiod/tts/%Y-%m-%d/{system}.hdf5"
[bus]
endpoint = "ipc:///run/tokiod/private/bus"
[feed]
endpoint = "ipc:///run/tokiod/feed"
[metrics]
address = "127.0.0.1:9464"
[[source]]
name = "cscratch-lmt"
kind = "lmt"
system = "cscratch"
url = "mysql://lmt@db/filesystem_cscratch"
password_file = "lmt"
window = "60s"
[[source]]
name = "collectd"
kind = "collectd_es"
system = "datawarp"
url = "https://es:9200"
index = "cori-collectd-%Y.%m.%d"
"""
# ruff: noqa: E501 - messages are one line
MISTAKES = [
    ('log_level = "info"', 'log_level = "verbose"', [":2: log_level: expected debug, info, warning or error, got 'verbose'"]),
    (
        '[[source]]\nname = "cscratch',
        '[source]\nname = "cscratch',
        [":18: not TOML: write [[source]] for each section of this name (line 11)"],
    ),
    (
        'window = "60s"',
        "settle = true",
        [':17: source cscratch-lmt: settle: expected a time span, written like "30s", "5m", "1h" or "90d", got true'],
    ),
    ('window = "60s"', 'window = "60s"\nwindow = "30s"', [":18: not TOML: window is set twice (line 17)"]),
    ('"America/Los_Angeles"', '"America/Los_Angeles', [":1: not TOML: a closing quotation mark is missing"]),
    ('password_file = "lmt"', 'password = "hunter2"', [":16: source cscratch-lmt: password: unknown key, did you mean password_file?"]),
    (
        'window = "60s"',
        'window = "10sec"',
        [
            ':17: source cscratch-lmt: window: expected a time span, written like "30s", "5m", "1h" or "90d", got \'10sec\', did you mean "10s"?'
        ],
    ),
    (
        'window = "60s"',
        'window = "35s"',
        [":17: source cscratch-lmt: window: 24 h must be a whole number of windows of 35 s; 30 s or 40 s would do"],
    ),
    ('timezone = "America/Los_Angeles"\n', "", [': timezone: missing; for example timezone = "America/Los_Angeles"']),
    (
        "mysql://lmt@db",
        "postgres://lmt@db",
        [':15: source cscratch-lmt: url: expected "sqlite:///path" or "mysql://user@host:port/database", got postgres://'],
    ),
    ('kind = "lmt"', 'kind = "lnt"', [":13: source cscratch-lmt: kind: unknown source kind 'lnt', did you mean lmt?"]),
    (
        'system = "cscratch"',
        'sytem = "cscratch"',
        [
            ':11: source cscratch-lmt: system: missing; for example system = "cscratch"',
            ":14: source cscratch-lmt: sytem: unknown key, did you mean system?",
        ],
    ),
    (
        'window = "60s"',
        "window = 60",
        [':17: source cscratch-lmt: window: expected a time span, written like "30s", "5m", "1h" or "90d", got 60, did you mean "60s"?'],
    ),
    (
        'window = "60s"',
        'window = "60"',
        [
            ':17: source cscratch-lmt: window: expected a time span, written like "30s", "5m", "1h" or "90d", got \'60\', did you mean "60s"?'
        ],
    ),
    (
        'window = "60s"',
        'window = "1 minute"',
        [
            ':17: source cscratch-lmt: window: expected a time span, written like "30s", "5m", "1h" or "90d", got \'1 minute\', did you mean "1m"?'
        ],
    ),
    ('window = "60s"', "window = 60s", [':17: not TOML: text needs quotation marks: window = "..."']),
    (
        'window = "60s"',
        'window = "7s"',
        [
            ":17: source cscratch-lmt: window: 24 h must be a whole number of windows of 7 s; 5 s or 10 s would do",
            ":17: source cscratch-lmt: window: 7 s is not a multiple of the source's step of 5 s",
        ],
    ),
    ('window = "60s"', 'window = "0s"', [":17: source cscratch-lmt: window: window (0 s) and step (5 s) must be greater than zero"]),
    ('window = "60s"', 'retention = "5s"', [":17: source cscratch-lmt: retention: 5 s is shorter than the window of 60 s"]),
    (
        'window = "60s"',
        'retention = "1 day"',
        [
            ':17: source cscratch-lmt: retention: expected a time span, written like "30s", "5m", "1h" or "90d", got \'1 day\', did you mean "1d"?'
        ],
    ),
    (
        "America/Los_Angeles",
        "America/Los_Angles",
        [":1: timezone: unknown time zone 'America/Los_Angles', did you mean America/Los_Angeles?"],
    ),
    ("America/Los_Angeles", "PST", [':1: timezone: unknown time zone \'PST\'; write a zone such as "America/Los_Angeles" or "UTC"']),
    ('"America/Los_Angeles"', "America/Los_Angeles", [':1: not TOML: text needs quotation marks: timezone = "..."']),
    ("{system}.hdf5", "{sytem}.hdf5", [":4: archive: path: unknown field {sytem}: the only field is {system}; write the day as %Y-%m-%d"]),
    ("{system}.hdf5", "data.hdf5", [":4: archive: path: has no {system}: all systems would share a file"]),
    (
        "/%Y-%m-%d/",
        "/%Y-%m/",
        [
            ":4: archive: path: no file for each day: 2024-01-01 of cscratch and 2024-01-02 of cscratch would both be /var/lib/tokiod/tts/2024-01/cscratch.hdf5"
        ],
    ),
    ('"/var/lib/tokiod/tts', '"tts', [":4: archive: path: expected an absolute path, got 'tts/%Y-%m-%d/{system}.hdf5'"]),
    (
        "ipc:///run/tokiod/private/bus",
        "/run/tokiod/bus",
        [':6: bus: endpoint: expected "ipc:///an/absolute/path"'],
    ),
    (
        "ipc:///run/tokiod/private/bus",
        "tcp://0.0.0.0:5555",
        [":6: bus: endpoint: the bus is a Unix socket: use ipc, and [[host]] for sources that other hosts collect (docs/hosts.md)"],
    ),
    (
        "ipc:///run/tokiod/feed",
        "ipc:///run/tokiod/private/bus",
        [":8: feed: endpoint: the bus and the feed have the same endpoint (line 6)"],
    ),
    (
        "ipc:///run/tokiod/feed",
        "tcp://*:5556",
        [":8: feed: endpoint: tcp beyond loopback needs keys: set secret_key_file (docs/security.md), or use ipc or 127.0.0.1"],
    ),
    ("ipc:///run/tokiod/feed", "tcp://127.0.0.1", [':8: feed: endpoint: expected a port, as in "tcp://127.0.0.1:5556"']),
    (
        "127.0.0.1:9464",
        "9464",
        [':10: metrics: address: expected an IP address of this machine and a port, as in "127.0.0.1:9464" or "[::1]:9464", got \'9464\''],
    ),
    (
        "127.0.0.1:9464",
        "localhost:9464",
        [
            ':10: metrics: address: expected an IP address of this machine and a port, as in "127.0.0.1:9464" or "[::1]:9464", got \'localhost:9464\''
        ],
    ),
    (
        "mysql://lmt@db",
        "mysql://lmt:secret@db",
        [":15: source cscratch-lmt: url: a URL must not contain a secret: put it into a file or the environment and name that"],
    ),
    (
        "mysql://lmt@db/filesystem_cscratch",
        "mysql://lmt@db",
        [':15: source cscratch-lmt: url: expected "mysql://user@host:port/database", missing: database'],
    ),
    ("mysql://lmt@db/", "lmt@db/", [':15: source cscratch-lmt: url: expected "sqlite:///path" or "mysql://user@host:port/database"']),
    ('name = "collectd"', 'name = "cscratch-lmt"', [":19: source cscratch-lmt: name: another source has the same name (line 12)"]),
    (
        'name = "collectd"',
        'name = "my collectd"',
        [":19: source #2: name: expected letters, digits, '_', '.' and '-', a letter or digit first, got 'my collectd'"],
    ),
    (
        'system = "datawarp"',
        'system = "data/warp"',
        [":21: source collectd: system: expected letters, digits, '_', '.' and '-', a letter or digit first, got 'data/warp'"],
    ),
    ('kind = "collectd_es"', 'kind = "lmt"', [":23: source collectd: index: unknown key, did you mean kind?"]),
    ("https://es:9200", "es:9200", [':22: source collectd: url: expected "https://host:9200"']),
    (
        "https://es:9200",
        "https://elastic:pw@es:9200",
        [":22: source collectd: url: a URL must not contain a secret: put it into a file or the environment and name that"],
    ),
    ('[[source]]\nname = "collectd"', '[[sources]]\nname = "collectd"', [":18: sources: unknown key, did you mean source?"]),
    ("[metrics]", "[metric]", [":9: metric: unknown key, did you mean metrics?"]),
    ("[metrics]\naddress", "[metrics]\nadress", [":10: metrics: adress: unknown key, did you mean address?"]),
    ("[metrics]", "[feed]", [":9: not TOML: section [feed] is there twice (line 7)"]),
    ("[archive]", "[archive", [":3: not TOML: a closing bracket is missing: [section]"]),
    ('[archive]\npath = "/var/lib/tokiod/tts/%Y-%m-%d/{system}.hdf5"\n', "", [": archive: missing; write a section [archive]"]),
    (
        'password_file = "lmt"',
        'password_file = "lmt"\npassword_env = "LMT"',
        [":17: source cscratch-lmt: password_env: password_file is set already"],
    ),
    ('window = "60s"', "tls = True", [":17: not TOML: write tls = true"]),
    ('window = "60s"', 'tls = "yes"', [":17: source cscratch-lmt: tls: expected true or false, got text in quotes"]),
    (
        'window = "60s"',
        'tls_ca = "/etc/ca.pem"',
        [":11: source cscratch-lmt: tls: must be true for tls_ca, tls_cert and tls_key to be used"],
    ),
    ('window = "60s"', 'mdt_names = "mds"', [":17: source cscratch-lmt: mdt_names: expected mdt or host, got 'mds', did you mean mdt?"]),
    (
        'window = "60s"',
        'interval = "5 s"\nwindow = "12s"',
        [":18: source cscratch-lmt: window: 12 s is not a multiple of the source's step of 5 s"],
    ),
    ('window = "60s"', 'window: "60s"', [":17: not TOML: expected key = value"]),
    ('window = "60s"', 'window "60s"', [":17: not TOML: expected key = value"]),
    ('window = "60s"', "window = ", [":17: not TOML: window has no value"]),
    ('window = "60s"', 'max_size = "256MB"', [":17: source cscratch-lmt: max_size: unknown key, did you mean max_rate?"]),
    (
        'window = "60s"',
        'watch = "spool"',
        [":15: source cscratch-lmt: url: unknown key; a source with `watch` collects files and is not polled"],
    ),
    ('kind = "lmt"\n', "", [':11: source cscratch-lmt: kind: missing; for example kind = "lmt"']),
    ("[[source]]", "[[source", [":11: not TOML: closing brackets are missing: [[section]]"]),
    (
        "timezone =",
        "Timezone =",
        [': timezone: missing; for example timezone = "America/Los_Angeles"', ":1: Timezone: unknown key, did you mean timezone?"],
    ),
]


@pytest.mark.parametrize(
    ("right", "wrong", "messages"), MISTAKES, ids=[wrong.strip()[:40] or f"without {right[:30]}" for right, wrong, _ in MISTAKES]
)
def test_a_mistake_is_reported_with_its_line_and_a_remedy(tmp_path, right, wrong, messages):
    path = tmp_path / "tokiod.toml"
    path.write_text(CONFIGURATION)
    load(path)
    assert CONFIGURATION.count(right) >= 1
    path.write_text(CONFIGURATION.replace(right, wrong, 1))
    with pytest.raises(ConfigError) as error:
        load(path)
    assert error.value.faults == [f"{path}{message}" for message in messages]
