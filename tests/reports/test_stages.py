"""The recordings of two processes joined: each window with its stages, which add up to its age, and the table of all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded_stages import START, save, work

from tokiod.metrics import stage_ring
from tokiod.reports.stages import StagedWork, StageRow, StageSpan, _Timed, chosen, joined, read_stages, report

COLLECTION = work(1, "collection", 10, 20, 21, 24, 25)
SUBMISSION = work(2, "submission", 25.5, 26, 40)
COMMIT = work(1, "commit", 28, 29, 32, 33, 34, attempt=5)
STAGES = {"due": 10, "ask": 1, "fetch": 3, "parse": 1.5, "submit": 0.5, "bus": 2, "apply": 1, "sync": 3, "ledger": 1, "ack": 7}


def join(collectors, writer=(), until=50, writer_until=50):
    return list(joined(_Timed(list(collectors), until * 10**9), _Timed(list(writer), writer_until * 10**9)))


def seconds(one):
    return {span.stage: span.seconds for span in one.stages}


def test_a_stored_window_has_all_stages_without_holes_and_they_add_up_to_its_age():
    (one,) = join([COLLECTION, SUBMISSION], [COMMIT])
    assert seconds(one) == pytest.approx(STAGES)
    assert [span.start - START for span in one.stages] == pytest.approx([10, 20, 21, 24, 25.5, 26, 28, 29, 32, 33])
    assert (one.kind, one.name, one.start, one.end, one.state, one.nbytes) == ("window", "a", START, START + 60, "stored", 7)
    assert (one.began - START, one.seconds) == pytest.approx((10, 30))
    assert one.feed == StageSpan("feed", START + 33.0, 1.0)


@given(st.lists(st.integers(1, 10**12), min_size=11, max_size=11))
def test_the_stages_add_up_to_the_age_whatever_they_last(lengths):
    times = [sum(lengths[: place + 1]) / 1e9 for place in range(11)]
    collection = work(1, "collection", *times[:4], times[4])
    submission = work(2, "submission", *times[4:6], times[10])
    (one,) = join([collection, submission], [work(1, "commit", *times[6:10], times[10])])
    assert one.seconds == pytest.approx(times[10] - times[0], abs=1e-6)


def test_of_several_commits_the_first_that_was_recorded_counts_and_none_of_an_earlier_submission():
    earlier = work(1, "commit", 3, 4, 5, 6, 7)
    torn = work(2, "commit", 27, None, None, None, 27.5, outcome="failed", attempt=4)
    again, late = work(4, "commit", 35, 36, 37, 38, 39, attempt=6), work(5, "commit", 41, 42, 43, 44, 45, attempt=7)
    (one,) = join([COLLECTION, SUBMISSION], [earlier, torn, work(3, "commit", 28, 29, 32, 33, 34), again, late])
    assert seconds(one) == pytest.approx(STAGES)


def test_each_attempt_at_a_window_is_one_and_other_windows_are_others():
    failed = work(1, "collection", 10, 11, 12, 13, 14, outcome="failed")
    other = work(2, "collection", 10, 12, 13, 14, 15, window=1)
    again = work(3, "collection", 10, 20, 21, 24, 25)
    refused = work(4, "submission", 25, 26, 27, outcome="refused")
    found = join([failed, other, again, refused])
    assert [(one.start - START, one.state, list(seconds(one))[-1]) for one in found] == [
        (0, "failed", "parse"), (0, "refused", "bus"), (60, "unsent", "parse"),
    ]  # fmt: skip


def test_a_file_of_a_watched_folder_has_no_collection_and_a_collection_of_the_past_was_never_due():
    past = work(1, "collection", None, 20, 21, 24, 25, window=1)
    found = join([SUBMISSION, past])
    assert [list(seconds(one)) for one in found] == [["submit", "bus"], ["ask", "fetch", "parse"]]


@pytest.mark.parametrize(
    ("collectors", "writer", "stage"),
    [
        ([work(1, "collection", 10, 20, 21, None, None, outcome="open")], [], "fetch"),
        ([COLLECTION, work(2, "submission", 25, None, None, outcome="open")], [], "submit"),
        ([COLLECTION, work(2, "submission", 25, 26, None, outcome="open")], [], "bus"),
        (
            [COLLECTION, work(2, "submission", 25, 26, None, outcome="open")],
            [work(1, "commit", 28, 29, None, None, None, outcome="open")],
            "sync",
        ),
        ([COLLECTION, work(2, "submission", 25, 26, None, outcome="open")], [COMMIT], "ack"),
    ],
)
def test_what_is_open_lasts_until_now(collectors, writer, stage):
    (one,) = join(collectors, writer)
    last = one.stages[-1]
    assert (one.state, last.stage, last.open) == ("open", stage, True)
    assert [span.open for span in one.stages[:-1]] == [False] * (len(one.stages) - 1)
    assert last.start + last.seconds == pytest.approx(START + 50)


def test_the_rings_of_processes_that_have_ended_show_what_was_open_until_they_last_recorded(tmp_path):
    save(
        tmp_path,
        "collectors",
        [work(1, "collection", 10, 20, 21, None, None, outcome="open"), work(2, "collection", 20, 21, 22, 24, 30, window=1)],
    )
    save(tmp_path, "writer", [work(1, "seal", 12, 13)])
    found = read_stages(tmp_path)
    assert [(one.kind, one.state, one.seconds) for one in found] == [
        ("window", "open", pytest.approx(20)), ("file", "done", pytest.approx(1)), ("window", "unsent", pytest.approx(10)),
    ]  # fmt: skip


def test_recordings_of_two_boots_are_not_joined(tmp_path, monkeypatch):
    monkeypatch.setattr(stage_ring, "boot_id", lambda: "an earlier boot".ljust(36))
    save(tmp_path, "writer", [COMMIT])
    monkeypatch.undo()
    save(tmp_path, "collectors", [COLLECTION, SUBMISSION])
    (one,) = read_stages(tmp_path)
    assert list(seconds(one)) == ["due", "ask", "fetch", "parse", "submit", "bus"]


def test_without_a_recording_there_is_nothing(tmp_path):
    assert read_stages(tmp_path) == []


def staged(number, *lengths, name="a", kind="window"):
    spans, start = [], float(START + 10 * number)
    for stage, length in lengths:
        spans.append(StageSpan(stage, start, length))
        start += length
    return StagedWork(kind, name, START, START + 60, "stored", float(START + 10 * number), sum(of for _, of in lengths), 0, spans)


def test_the_table_has_each_stage_of_all_and_the_slowest_are_listed_in_the_order_of_time():
    works = [staged(number, ("fetch", number + 1.0), ("bus", 1.0)) for number in range(20)]
    works += [staged(20, ("seal", 4.0), name="fs", kind="file")]
    found = report(works, 2)
    assert found.slowest == works[18:20]
    total = 210 + 20
    assert found.stages == [
        StageRow("fetch", 20, 10.5, 19.0, 20.0, 210 / total),
        StageRow("bus", 20, 1.0, 1.0, 1.0, 20 / total),
        StageRow("seal", 1, 4.0, 4.0, 4.0, 1.0),
    ]
    assert report([], 20).stages == []


def test_the_waiting_of_a_healed_window_makes_it_neither_slow_nor_the_share_of_due_large():
    healed, live = staged(0, ("due", 7200.0), ("fetch", 1.0)), staged(1, ("due", 15.0), ("fetch", 65.0))
    late = staged(2, ("due", 60.0), ("fetch", 3.0))
    assert [one.healing for one in (healed, live, late)] == [7140.0, 0.0, 0.0]
    assert report([healed, live, late], 2).slowest == [live, late]
    due, fetch = report([healed, live, late], 1).stages
    assert (due.max, due.share) == (7200.0, pytest.approx(135 / 204))
    assert due.share + fetch.share == pytest.approx(1)


def test_what_ended_before_or_is_of_other_sources_is_left_out():
    works = [staged(number, ("fetch", 5.0), name="ab"[number % 2]) for number in range(4)]
    assert chosen(works, set(), START + 15.0) == works[1:]
    assert chosen(works, {"b", "fs"}, 0) == [works[1], works[3]]
