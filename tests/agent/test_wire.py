"""Messages from the hub: whatever comes, the agent goes on."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokiod.agent import wire
from tokiod.agent.metric import Metric
from tokiod.hub import messages


def test_what_an_agent_sends_is_what_the_hub_reads():
    sent = wire.row("nid1", "s", 60, 130.5, 0.25, [1, None, 2.5], {"cpu: malformed": 2})
    version, row = messages.decode(sent)
    assert version == wire.VERSION
    assert (row.node, row.start, row.time, row.ahead, row.values, row.dropped) == (
        "nid1",
        60,
        130.5,
        0.25,
        [1.0, None, 2.5],
        {"cpu: malformed": 2},
    )
    assert messages.decode(wire.row("nid1", "s", 60, 1.0, 0.0, None, {}))[1].values is None
    examples = {"cpu: malformed": "ValueError: x"}
    assert messages.decode(wire.row("nid1", "s", 60, 1.0, 0.0, [], {"cpu: malformed": 1}, (), examples))[1].examples == examples
    # An older hub's decoder need not know the field.
    assert "examples" not in json.loads(sent)[1]


def test_messages_are_short_json_of_the_first_version():
    metrics = [Metric("a", "B", "counter", "about")]
    assert wire.hello("nid1", "s", "9", 60, 7, metrics, metrics[:0]) == (
        b'[1,{"type":"hello","node":"nid1","session":"s","tokiod":"9","step":60,"since":7,"metrics":[["a","B","counter"]],"job_metrics":[]}]'
    )
    assert wire.row("nid1", "s", 60, 1.5, 0.0, [1, None], {"r": 2}, [("j", None, 1.0, True, [3])], {"r": "x"}) == (
        b'[1,{"type":"row","node":"nid1","session":"s","start":60,"time":1.5,"ahead":0.0,"values":[1,null],"dropped":{"r":2},'
        b'"jobs":[["j",null,1.0,true,[3]]],"examples":{"r":"x"}}]'
    )
    with pytest.raises(ValueError, match="not JSON compliant"):
        wire.row("nid1", "s", 60, 1.5, 0.0, [float("nan")], {})


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (b"[1]", "not enough values to unpack"), (b'[1,{"type":"x"}]', "unknown message 'x'"),
        (b'[2,{"type":"refuse"}]', "the hub speaks version 2, this agent version 1"),
        (b'[1,{"type":"refuse"}]', "malformed message: KeyError: 'reason'"), (b"[1,2]", "malformed message: TypeError: "),
        (b'[1,{"type":"ask","start":1e999,"end":0,"time":0,"within":0}]', "malformed message: OverflowError: "),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_message_is_said(message, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        wire.from_hub(message)


def test_what_the_hub_sends_is_what_an_agent_reads():
    assert wire.from_hub(messages.ask(wire.VERSION, 0, 120, 7.5, 3.0)) == wire.Ask(0, 120, 7.5, 3.0)
    assert wire.from_hub(messages.refuse(wire.VERSION, "class")) == wire.Refused("class")


def test_fields_that_a_reader_does_not_know_are_ignored():
    message = json.loads(messages.ask(wire.VERSION, 0, 60, 1.0, 2.0))
    message[1]["more"] = [1]
    assert wire.from_hub(json.dumps(message).encode()) == wire.Ask(0, 60, 1.0, 2.0)
    row = json.loads(wire.row("nid1", "s", 60, 1.0, 0.0, [1], {}))
    row[1]["more"] = {"a": 1}
    assert messages.decode(json.dumps(row).encode())[1].values == [1.0]


json_values = st.recursive(st.none() | st.booleans() | st.floats() | st.text(), lambda of: st.lists(of) | st.dictionaries(st.text(), of))


@given(st.binary() | json_values.map(lambda of: json.dumps([wire.VERSION, of]).encode()))
def test_anything_else_is_a_value_error(message):
    with pytest.raises(ValueError):  # noqa: PT011 - any text: it is shown as it is
        wire.from_hub(message)


def test_a_reason_of_the_hub_can_be_written_to_the_log_and_to_systemd():
    refused = b'[1,{"type":"refuse","reason":"a\\ud800\\nb"}]'
    assert wire.from_hub(refused) == wire.Refused(r"a\ud800\nb")


def test_another_version_is_named():
    with pytest.raises(ValueError, match="the hub speaks version 9"):
        wire.from_hub(messages.ask(9, 0, 60, 1.0, 2.0))
