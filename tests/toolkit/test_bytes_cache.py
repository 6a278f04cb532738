"""Results are kept for the bytes used last, and never for more bytes than the limit."""

from hypothesis import given
from hypothesis import strategies as st

from tokiod.toolkit.bytes_cache import cached_for_bytes


def test_results_are_kept_for_as_many_bytes_as_the_limit_and_the_oldest_go_first():
    calls = []

    @cached_for_bytes(10)
    def length(data, factor=1):
        calls.append((data, factor))
        return len(data) * factor

    assert [length(b"12345"), length(b"12345"), length(b"12345", 2), length(b"12345"), length(b"123", 3), length(b"12345", 2)] == [
        5, 5, 10, 5, 9, 10,
    ]  # fmt: skip
    assert calls == [(b"12345", 1), (b"12345", 2), (b"123", 3), (b"12345", 2)]


def test_longer_bytes_are_not_kept():
    calls = []
    function = cached_for_bytes(3)(calls.append)
    for _ in range(2):
        function(b"1234")
    assert calls == [b"1234"] * 2


@given(st.lists(st.binary(max_size=6)))
def test_a_result_is_that_of_the_function(keys):
    function = cached_for_bytes(9)(bytes.hex)
    assert [function(key) for key in keys] == [key.hex() for key in keys]
