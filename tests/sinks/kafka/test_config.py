"""The section of a sink of kind kafka."""

import pytest

from sinks.kafka.config import Config
from sinks.kafka.connection import host_and_port
from tokiod.config import plugins


def config(**options):
    return Config(name="k", kind="kafka", **{"servers": ("broker1:9092",)} | options)


SCRAM = {"login": "SCRAM-SHA-512", "user": "tokiod", "password_file": "kafka-password"}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"servers": ("broker1", "10.0.0.1:9093", "[fd00::1]:9092")},
        {"topic": "site.storage"},
        {"window": 3600},
        {"tls": True, "tls_ca": "/ca.pem", "tls_cert": "/c.pem", "tls_key": "/k.pem", **SCRAM},
        {"login": "GSSAPI"},
    ],
)
def test_a_valid_section(options):
    assert config(**options).faults() == []


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"servers": ()}, "servers: at least one is required"),
        ({"servers": ("http://broker1:9092",)}, "servers: expected \"host:port\", got 'http://broker1:9092'"),
        ({"servers": ("broker1:0",)}, "servers: expected \"host:port\", got 'broker1:0'"),
        ({"topic": "a/{system}"}, "topic: 'a/{system}' is not a name of a topic: use letters, digits, `.`, `_`, `-` and `{system}`"),
        ({"window": 7}, "window: must be 1 s to 1 h, and divide 1 h"),
        ({"window": 7200}, "window: must be 1 s to 1 h, and divide 1 h"),
        ({"login": "PLAIN", "user": "tokiod"}, "login: PLAIN requires user, and password_file or password_env"),
        ({"user": "tokiod"}, 'user: user and password require login = "SCRAM-SHA-512", "SCRAM-SHA-256" or "PLAIN"'),
        ({**SCRAM, "password_env": "P"}, "password_env: password_file is set already"),
        ({"tls_ca": "/ca.pem"}, "tls: must be true if tls_ca, tls_cert or tls_key is set"),
        ({"tls": True, "tls_key": "/k.pem"}, "tls_cert: tls_cert and tls_key are required together"),
    ],
)
def test_a_fault_names_its_key(options, fault):
    assert config(**options).faults() == [fault]


def test_a_password_in_the_clear_is_a_warning():
    plain = SCRAM | {"login": "PLAIN"}
    assert config(**plain).warnings() == ["login: the password goes to broker1:9092 in the clear: set tls"]
    assert config(**plain, tls=True).warnings() == []
    assert config(**plain, servers=("localhost:9092",)).warnings() == []
    assert config(**SCRAM).warnings() == []


def test_a_server_has_a_host_and_a_port():
    assert [host_and_port(one) for one in ("b", "b:1", "[fd00::1]", "[fd00::1]:1")] == [
        ("b", 9092),
        ("b", 1),
        ("fd00::1", 9092),
        ("fd00::1", 1),
    ]


def test_the_kind_makes_a_sink_as_often_as_it_is_asked():
    """A submodule of the name `sink` would replace the function."""
    kind = plugins.load_sink("kafka")
    assert [type(kind.sink(config(), None)).__name__ for _ in range(2)] == ["KafkaSink", "KafkaSink"]
