import os
from pathlib import Path

import pytest

from tokiod.collector import SourceConfig
from tokiod.ledger.found_file import FoundFile
from tokiod.ledger.ledger import Ledger
from tokiod.ledger.received_files import Totals
from tokiod.window import Window


class SourceConfigOf(SourceConfig, kw_only=True, frozen=True):
    step = 60


@pytest.fixture
def ledger(tmp_path):
    with Ledger.open(tmp_path / "ledger.sqlite3") as ledger:
        yield ledger


def file(tmp_path, name, text="x"):
    (tmp_path / name).write_text(text)
    return FoundFile.of(tmp_path / name, (tmp_path / name).stat())


def test_a_file_is_known_as_long_as_it_looks_the_same(ledger, tmp_path):
    received, one = ledger.received_files("spool"), file(tmp_path, "one")
    assert not received.knows(one)
    received.record(one, "d1", "collected", "", 5.0)
    assert received.knows(one)
    os.utime(one.path, ns=(0, 1))
    assert not received.knows(FoundFile.of(one.path, one.path.stat()))


def test_a_content_is_known_under_any_name_and_by_its_source_alone(ledger, tmp_path):
    received = ledger.received_files("spool")
    received.record(file(tmp_path, "one"), "d1", "collected", "", 5.0)
    assert (received.outcome("d1"), received.outcome("d2"), ledger.received_files("other").outcome("d1")) == ("collected", None, None)


def test_a_content_that_was_rejected_and_then_collected_is_collected(ledger, tmp_path):
    received = ledger.received_files("spool")
    received.record(file(tmp_path, "one"), "d1", "rejected", "no such thing", 5.0)
    assert received.outcome("d1") == "rejected"
    received.record(file(tmp_path, "two"), "d1", "collected", "", 6.0)
    assert (received.outcome("d1"), received.totals()) == ("collected", Totals(1, 0))


@pytest.mark.parametrize("outcome", ["collected", "rejected"])
def test_an_attempt_has_ended_with_its_outcome_even_if_its_process_is_killed_right_after(ledger, tmp_path, outcome):
    received = ledger.received_files("spool")
    assert received.begin("d1") == 0
    received.record(file(tmp_path, "one"), "d1", outcome, "", 5.0)
    assert received.begin("d1") == 0


def test_totals_count_contents(ledger, tmp_path):
    received = ledger.received_files("spool")
    assert received.totals() == Totals(0, 0)
    for name, digest, fate in (("a", "1", "collected"), ("b", "1", "collected"), ("c", "2", "collected"), ("d", "3", "rejected")):
        received.record(file(tmp_path, name), digest, fate, "", 5.0)
    assert received.totals() == Totals(2, 1)


def test_old_files_are_forgotten_once_they_are_deleted(ledger, tmp_path):
    received = ledger.received_files("spool")
    for name, digest, time in (("old", "1", 1.0), ("there", "2", 1.0), ("young", "3", 9.0)):
        received.record(file(tmp_path, name), digest, "collected", "", time)
    received.forget(5.0, [Path(tmp_path / "there")])
    assert [received.outcome(digest) for digest in "123"] == [None, "collected", "collected"]


def test_of_files_that_are_gone_only_the_newest_are_known(ledger, tmp_path, monkeypatch):
    monkeypatch.setattr("tokiod.ledger.received_files.MAX_GONE", 3)
    received = ledger.received_files("spool")
    files = [file(tmp_path, f"gone-{number}") for number in range(6)]
    kept = file(tmp_path, "kept")
    for time, one in enumerate([kept, *files], start=1):
        received.record(one, str(time), "collected", "", float(time), [Window(60 * time, 60 * time + 60)])
    received.forget(0.0, [kept.path])
    assert [received.knows(one) for one in [kept, *files]] == [True, False, False, False, True, True, True]
    assert received.totals() == Totals(4, 0)
    (spans,) = received._database.sql.execute("SELECT count(*) FROM received_span").fetchone()
    assert spans == 4


def test_attempts_are_counted_until_one_ends(ledger):
    received = ledger.received_files("spool")
    assert [received.begin("1"), received.begin("1"), received.begin("2"), received.begin("1")] == [0, 1, 0, 2]
    received.end("1")
    assert (received.begin("1"), received.begin("2")) == (0, 1)


def test_attempts_that_never_ended_are_forgotten_once_every_file_is_recorded_as_it_is(ledger, tmp_path):
    received, other = ledger.received_files("spool"), ledger.received_files("other")
    files = [file(tmp_path, name) for name in ("one", "two")]
    other.begin("1")
    assert not received.has_unended()
    received.begin("1")
    received.record(files[0], "2", "collected", "", 1.0)
    received.forget_unended(files)
    assert received.has_unended()
    received.record(files[1], "3", "rejected", "no such thing", 1.0)
    os.utime(files[0].path, ns=(0, 1))
    changed = FoundFile.of(files[0].path, files[0].path.stat())
    received.forget_unended([changed, files[1]])
    assert received.has_unended()
    received.forget_unended(files)
    assert (received.has_unended(), other.has_unended()) == (False, True)
    assert (received.begin("1"), other.begin("1")) == (0, 1)


def test_a_name_that_is_not_utf_8_is_known_and_forgotten_like_others(ledger, tmp_path):
    received, one = ledger.received_files("spool"), file(tmp_path, os.fsdecode(b"n\xff"))
    received.record(one, "1", "collected", "", 1.0)
    assert received.knows(one)
    received.forget(5.0, [one.path])
    assert received.knows(one)
    received.forget(5.0, [])
    assert not received.knows(one)


def test_the_contents_with_samples_in_a_lost_window_and_those_of_unknown_spans_are_forgotten(ledger, tmp_path):
    for name, system in (("spool", "s"), ("other", "t")):
        ledger.register(SourceConfigOf(name=name, kind="k", system=system), 0)
        received = ledger.received_files(name)
        for digest, spans in (("before", [Window(0, 100)]), ("inside", [Window(0, 50), Window(150, 160)]), ("unknown", [])):
            received.record(file(tmp_path, digest), digest, "collected", "", 1.0, spans)
        received.record(file(tmp_path, "bad"), "bad", "rejected", "no such thing", 1.0)
    ledger.forget("s", Window(100, 200), 0.0)
    outcomes = [[ledger.received_files(name).outcome(d) for d in ("before", "inside", "unknown", "bad")] for name in ("spool", "other")]
    assert outcomes == [["collected", None, None, "rejected"], ["collected", "collected", "collected", "rejected"]]
