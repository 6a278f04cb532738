from __future__ import annotations

from tokiod.dropped import EXAMPLE_LENGTH, Dropped, Why, escaped, sentence, shape


def test_the_first_example_of_a_reason_is_kept_and_all_are_counted():
    dropped = Dropped()
    dropped.add("no host")
    dropped.add("no host", 2, b"{}", "set host_field")
    dropped.add("no host", 1, b"[]")
    dropped.add("no time", 0, "never")
    assert dropped.counts == {"no host": 4}
    assert dropped.why == {"no host": Why("{}", "set host_field")}


def test_parts_of_an_input_are_added():
    one, other = Dropped(), Dropped()
    one.add("no host", 1, "a")
    other.add("no host", 2, "b")
    other.add("no time", 3, "c")
    one.take(other)
    assert one.counts == {"no host": 3, "no time": 3}
    assert one.why == {"no host": Why("a"), "no time": Why("c")}


def test_an_example_is_printable_ascii_of_a_bounded_length():
    assert escaped("a\x1b[31m\n\u202e") == "a\\x1b[31m\\n\\u202e"
    assert escaped(b"\xff'") == "\\xff'"
    assert escaped("x" * EXAMPLE_LENGTH) == "x" * EXAMPLE_LENGTH
    assert escaped("x" * 81) == "x" * 77 + "..."
    assert len(escaped("\x00" * 1000)) == EXAMPLE_LENGTH


def test_a_shape_has_no_letter_and_no_digit_of_a_text():
    assert shape("été-x.48151:[n_1]\n".encode()) == "aaaaa-a.00000:[a_0]a"


def test_the_only_reason_of_an_input_that_gave_nothing_is_the_message():
    why = {"no host": Why("{}", "set host_field")}
    assert sentence({"no host": 4}, why, 0) == 'nothing could be read: 4 x no host, for example "{}" (set host_field)'
    assert sentence({"no host": 1, "no time": 2}, why, 7) == 'dropped: 2 x no time; 1 x no host, for example "{}" (set host_field)'
    assert sentence({"no host": 0}, why, 0) == ""
