"""Messages are decoded as they were encoded; anything else is Malformed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokiod.bus import protocol
from tokiod.bus.header import Piece
from tokiod.bus.protocol import Ack, Beat, Hello, Reject, Welcome
from tokiod.errors import Malformed, Refusal

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
number = st.integers(0, 2**53)
from_writer = st.one_of(
    st.builds(Welcome, text, number),
    st.builds(Ack, text, text, number, number, number, number, st.dictionaries(text, number, max_size=3)),
    st.builds(Reject, text, text, number, number, number, text, st.booleans()),
    st.builds(Beat, text, number),
)


@given(from_writer)
def test_a_message_of_the_writer_is_decoded(message):
    assert protocol.decode_from_writer(protocol.encode(message)) == message


@given(text, number)
def test_a_hello_is_decoded(sender, connection):
    assert protocol.decode_hello(protocol.encode(Hello(sender, connection))) == Hello(sender, connection)


def test_a_hello_of_another_version_is_malformed():
    with pytest.raises(Malformed) as caught:
        protocol.decode_hello(protocol.encode(Hello("me", 1, version=9)))
    assert caught.value.reason == "version"


def test_a_hello_with_a_long_name_is_malformed_because_the_writer_keeps_it():
    protocol.decode_hello(protocol.encode(Hello("x" * 200, 1)))
    with pytest.raises(Malformed, match="control"):
        protocol.decode_hello(protocol.encode(Hello("x" * 201, 1)))


@given(from_writer, st.data())
def test_neither_end_accepts_messages_of_the_other_or_parts_of_them(message, data):
    frame = protocol.encode(message)
    cut = data.draw(st.integers(0, len(frame) - 1))
    for decode, junk in ((protocol.decode_hello, frame), (protocol.decode_hello, frame[:cut]), (protocol.decode_from_writer, frame[:cut])):
        with pytest.raises(Malformed) as caught:
            decode(junk)
        assert caught.value.reason == "control"


@pytest.mark.parametrize("decode", [protocol.decode_hello, protocol.decode_from_writer])
@pytest.mark.parametrize("junk", [b"", b"{}", b"null", b"\xff", b'{"type":"beat"}', b'{"a":' + b"[" * 100_000])
def test_junk_is_malformed(decode, junk):
    with pytest.raises(Malformed) as caught:
        decode(junk)
    assert caught.value.reason == "control"


@pytest.mark.parametrize(("when", "retry", "later"), [("never", False, False), ("retry", True, False), ("busy", True, True)])
def test_a_refusal_is_two_flags_on_the_bus_and_comes_out_as_it_was(when, retry, later):
    message = protocol.Reject.of("one", Piece("src", "lmt", 0, 60, 7, 0, 1), Refusal("disk full", when))
    assert message == protocol.Reject("one", "src", 0, 60, 7, "disk full", retry, later)
    assert (message.refusal.message, message.refusal.when) == ("disk full", when)
