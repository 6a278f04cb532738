"""`tokioctl gaps`, from a real ledger."""

import json

import pytest
from commanded import configured, ledger_of, ran, source

from tokiod.config import load as configuration
from tokiod.ledger.ledger import StoredEntry
from tokiod.window import Window
from tokiod.window_data import WindowMeta

NOON = 1_517_184_000 + 12 * 3600


@pytest.fixture
def path(tmp_path):
    return configured(tmp_path, source(), source("other", system="gs"), source("folder", "mmperfmon", "hs", watch="/nowhere"))


@pytest.fixture
def ledger(path):
    with ledger_of(path) as ledger:
        for source in configuration.load(path).source:
            ledger.register(source, NOON - 3600)
        ledger.store([entry("one", -60, 0), entry("other", -60, 0, system="gs")], NOON)
        yield ledger


def entry(source, first, last, system="fs"):
    return StoredEntry(WindowMeta(source, "lmt", system, window(first, last)), 1)


def window(first, last):
    return Window(NOON + 60 * first, NOON + 60 * last)


def run(path, *options, at=NOON + 30):
    return ran(path, "gaps", *options, at=at)


def told(path, *options, **more):
    done = run(path, "--json", *options, **more)
    found = json.loads(done.stdout)
    return done.exit_code, [(gap["source"], (gap["start"] - NOON) // 60, (gap["end"] - NOON) // 60, gap["state"]) for gap in found]


@pytest.mark.usefixtures("ledger")
def test_where_nothing_is_missing_it_says_so_with_exit_0(path):
    done = run(path)
    assert (done.exit_code, done.stdout) == (0, "no gaps in any source\n")
    assert run(path, "one").stdout == "no gaps in one\n"
    assert told(path) == (0, [])


def test_every_hole_is_told_with_its_reason_oldest_first(path, ledger):
    ledger.forget("fs", window(-50, -20), NOON, source="one")
    ledger.lost("one", window(-50, -45), "Past", "gone for ever", NOON)
    for minute in (-40, -39):
        ledger.failed("one", window(minute, minute + 1), "Transient", "no route to host", 3, NOON + 90 + minute, NOON)
    ledger.failed("one", window(-30, -29), "Unstorable", "another step", 1, None, NOON, state="rejected")
    one = [(-50, -45, "lost"), (-45, -40, "due"), (-40, -38, "failed"), (-38, -30, "due"), (-30, -29, "rejected"), (-29, -20, "due")]
    assert told(path, "one") == (1, [("one", *place) for place in one])
    assert told(path, "other") == (0, [])
    rows = [line.split() for line in run(path, "one").stdout.splitlines()]
    assert rows[0] == ["source", "start", "end", "length", "state", "attempts", "next", "try", "reason"]
    outage = ["one", "2018-01-29T11:15:00Z", "2018-01-29T11:30:00Z", "15m", "failed", "3", "in", "20s", "no", "route", "to", "host"]
    assert rows[2] == outage
    assert [row[4] for row in rows[1:-1]] == ["lost", "failed", "rejected", "due"]
    assert rows[-1] == ["30m", "in", "all"]


def test_what_is_not_settled_yet_is_no_gap_and_what_was_lost_before_is_one(path, ledger):
    assert told(path, "one", at=NOON + 60 + 14)[1] == []
    assert told(path, "one", at=NOON + 60 + 15)[1] == [("one", 0, 1, "due")]
    ledger.lost("one", window(-90, -80), "Past", "gone", NOON)
    assert told(path, "one")[1] == [("one", -90, -80, "lost")]


def test_the_gaps_of_a_source_that_has_another_system_now_are_those_of_a_new_source(path, ledger):
    ledger.forget("fs", window(-50, -20), NOON, source="one")
    ledger.lost("one", window(-50, -45), "Past", "gone for ever", NOON)
    path.write_text(path.read_text().replace('system = "fs"', 'system = "other"'))
    assert told(path, "one") == (0, [])


@pytest.mark.usefixtures("ledger")
@pytest.mark.parametrize(
    ("name", "said"),
    [("two", "unknown source 'two'; known: folder, one, other"), ("folder", "folder is a watched folder, which has no expected windows")],
)
def test_a_source_that_is_none_or_has_no_windows_is_a_sentence_with_exit_2(path, name, said):
    done = run(path, name)
    assert done.exit_code == 2
    assert said in done.stderr


def test_without_a_ledger_it_says_where_there_should_be_one(path):
    done = run(path)
    assert (done.exit_code, "no ledger at " in done.stderr) == (2, True)


def test_only_gaps_that_overlap_a_given_span_are_listed(path, ledger):
    ledger.forget("fs", window(-50, -20), NOON, source="one")
    ledger.forget("fs", window(-10, -5), NOON, source="one")
    assert told(path, "--start", "15m")[1] == [("one", -10, -5, "due")]
    assert told(path, "--start", "2018-01-29T11:20:00Z", "--end", "2018-01-29T11:25:00Z")[1] == [("one", -40, -35, "due")]
    assert run(path, "--start", "2018-01-29T11:20:00Z", "--end", "2018-01-29T11:25:00Z").stdout.endswith("5m in all\n")
    assert told(path, "--start", "2018-01-29T11:20:00Z", "--end", "2018-01-29T11:52:00Z")[1] == [
        ("one", -40, -20, "due"), ("one", -10, -8, "due"),
    ]  # fmt: skip
    complete = run(path, "--start", "2018-01-29T11:42:00Z", "--end", "2018-01-29T11:45:00Z")
    assert (complete.exit_code, complete.stdout) == (0, "no gaps in any source from 2018-01-29T11:42:00Z until 2018-01-29T11:45:00Z\n")
    assert run(path, "--end", "2018-01-29T11:05:00Z").stdout == "no gaps in any source until 2018-01-29T11:05:00Z\n"
    assert told(path, "--end", "2018-01-29T11:45:00Z")[1] == [("one", -50, -20, "due")]
    done = run(path, "--start", "now", "--end", "1h")
    assert (done.exit_code, "the span would start at 2018-01-29T12:00:30Z and end at 2018-01-29T11:00:30Z" in done.stderr) == (2, True)


@pytest.mark.usefixtures("ledger")
@pytest.mark.parametrize("names", [(), ("fs/datatargets/readbytes", "--cells")])
def test_a_start_that_is_not_before_now_is_a_sentence_with_exit_2(path, names):
    done = run(path, *names, "--start", "2018-02-05", "--end", "2018-02-06")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "--start: 2018-02-05T00:00:00Z is not before now, 2018-01-29T12:00:30Z" in done.stderr


def test_what_is_older_than_the_retention_is_lost_though_no_daemon_has_recorded_it(path, ledger):
    week = NOON + 7 * 86400
    path.write_text(path.read_text().replace('url = "sqlite:///none"', 'url = "sqlite:///none"\nretention = "1d"'))
    ledger.failed("one", window(0, 5), "Transient", "no route to host", 3, NOON + 90, NOON)
    ledger.lost("one", window(5, 10), "Retention", "older than the 86400 s that the source keeps", NOON)
    assert told(path, "one", at=week + 15) == (1, [("one", 0, 6 * 1440 + 1, "lost"), ("one", 6 * 1440 + 1, 7 * 1440, "due")])
    (lost, _) = json.loads(run(path, "one", "--json", at=week + 15).stdout)
    assert (lost["reason"], lost["error_class"]) == ("older than the 86400 s that the source keeps", "Retention")
    (line,) = [one for one in json.loads(ran(path, "status", "--json", at=week + 15).stdout)["sources"] if one["name"] == "one"]
    assert (line["gaps"], line["watermark"]) == (
        {"spans": 1, "seconds": 86340, "lost": 6 * 86400 + 60, "empty": 0, "past": 0},
        NOON + 6 * 86400 + 60,
    )


def test_of_a_source_that_never_held_anything_no_time_before_the_retention_is_expected(tmp_path):
    path = configured(tmp_path, source(retention="1d"))
    with ledger_of(path) as ledger:
        ledger.register(configuration.load(path).source[0], NOON - 3600)
        assert told(path, at=NOON + 7 * 86400 + 15)[1] == [("one", 6 * 1440 + 1, 7 * 1440, "due")]
        (line,) = json.loads(ran(path, "status", "--json", at=NOON + 7 * 86400 + 15).stdout)["sources"]
        assert line["gaps"] == {"spans": 1, "seconds": 86340, "lost": 0, "empty": 0, "past": 0}


def test_of_a_source_without_a_past_what_passed_is_due_until_the_daemon_records_it(tmp_path):
    """It may wait for a writer that is down."""
    path = configured(tmp_path, source("one", "lustre", mounts=["/mnt"]))
    with ledger_of(path) as ledger:
        ledger.register(configuration.load(path).source[0], NOON - 3600)
        ledger.store([entry("one", -50, 0)], NOON)
        ledger.lost("one", window(-60, -50), "Past", "the source can't be queried about the past", NOON)
        assert told(path, at=NOON + 3600)[1] == [("one", -60, -50, "lost"), ("one", 0, 59, "due")]
        (line,) = json.loads(ran(path, "status", "--json", at=NOON + 3600).stdout)["sources"]
        assert line["gaps"] == {"spans": 1, "seconds": 59 * 60, "lost": 600, "empty": 0, "past": 0}


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ((), "--cells needs one SYSTEM/DATASET"),
        (("fs/datatargets/readbites",), "no source of fs fills 'datatargets/readbites', did you mean datatargets/readbytes?"),
        (("fss/datatargets/readbytes",), "unknown system 'fss'"),
    ],
)
@pytest.mark.usefixtures("ledger")
def test_cells_of_what_is_no_dataset_are_a_sentence_with_exit_2(path, names, said):
    done = run(path, *names, "--cells")
    assert (done.exit_code, said in done.stderr) == (2, True), done.stderr
    assert run(path, "fs/datatargets/readbytes").stderr.endswith("fs/datatargets/readbytes is a dataset: add --cells\n")
