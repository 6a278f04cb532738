"""Folding messages: parts are joined, and the highest revision counts."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokiod.bus import keyed_messages
from tokiod.change_sink import Block
from tokiod.consume import Fold

START = 1_767_261_600


@pytest.fixture
def small_parts(monkeypatch):
    """Cut windows after two columns."""
    monkeypatch.setattr(keyed_messages, "MAX_PART_BYTES", 2 * (12 * 8 + 5))
    keyed_messages._column_groups.cache_clear()
    yield
    keyed_messages._column_groups.cache_clear()


def window(revision, columns=5, start=START, epoch=1):
    values = np.full((12, columns), float(revision))
    return Block("s", "g/d", start, 5, tuple(f"c{i:02}" for i in range(columns)), values, "bytes", revision, epoch)


def messages(*args, **options):
    return list(keyed_messages.encode(window(*args, **options), 60))


def taken(fold, some):
    return [update for one in some if (update := fold.take(one.key, one.headers, one.value)) is not None]


@pytest.mark.usefixtures("small_parts")
def test_a_window_comes_once_all_of_its_parts_are_there():
    parts = messages(7)
    assert len(parts) == 3
    fold = Fold()
    assert taken(fold, parts[:2]) == []
    (update,) = taken(fold, parts[2:])
    assert np.array_equal(update.values, window(7).values)
    assert update.batch.columns == window(7).columns
    assert (update.start, update.end, update.revision, update.units) == (START, START + 60, 7, "bytes")


@pytest.mark.usefixtures("small_parts")
def test_parts_of_two_revisions_are_never_joined():
    """A sink that was killed among the parts of a window sends all of them again, with this or a higher revision."""
    fold, old, new = Fold(), messages(7), messages(8)
    assert taken(fold, [*old[:2], new[0], old[2], new[1]]) == []
    assert [update.revision for update in taken(fold, new[2:])] == [8]
    assert fold.outdated == 1
    assert taken(fold, old) == []


@pytest.mark.usefixtures("small_parts")
def test_a_window_of_fewer_parts_replaces_the_parts_that_a_compacted_topic_still_has():
    fold = Fold()
    assert taken(fold, messages(7)[1:]) == []
    assert [update.batch.columns for update in taken(fold, messages(8, columns=2))] == [("c00", "c01")]
    assert fold.first_incomplete(("", 0)) is None


@pytest.mark.usefixtures("small_parts")
def test_what_was_read_reaches_to_the_first_window_that_lacks_parts():
    """Until the next window of the system: a sink sends all parts of one before it, so these are gone from the topic and never come."""
    fold, other = Fold(), list(keyed_messages.encode(msgspec.structs.replace(window(9), system="r"), 60))
    for offset, one in enumerate([messages(7)[0], *other, messages(7)[1]]):
        fold.take(one.key, one.headers, one.value, ("t", 2), 100 + offset)
    assert (fold.first_incomplete(("t", 2)), fold.first_incomplete(("t", 1))) == (100, None)
    for place, first in ((("t", 1), 100), (("t", 2), None)):
        (one,) = messages(8, columns=2, start=START + 60)
        assert fold.take(one.key, one.headers, one.value, place, 105) is not None
        assert (fold.first_incomplete(("t", 2)), fold.incomplete) == (first, int(first is None))
    assert [update.revision for update in taken(fold, messages(7))] == [7]


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 9)), min_size=1, max_size=20))
def test_the_last_update_is_that_of_the_highest_epoch_and_revision(order):
    fold = Fold()
    found = taken(fold, [one for epoch, revision in order for one in messages(revision, epoch=epoch)])
    assert (found[-1].epoch, found[-1].revision) == max(order)
    assert len(found) + fold.outdated == len(order)


def test_of_the_same_revision_the_last_one_counts():
    fold = Fold()
    assert len(taken(fold, [*messages(7), *messages(7)])) == 2


def test_memory_is_bounded():
    fold = Fold(remembered=10)
    for number in range(1000):
        taken(fold, messages(7, start=START + 60 * number))
    assert len(fold._newest) == 10
    taken(fold, messages(6, start=START + 60 * 999))
    assert fold.outdated == 1


def test_malformed_messages_are_counted():
    fold = Fold()
    (one,) = messages(7, columns=2)
    assert fold.take(one.key, [], one.value) is None
    assert fold.take(None, one.headers, one.value) is None
    assert fold.malformed == 2
    assert len(taken(fold, [one])) == 1
