"""sinks/elasticsearch without a server: its section, its documents, and what it does with the answers of a server."""

import asyncio
from collections import Counter

import msgspec
import pytest

from sinks import elasticsearch
from sinks.elasticsearch.delivery import ElasticsearchSink
from sinks.elasticsearch.documents import actions, id_of, index_of
from sinks.elasticsearch.mapping import FIELDS, templates
from tokiod.change_sink import SinkSite
from tokiod.errors import Fatal, Transient
from tokiod.testing.sink_contract import START, rows_of
from tokiod.toolkit.search_server import Busy
from tokiod.tts.schema import UNITS
from tokiod.window import Window

URL = "http://127.0.0.1:9200"


def config(**options):
    return elasticsearch.Config(name="s", kind="elasticsearch", **{"url": URL} | options)


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"url": "ftp://x"}, "url: expected"),
        ({"url": "http://me:secret@x"}, "url: must not contain"),
        ({"prefix": "Tokiod"}, "prefix: expected"),
        ({"request_timeout": 0}, "request_timeout: must be greater than zero"),
        ({"user": "me"}, "user: requires"),
        ({"password_file": "p", "password_env": "P", "user": "me"}, "password_env: password_file is set already"),
        ({"tls_ca": "/ca.pem"}, "url: must begin with https"),
    ],
)
def test_contradictions_of_the_section_are_faults(options, fault):
    assert [one for one in config(**options).faults() if one.startswith(fault)]


def test_a_secret_without_tls_is_warned_of():
    assert "without TLS" in config(url="http://elastic1:9200", api_key_file="k").warnings()[0]
    assert config(api_key_file="k").warnings() == []


def test_the_template_has_every_metric_and_no_metric_has_the_name_of_another_field():
    fields = templates("t")["t"]["template"]["mappings"]
    assert fields["dynamic"] == "strict"
    names = {name.partition("/")[2] for name in UNITS}
    assert names <= set(fields["properties"])
    assert not names & set(FIELDS)


def test_indices_are_those_of_the_month_in_utc():
    assert index_of("t", "Cori", 1_517_443_199) == "t-cori-2018.01"
    assert index_of("t", "Cori", 1_517_443_200) == "t-cori-2018.02"


def test_ids_differ_by_each_of_their_parts():
    ids = {id_of(system, group, component, time) for system in "ab" for group in "ab" for component in "ab" for time in (1, 2)}
    assert len(ids) == 16


def test_a_component_without_a_cell_is_deleted_with_the_revision():
    block = rows_of("fullness/bytes", Window(START, START + 120), 7, columns=2)
    block.values[0] = float("nan")
    first, *_ = actions("t", "fullness", [block], block.columns)
    assert (msgspec.json.decode(first.head)["delete"]["version"], first.body) == (7, b"")


class Answers:
    """A server with given statuses of documents, one list for each bulk request."""

    def __init__(self, *statuses):
        self.statuses, self.requests = list(statuses), []

    async def json(self, _method, _target, into, body):
        self.requests.append(body)
        if self.statuses[0] == "busy":
            self.statuses.pop(0)
            raise Busy("HTTP status 429")
        error = {"type": "mapper_parsing_exception", "reason": "not a number"}
        items = [{"index": {"status": status} | ({"error": error} if status >= 400 else {})} for status in self.statuses.pop(0)]
        return msgspec.convert({"items": items}, into)

    def __str__(self):
        return URL


def delivered(tmp_path, monkeypatch, *statuses):
    monkeypatch.setattr("sinks.elasticsearch.delivery.backoff", lambda *_: 0.0)
    sink = ElasticsearchSink(config(), SinkSite(str, tmp_path))
    sink._server = Answers(*statuses)
    block = rows_of("fullness/bytes", Window(START, START + 60), 7, columns=3)
    block.values[:] = 1.0
    return asyncio.run(sink.send([block])), sink._server.requests


def test_documents_that_a_busy_server_refuses_are_sent_again_alone(tmp_path, monkeypatch):
    done, requests = delivered(tmp_path, monkeypatch, [201, 429, 503], [429, 200], [409])
    assert (done.records, done.rejected) == (3, Counter())
    assert [body.count(b"_id") for body in requests] == [3, 2, 1]


def test_a_request_that_a_busy_server_refuses_is_sent_again_and_what_was_stored_before_is_not(tmp_path, monkeypatch):
    done, requests = delivered(tmp_path, monkeypatch, [201, 429, 201], "busy", [201])
    assert (done.records, done.rejected) == (3, Counter())
    assert [body.count(b"_id") for body in requests] == [3, 1, 1]


def test_a_rejected_document_is_stored_by_a_busy_server_too_and_counted_once(tmp_path, monkeypatch):
    done, requests = delivered(tmp_path, monkeypatch, [201, 400, 201], "busy", [429], [201])
    assert (done.records, done.rejected) == (2, Counter(mapper_parsing_exception=1))
    assert len(requests) == 4


def test_a_rejected_document_is_stored_apart_with_its_reason_and_the_rest_goes_on(tmp_path, monkeypatch):
    done, requests = delivered(tmp_path, monkeypatch, [201, 400, 201], [201])
    assert (done.records, done.rejected) == (2, Counter(mapper_parsing_exception=1))
    stored = msgspec.json.decode(requests[-1].split(b"\n")[1])
    assert (stored["index"], stored["reason"]) == ("tokiod-cscratch-2026.01", "mapper_parsing_exception: not a number")
    assert msgspec.json.decode(stored["document"])["component"] == "OST0001"


def test_an_answer_that_lacks_items_is_transient(tmp_path, monkeypatch):
    with pytest.raises(Transient, match="the answer has 2 of 3 items"):
        delivered(tmp_path, monkeypatch, [201, 201])


def test_components_that_can_not_be_noted_are_not_sent(tmp_path, monkeypatch):
    with pytest.raises(Transient, match=r"components.json can't be written: No such file or directory"):
        delivered(tmp_path / "gone", monkeypatch, [201, 201, 201])


def test_a_last_request_may_be_exactly_full(tmp_path, monkeypatch):
    monkeypatch.setattr("sinks.elasticsearch.delivery.BULK_BYTES", 1)
    done, requests = delivered(tmp_path, monkeypatch, [201], [201], [201])
    assert (done.records, len(requests)) == (3, 3)


def test_a_document_that_the_user_may_not_write_is_fatal(tmp_path, monkeypatch):
    with pytest.raises(Fatal, match="no permission to write to tokiod-cscratch"):
        delivered(tmp_path, monkeypatch, [201, 403, 201])
