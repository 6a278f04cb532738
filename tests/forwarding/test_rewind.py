"""Requests to rewind: files that any process of the sink can read, each for itself."""

import stat

import pytest

from tokiod.errors import TokiodError
from tokiod.forwarding import rewind


def test_each_request_is_a_file_of_its_own_until_it_is_done(tmp_path):
    for start in (500, 100, 500):
        rewind.request(tmp_path, start)
    found = rewind.requested(tmp_path)
    assert sorted(found.values()) == [100, 500, 500]
    assert {stat.S_IMODE(path.stat().st_mode) for path in found} == {0o644}
    assert {*tmp_path.iterdir()} == {*found}
    rewind.done([*found][:1] * 2)
    assert rewind.requested(tmp_path) == dict([*found.items()][1:])


def test_a_malformed_request_is_removed_and_the_others_are_followed(tmp_path):
    rewind.request(tmp_path, 100)
    for name, text in (("0", "{"), ("1", '{"start": "noon"}'), ("2", "{}")):
        (tmp_path / f"rewind-{name}.json").write_text(text)
    assert list(rewind.requested(tmp_path).values()) == [100]
    assert len([*tmp_path.iterdir()]) == 1


def test_a_sink_that_never_ran_has_nothing_to_rewind(tmp_path):
    with pytest.raises(TokiodError, match="x does not exist: the sink has never run, and sends all rows at its first start"):
        rewind.request(tmp_path / "x", 0)
    assert rewind.requested(tmp_path / "x") == {}
