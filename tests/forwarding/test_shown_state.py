"""What a sink's process shows of itself: whole states, and when the file is written."""

import os
from collections import Counter

import msgspec
import pytest

from tokiod.change_sink import Acknowledged
from tokiod.forwarding import shown_state
from tokiod.forwarding.cursor import Cursor
from tokiod.forwarding.shown_state import WRITE_SECONDS, ShownState
from tokiod.published.sinks import BEAT_SECONDS, MAX_REASONS, SinkState
from tokiod.testing import FakeClock
from tokiod.window import Window

NOW = 1_800_000_000
AT_START = SinkState(name="k", kind="kafka", state="running", trouble="", pid=os.getpid())


@pytest.fixture
def clock():
    return FakeClock(NOW)


@pytest.fixture
def real():
    return FakeClock()


@pytest.fixture
def shown(tmp_path, clock, real):
    return ShownState(tmp_path, "k", "kafka", clock, real)


def written(directory):
    return msgspec.json.decode((directory / "state.json").read_bytes(), type=SinkState)


def changed(of=AT_START, **values):
    return msgspec.structs.replace(of, **values)


def test_a_change_of_state_is_written_at_once_and_a_reason_stays_as_the_last_error(shown, tmp_path, clock, monkeypatch):
    monkeypatch.setattr(shown_state, "mask", lambda text: text.replace("a secret", "***"))
    shown.change("running")
    assert written(tmp_path) == AT_START
    shown.change("waiting", "refused with a secret")
    masked = "refused with ***"
    assert written(tmp_path) == changed(state="waiting", reason=masked, last_error=masked, last_error_at=NOW)
    clock.jump(5)
    shown.change("running")
    assert written(tmp_path) == changed(last_error=masked, last_error_at=NOW)


def test_a_process_goes_on_with_the_counts_of_the_one_before_under_its_own_name(shown, tmp_path, clock, real):
    shown.acknowledged(Acknowledged(7, Counter(late=2)))
    shown.change("fatal", "no permission")
    (tmp_path / "state.json").write_bytes(msgspec.json.encode(changed(written(tmp_path), name="old", kind="old", pid=1, trouble="down")))
    again = ShownState(tmp_path, "k", "kafka", clock, real).now
    expected = {"records": 7, "rejected": {"late": 2}, "acknowledged_at": NOW, "last_error": "no permission", "last_error_at": NOW}
    assert again == changed(**expected)
    (tmp_path / "state.json").write_text("{")
    assert ShownState(tmp_path, "k", "kafka", clock, real).now == AT_START


def test_counts_add_up_and_reasons_beyond_a_number_are_one(shown, clock):
    reasons = [f"reason {n:02}" for n in range(MAX_REASONS + 2)]
    for n, reason in enumerate(reasons):
        clock.jump(1)
        shown.acknowledged(Acknowledged(10, Counter({reason: n + 1, reasons[0]: 1} if n else {reason: 1})))
    expected = {reason: n + 1 for n, reason in enumerate(reasons[:MAX_REASONS])} | {"other": 2 * MAX_REASONS + 3}
    expected[reasons[0]] = len(reasons)
    assert shown.now == changed(records=10 * len(reasons), rejected=expected, acknowledged_at=NOW + len(reasons))


@pytest.mark.parametrize(("oldest", "lag"), [(None, 0), (NOW - 90.5, 90), (NOW, 0), (NOW + 5, 0)])
def test_the_lag_is_that_of_the_oldest_change_and_never_negative(shown, oldest, lag):
    shown.at(None, 3, NOW - 10)
    assert shown.now == AT_START
    cursor = Cursor(2, 17).later("a", Window(0, 60), 17).later("b", Window(0, 5), 17)
    shown.at(cursor, 3, oldest)
    assert shown.now == changed(epoch=2, cursor=17, backlog=65, lag_windows=3, lag=lag)


@pytest.mark.parametrize(("is_changed", "seconds"), [(True, WRITE_SECONDS), (False, BEAT_SECONDS)])
def test_counts_are_written_at_most_each_second_and_a_sign_of_life_later(shown, tmp_path, real, is_changed, seconds):
    shown.write_if_due(is_changed=is_changed)
    for passed, is_due in ((seconds / 2, False), (seconds / 2, True), (seconds / 2, False)):
        (tmp_path / "state.json").unlink(missing_ok=True)
        real._monotonic += passed
        shown.write_if_due(is_changed=is_changed)
        assert (tmp_path / "state.json").exists() == is_due


def test_a_state_that_can_not_be_written_is_written_later(shown, tmp_path):
    (tmp_path / ".state.json.tmp").mkdir()
    shown.change("waiting", "full")
    (tmp_path / ".state.json.tmp").rmdir()
    shown.change("running")
    assert written(tmp_path).state == "running"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state.json"]
