"""What a sink reads of the change log: by real ledgers, and by a slow reference."""

import sqlite3
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from written_archive import MIDNIGHT, WrittenArchive

from tokiod.errors import Transient
from tokiod.forwarding.change_reader import ChangeReader, _data_ends, spans
from tokiod.ledger.changes import Change
from tokiod.testing import FakeClock
from tokiod.window import Window

CHANGES = st.tuples(st.sampled_from("abc"), st.integers(0, 20), st.integers(1, 6), st.sampled_from(["rows", "sealed", "lost"]))


@pytest.fixture
def archive(tmp_path):
    made = WrittenArchive(tmp_path, FakeClock(MIDNIGHT))
    yield made
    made.close()


@pytest.fixture
def reader(archive, tmp_path):  # noqa: ARG001 - its directory
    return ChangeReader(tmp_path / "tts/.tokiod-readers/ledger.sqlite3")


def test_a_part_has_the_changes_after_a_number_and_how_many_there_are(archive, reader):
    assert reader.read(-1) is None
    for n in range(4):
        archive.store(MIDNIGHT + n * 7200, 2, 1, np.random.default_rng(1))
    archive.publish()
    state, every = archive.ledger.changes.state(), archive.ledger.changes.after(-1, 99)
    whole = reader.read(-1)
    assert (whole.state, whole.changes, whole.waiting) == (state, tuple(every), archive.ledger.changes.windows_after(-1))
    part = reader.read(every[0].seq, 2)
    assert (part.changes, part.waiting) == (tuple(every[1:3]), archive.ledger.changes.windows_after(every[0].seq))
    archive.ledger.changes.note("other", [(60 * n, 60 * n + 30) for n in range(1001)], "rows", MIDNIGHT)
    archive.publish()
    assert len(reader.read(-1).changes) == 1000


def test_a_copy_without_changes_is_read_once_until_it_is_another(archive, reader):
    archive.store(MIDNIGHT, 2, 1, np.random.default_rng(1))
    archive.publish()
    head = archive.ledger.changes.state().head
    none = reader.read(head)
    assert (none.changes, none.waiting) == ((), 0)
    assert reader.read(head) is none
    assert len(reader.read(head - 1).changes) == 1
    archive.store(MIDNIGHT + 7200, 2, 1, np.random.default_rng(1))
    archive.publish()
    assert [change.seq > head for change in reader.read(head).changes] == [True] * len(reader.read(head).changes) != []


def test_without_a_copy_there_is_nothing_to_read(archive, reader, tmp_path):
    archive.publish()
    assert reader.read(-1) is not None
    (tmp_path / "tts/.tokiod-readers/ledger.sqlite3").unlink()
    assert reader.read(-1) is None


@pytest.mark.parametrize("error", ["SQLITE_BUSY", "SQLITE_IOERR", "SQLITE_NOMEM", "SQLITE_CORRUPT", "SQLITE_NOTADB"])
def test_a_copy_that_can_not_be_opened_for_a_moment_is_read_again_soon(archive, reader, monkeypatch, error):
    """The writer replaces a damaged copy by its next one."""
    archive.publish()
    failure = sqlite3.DatabaseError(error)
    failure.sqlite_errorcode = getattr(sqlite3, error)
    with monkeypatch.context() as patch:
        patch.setattr("tokiod.ledger.database.sqlite3.connect", lambda *_, **__: _raise(failure))
        with pytest.raises(Transient, match=error):
            reader.read(-1)
    assert reader.read(-1) is not None


def _raise(error):
    raise error


def test_the_data_of_a_system_ends_with_the_newest_of_its_sources():
    ends = [("a", 5), ("a", 9), ("a", None), ("a", 7), ("b", None), ("c", 3)]
    rows = [SimpleNamespace(system=system, data_end=end) for system, end in ends]
    assert _data_ends(SimpleNamespace(sources=lambda: rows)) == {"a": 9, "c": 3}


@given(st.lists(CHANGES, max_size=10), st.sets(st.sampled_from("abc")))
def test_spans_are_what_changed_of_some_systems_but_for_sealings(found, systems):
    changes = [
        Change(n + 1, system, f"s{n}", Window(start, start + length), kind, 0.0) for n, (system, start, length, kind) in enumerate(found)
    ]
    expected = {}
    for one in changes:
        if one.system in systems and one.kind != "sealed":
            expected |= {(one.system, second): None for second in range(one.window.start, one.window.end)}
    result = spans(changes, systems)
    covered = [(one.system, second) for one in result for second in range(one.window.start, one.window.end)]
    assert covered == sorted(expected)
    for one, after in pairwise(result):
        assert one.system != after.system or one.window.end < after.window.start
    for one in result:
        inside = [
            c.seq for c in changes if c.kind != "sealed" and c.system == one.system and one.window.start <= c.window.start < one.window.end
        ]
        assert one.seq == max(inside)
