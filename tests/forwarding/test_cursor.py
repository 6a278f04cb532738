"""The cursor's backlog by a slow reference, and its file in every condition."""

import errno
from collections import defaultdict

import pytest
from faulty_files import FaultyFiles
from hypothesis import given
from hypothesis import strategies as st

from tokiod.errors import TokiodError, Transient
from tokiod.forwarding.cursor import Backlog, Cursor, CursorFile, StoredDay
from tokiod.window import Window

SPANS = st.tuples(st.sampled_from("ab"), st.integers(0, 20), st.integers(1, 8), st.integers(1, 9), st.booleans())


@given(st.lists(SPANS, max_size=12))
def test_a_backlog_has_the_seconds_that_were_put_off_and_not_sent_and_their_highest_revision(steps):
    cursor, seconds, revisions = Cursor(1, 5), defaultdict(set), {}
    for system, start, length, revision, is_sent in steps:
        window = Window(start, start + length)
        if not is_sent:
            cursor = cursor.later(system, window, revision)
            revisions[system] = max(revision, revisions.get(system, 0))
            seconds[system] |= {*range(window.start, window.end)}
        elif system in cursor.backlog:
            cursor = cursor.sent(system, window)
            seconds[system] -= {*range(window.start, window.end)}
            if not seconds[system]:
                del revisions[system]
        left = {name: one for name, one in seconds.items() if one}
        assert {name: {n for span in one.spans for n in range(*span)} for name, one in cursor.backlog.items()} == left
        assert {name: one.revision for name, one in cursor.backlog.items()} == revisions
        assert cursor.backlog_seconds == sum(map(len, left.values()))
        assert cursor.newest_of_backlog() == newest_of(left, revisions)


def newest_of(left, revisions):
    if not left:
        return None
    system = max(left, key=lambda name: (max(left[name]), name))
    start = end = max(left[system]) + 1
    while start - 1 in left[system]:
        start -= 1
    return system, Window(start, end), revisions[system]


def test_a_later_change_of_a_lower_number_lowers_no_revision():
    assert Backlog(9).with_span(Window(0, 5), 3) == Backlog(9, ((0, 5),))
    assert Cursor(1, 5).later("a", Window(0, 5), 9).later("a", Window(5, 9), 3).backlog == {"a": Backlog(9, ((0, 9),))}


def test_days_are_kept_by_system_and_date():
    cursor = (
        Cursor(1, 5)
        .day("a", "2018-01-29", StoredDay(3, (1, 2, 3)))
        .day("a", "2018-01-30", StoredDay(4))
        .day("b", "2018-01-29", StoredDay(5))
    )
    assert cursor.day("a", "2018-01-29", StoredDay(6)).moved(7) == Cursor(
        1, 7, days={"a": {"2018-01-29": StoredDay(6), "2018-01-30": StoredDay(4)}, "b": {"2018-01-29": StoredDay(5)}}
    )


def test_a_cursor_is_read_as_it_was_saved_and_a_damaged_one_is_none(tmp_path):
    file, cursor = CursorFile(tmp_path), Cursor(1, 5, ("a",)).later("a", Window(0, 5), 3).day("a", "2018-01-29", StoredDay(3, (1,)))
    assert file.load() is None
    file.save(cursor)
    assert CursorFile(tmp_path).load() == cursor
    file.path.write_text('{"epoch": "x"}')
    assert file.load() is None


def test_a_cursor_that_can_not_be_read_or_written_is_an_error_that_names_it(tmp_path):
    (tmp_path / "cursor.json").mkdir()
    with pytest.raises(TokiodError, match=r"cursor\.json can't be read: Is a directory"):
        CursorFile(tmp_path).load()
    files = FaultyFiles(tmp_path)
    files.fail_at(1, errno.ENOSPC)
    with pytest.raises(Transient, match=r"cursor\.json can't be written"):
        CursorFile(tmp_path, files).save(Cursor(1, 5))
