"""Messages are decoded as they were encoded; anything else is Malformed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokiod.bus import protocol
from tokiod.bus.protocol import Ack, Beat, Hello, Part, Refused, Reject, Welcome
from tokiod.errors import Malformed, Refusal
from tokiod.window import Window
from tokiod.window_data import WindowMeta

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
number = st.integers(0, 2**53)
name = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,20}", fullmatch=True)
count, second = st.integers(0, 2**53 - 1), st.integers(0, 250_000_000_000 - 1)
windows = st.tuples(second, second).filter(lambda ends: ends[0] < ends[1]).map(lambda ends: Window(*ends))
metas = st.builds(
    WindowMeta,
    name,
    name,
    name,
    windows,
    st.none() | count,
    st.dictionaries(text, count, max_size=2),
    st.sampled_from(["whole", "some", "seam"]),
)
from_writer = st.one_of(
    st.builds(Welcome, text, number),
    st.builds(Refused, text, text),
    st.builds(Ack, text, text, number, number, number, number, st.dictionaries(text, number, max_size=3)),
    st.builds(Reject, text, text, number, number, number, text, st.booleans()),
    st.builds(Beat, text, number),
)


@given(from_writer)
def test_a_message_of_the_writer_is_decoded(message):
    assert protocol.decode_from_writer(protocol.encode(message)) == message


@given(text, number, number)
def test_a_hello_is_decoded_of_whatever_version(sender, connection, version):
    hello = Hello(sender, connection, version)
    assert protocol.decode_from_collector(protocol.encode(hello)) == hello


@given(metas, count, count, count)
def test_a_part_is_decoded_and_knows_its_window(meta, attempt, part, parts):
    sent = Part.of(meta, attempt, part, parts)
    assert protocol.decode_from_collector(protocol.encode(sent)) == sent
    assert sent.meta(meta.records, meta.dropped) == meta


@pytest.mark.parametrize("names", [("a/b", "k", "s"), ("s", "../k", "s"), ("s", "k", ""), ("s", "k", "s\n"), ("x" * 201, "k", "s")])
def test_no_part_is_made_of_names_that_the_writer_would_not_take(names):
    with pytest.raises(Malformed, match="is not a name of a source, kind or system"):
        Part.of(WindowMeta(*names, Window(0, 60)), 1)


def test_a_hello_with_a_long_name_is_malformed_because_the_writer_keeps_it():
    protocol.decode_from_collector(protocol.encode(Hello("x" * 200, 1)))
    with pytest.raises(Malformed, match="control"):
        protocol.decode_from_collector(protocol.encode(Hello("x" * 201, 1)))


@given(from_writer, st.data())
def test_neither_end_accepts_messages_of_the_other_or_parts_of_them(message, data):
    frame = protocol.encode(message)
    cut = data.draw(st.integers(0, len(frame) - 1))
    ours, theirs = protocol.decode_from_collector, protocol.decode_from_writer
    for decode, junk in ((ours, frame), (ours, frame[:cut]), (theirs, frame[:cut])):
        with pytest.raises(Malformed) as caught:
            decode(junk)
        assert caught.value.reason == "control"


@pytest.mark.parametrize("decode", [protocol.decode_from_collector, protocol.decode_from_writer])
@pytest.mark.parametrize("junk", [b"", b"{}", b"null", b"\xff", b'{"type":"beat"}', b'{"a":' + b"[" * 100_000])
def test_junk_is_malformed(decode, junk):
    with pytest.raises(Malformed) as caught:
        decode(junk)
    assert caught.value.reason == "control"


@pytest.mark.parametrize(("when", "retry", "later"), [("never", False, False), ("retry", True, False), ("busy", True, True)])
def test_a_refusal_is_two_flags_on_the_bus_and_comes_out_as_it_was(when, retry, later):
    message = protocol.Reject.of("one", Part.of(WindowMeta("src", "lmt", "fs", Window(0, 60)), 7), Refusal("disk full", when))
    assert message == protocol.Reject("one", "src", 0, 60, 7, "disk full", retry, later)
    assert (message.refusal.message, message.refusal.when) == ("disk full", when)
