"""A short run of `make fuzz` on what crosses between processes, and that it finds what it looks for."""

import pytest

from tests.fuzz import messages


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(messages, "CHUNK_INPUTS", 3000)


def test_damaged_messages_are_refused_or_valid():
    found, _ = messages.chunk("1")
    assert (found["crashes"], found["hangs"]) == (0, 0)
    assert 1000 < found["refused"] < 3000


@pytest.mark.parametrize(("error", "what"), [(ZeroDivisionError, "crashes"), (TimeoutError, "hangs")])
def test_what_must_not_be_is_counted(monkeypatch, error, what):
    def fails(_frames):
        raise error

    monkeypatch.setattr(messages, "decode", fails)
    found, _ = messages.chunk("1")
    assert found[what] > 1000
