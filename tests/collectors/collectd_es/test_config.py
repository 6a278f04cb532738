"""What a section of collectd_es may contain, and what is queried then."""

import re

import pytest

from collectors import collectd_es
from collectors.collectd_es.datasets import DATASETS, Fields
from tokiod.collector import Site
from tokiod.config import load as configuration
from tokiod.testing.clock import FakeClock
from tokiod.window import Calendar

STANZA = """\
timezone = "UTC"
[archive]
path = "/tmp/tts/%Y-%m-%d/{system}.hdf5"
[[source]]
name = "bb"
kind = "collectd_es"
system = "bb"
"""


@pytest.fixture
def load(tmp_path):
    def load(text):
        path = tmp_path / "tokiod.toml"
        path.write_text(STANZA + text)
        return configuration.load(path).source[0]

    return load


def config(**options):
    return collectd_es.Config(**{"name": "bb", "kind": "collectd_es", "system": "bb", "url": "https://es:9200"} | options)


def test_a_url_is_enough(load):
    found = load('url = "http://es:9200"')
    assert (found.step, found.datasets(), found.read, found.slices, found.page) == (10, set(DATASETS), "auto", 1, 10_000)
    assert (int(found.settle), int(found.keep_alive), found.fields) == (60, 60, Fields())


def test_spans_fields_and_datasets_are_read(load):
    found = load(
        'url = "http://es:9200"\ninterval = "30s"\nkeep_alive = "2m"\nrequest_timeout = "5s"\nrecount = ["2h"]\n'
        'collect = ["dataservers/cpuload"]\nfields = { host = "host.name" }\n'
    )
    assert (found.step, int(found.keep_alive), int(found.request_timeout), list(map(int, found.recount))) == (30, 120, 5, [7200])
    assert (found.datasets(), found.fields.host, found.fields.time) == ({"dataservers/cpuload"}, "host.name", "@timestamp")


WRONG = {
    "a password in the url": ({"url": "https://me:secret@es:9200"}, "url: must not contain a user or a password"),
    "no scheme": ({"url": "es:9200"}, 'url: expected "https://host:9200"'),
    "another scheme": ({"url": "mysql://es"}, 'url: expected "https://host:9200"'),
    "a port that is none": ({"url": "http://es:99999"}, "url: is malformed"),
    "capitals in an index": ({"index": "Collectd-*"}, "index: 'Collectd-*' is not a valid name of an index"),
    "no index": ({"index": ""}, "index: '' is not a valid name of an index"),
    "a slash in an index": ({"index": "a/b"}, "index: 'a/b' is not a valid name of an index"),
    "an hour in a template": ({"index": "a-%Y.%m.%d.%H"}, "index: %H is not supported"),
    "a broken expression": ({"hosts": "bb["}, "hosts: not a regular expression"),
    "a user without a password": ({"user": "me"}, "user: requires password_file or password_env"),
    "a password without a user": ({"password_env": "P"}, "user: requires password_file or password_env"),
    "two passwords": ({"user": "me", "password_env": "P", "password_file": "p"}, "password_env: password_file is set already"),
    "two keys": ({"api_key_env": "P", "api_key_file": "p"}, "api_key_env: api_key_file is set already"),
    "a user and a key": (
        {"user": "me", "password_env": "P", "api_key_env": "K"},
        "api_key_env: set either a user with a password or an API key",
    ),
    "half a certificate": ({"tls_cert": "c"}, "tls_cert: tls_cert and tls_key are required together"),
    "TLS without https": ({"url": "http://es", "tls_ca": "ca"}, "url: must begin with https://"),
    "no interval": ({"interval": 0}, "interval: must be greater than zero"),
    "an unknown dataset": ({"collect": ("datatargets/nonsense",)}, "collect: unknown dataset datatargets/nonsense"),
    "no dataset": ({"collect": ()}, "collect: at least one dataset is required"),
    "two fields of one name": ({"fields": Fields(host="plugin")}, "fields: "),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_error_names_its_field_and_never_contains_a_secret(name):
    options, sentence = WRONG[name]
    (fault,) = config(**options).faults()
    assert fault.startswith(sentence)
    assert "secret" not in fault


def test_a_valid_section_has_no_error():
    right = config(index="a-%Y.%m.%d", user="me", password_file="p", tls_ca="ca", tls_cert="c", tls_key="k", hosts="bb[0-9]+")
    assert right.faults() == []


def test_a_source_limited_to_some_datasets_brings_no_others():
    some = config().only(frozenset({"dataservers/cpuload", "fullness/bytes"}))
    assert some.datasets() == {"dataservers/cpuload"}
    assert config().only(frozenset(DATASETS)) == config()


def test_a_collector_is_made_without_a_server_and_without_its_secret():
    collector = collectd_es.live(config(user="me", password_env="NOT_THERE"), Site(Calendar("UTC"), FakeClock()))
    assert (collector.step, collector.replayable, collector.needs_sample_at_end) == (10, True, False)
    assert not re.search("NOT_THERE", repr(collector))
