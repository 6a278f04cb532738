"""What of a span is stored, missing, lost and not yet due: by the cells alone, and by the ledger with its reasons."""

import time
from datetime import date

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ledger_entries import NOW, config, entry
from stitched_days import READ, SITE, save, slot

import tokiod
from tokiod.ledger.ledger import Ledger
from tokiod.reader.completeness import CoverageSpan
from tokiod.reader.errors import NoData, NoSuchDataset
from tokiod.window import Window

LOAD = "dataservers/cpuload"
HOUR = 3600
START = SITE.day_of_date(date(2018, 1, 1)).start
NAN = np.nan


def opened(directory, start, end):
    return tokiod.open("fs", start, end, path=directory / "%-d.hdf5")


def save_foreign(directory, day, cells):
    """A day as pytokio writes it: gzip, no attributes of ours, a column without a name."""
    place = slot(directory, day)
    with h5py.File(place.path, "w") as file:
        file["datatargets/timestamps"] = place.start + HOUR * np.arange(24)
        values = np.where(np.isnan(cells), -0.0, cells)
        made = file["datatargets"].create_dataset("readbytes", data=np.column_stack([values, np.full(24, -0.0)]), compression="gzip")
        made.attrs["columns"] = np.array([b"a", b""])


def hours(*spans, dataset=READ):
    return tuple(CoverageSpan(dataset, START + first * HOUR, START + last * HOUR, state, why) for first, last, state, why in spans)


# ---- by the cells


def test_live_sealed_foreign_and_absent_days_are_one_list(tmp_path):
    save(tmp_path, 1, ["a", "b"], [[1, NAN], [NAN, NAN], [NAN, 0]], is_sealed=True)
    foreign = np.full(24, NAN)
    foreign[6:12] = 5
    save_foreign(tmp_path, 2, foreign)
    save(tmp_path, 4, ["a"], np.ones(24))
    expected = hours(
        (0, 1, "stored", ""), (1, 2, "missing", ""), (2, 3, "stored", ""), (3, 24, "missing", ""),
        (24, 30, "missing", ""), (30, 36, "stored", ""), (36, 48, "missing", ""),
        (48, 72, "missing", "no file has it"), (72, 96, "stored", ""),
    )  # fmt: skip
    assert opened(tmp_path, START, START + 96 * HOUR).completeness() == expected


def test_a_span_within_days_is_cut_and_each_dataset_is_listed_or_the_one_that_is_asked_for(tmp_path):
    save(tmp_path, 1, ["a"], [[1]] * 12)
    save(tmp_path, 2, ["s"], [[1]] * 24, dataset=LOAD, is_sealed=True)
    archive = opened(tmp_path, START + 6 * HOUR, START + 30 * HOUR)
    of_load = hours((6, 24, "missing", "no file has it"), (24, 30, "stored", ""), dataset=LOAD)
    of_read = hours((6, 12, "stored", ""), (12, 24, "missing", ""), (24, 30, "missing", "no file has it"))
    assert archive.completeness() == of_load + of_read
    assert archive.completeness(READ) == of_read
    with pytest.raises(NoSuchDataset, match="did you mean datatargets/readbytes"):
        archive.completeness("datatargets/readbyte")
    with pytest.raises(NoData):
        opened(tmp_path, START + 1000 * HOUR, START + 1001 * HOUR).completeness()


def test_over_a_change_of_step_each_row_is_listed_with_its_own_step(tmp_path):
    save(tmp_path, 1, ["a"], [[1]] * 23)
    save(tmp_path, 2, ["a", "b"], [[1, NAN]] * 90 + [[NAN, NAN]] * 1350, step=60, is_sealed=True)
    save(tmp_path, 3, ["a"], [[1]] * 24)
    of_read = hours(
        (22, 23, "stored", ""), (23, 24, "missing", ""), (24, 25.5, "stored", ""), (25.5, 48, "missing", ""), (48, 49, "stored", "")
    )  # fmt: skip
    archive = opened(tmp_path, START + 22 * HOUR, START + 49 * HOUR)
    assert archive.completeness(READ) == archive.completeness() == of_read
    half = opened(tmp_path, START + 23 * HOUR + 1800, START + 25 * HOUR)
    assert half.completeness(READ) == hours((24, 25, "stored", ""))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stored=st.lists(st.booleans(), min_size=24, max_size=24), first=st.integers(0, 22), rows=st.integers(1, 30))
def test_the_stretches_are_the_runs_of_rows_with_a_value_and_cover_the_span(tmp_path, stored, first, rows):
    slot(tmp_path, 1).path.unlink(missing_ok=True)
    save(tmp_path, 1, ["a", "b"], [[NAN, float(i)] if one else [NAN, NAN] for i, one in enumerate(stored)])
    found = opened(tmp_path, START + first * HOUR, START + (first + rows) * HOUR).completeness(READ)
    by_hour = [one.state == "stored" for one in found for _ in range(one.start, one.end, HOUR)]
    assert by_hour == [i < 24 and stored[i] for i in range(first, first + rows)]
    assert [one.start for one in found] == [START + first * HOUR, *(one.end for one in found[:-1])]


# ---- by the ledger


@pytest.fixture
def site(tmp_path):
    """A configuration of two sources, whose databases keep everything, and its ledger."""
    path = tmp_path / "tokiod.toml"
    path.write_text(
        f'timezone = "America/Los_Angeles"\n[archive]\npath = "{tmp_path}/tts/%Y-%m-%d/{{system}}.hdf5"\n'
        '[[source]]\nname = "lmt"\nkind = "lmt"\nsystem = "cscratch"\nurl = "mysql://u@db/filesystem_fs"\nretention = "40000d"\n'
        '[[source]]\nname = "other"\nkind = "lmt"\nsystem = "other"\nurl = "mysql://u@db/filesystem_fs"\nretention = "40000d"\n'
    )
    ledger = tmp_path / "tts" / ".tokiod" / "ledger.sqlite3"
    with Ledger.open(ledger) as opened:
        opened.register(config(), START + 2 * HOUR)
        yield path, opened


def test_the_ledger_knows_why_a_time_is_not_stored(site):
    path, ledger = site
    at = [START + hour * HOUR for hour in range(13)]
    ledger.store([entry(at[2], at[4]), entry(at[7], at[8]), entry(at[9], at[10])], NOW)
    ledger.failed("lmt", Window(at[4], at[5]), "Transient", "connection refused", 3, NOW + 5, NOW)
    ledger.lost("lmt", Window(at[5], at[6]), "Lost", "older than the retention", NOW)
    archive = tokiod.open("cscratch", at[0], at[12], config=path)
    expected = (
        (0, 2, "missing", "no source was configured"), (2, 4, "stored", ""), (4, 5, "gap", "connection refused"),
        (5, 6, "lost", "older than the retention"), (6, 7, "gap", "no attempt yet"), (7, 8, "stored", ""),
        (8, 9, "gap", "no attempt yet"), (9, 10, "stored", ""), (10, 12, "gap", "no attempt yet"),
    )  # fmt: skip
    assert archive.completeness() == tuple(CoverageSpan("lmt", at[a], at[b], state, why) for a, b, state, why in expected)


def test_what_is_not_stored_is_lost_once_the_source_does_not_keep_it_and_not_yet_due_before_its_time(site):
    path, ledger = site
    path.write_text(path.read_text().replace("40000d", "1d"))
    now = time.time()
    latest = int(now) // HOUR * HOUR
    ledger.store([entry(START + 3 * HOUR, START + 4 * HOUR), entry(latest - 2 * HOUR, latest - HOUR)], NOW)
    ledger.failed("lmt", Window(START + 4 * HOUR, START + 5 * HOUR), "Transient", "connection refused", 3, NOW + 5, NOW)
    found = tokiod.open("cscratch", START, latest + 2 * HOUR, config=path).completeness()
    why = "older than the 86400 s that the source keeps"
    assert [(one.state, one.reason) for one in found] == [
        ("missing", "no source was configured"), ("missing", f"before its first stored window, and {why}"), ("stored", ""), ("lost", why),
        ("gap", "no attempt yet"), ("stored", ""), ("gap", "no attempt yet"), ("not yet", ""),
    ]  # fmt: skip
    assert [one.start for one in found[:4]] == [START + hour * HOUR for hour in (0, 2, 3, 4)]
    assert (abs(found[4].start - (now - 86400)) <= 2 * 60, abs(found[7].start - now) <= 5 * 60) == (True, True)
    assert (found[-1].end, [one.end for one in found[:-1]]) == (latest + 2 * HOUR, [one.start for one in found[1:]])


def test_what_a_watched_folder_should_hold_is_unknown(site):
    path, ledger = site
    path.write_text(
        path.read_text().replace(
            'kind = "lmt"\nsystem = "cscratch"\nurl = "mysql://u@db/filesystem_fs"\nretention = "40000d"\n',
            f'kind = "mmperfmon"\nsystem = "cscratch"\nwatch = "{path.parent}/files"\nlun_map = ["x=datatarget"]\n',
        )
    )
    at = [START + hour * HOUR for hour in range(13)]
    ledger.store([entry(at[2], at[4]), entry(at[5], at[6])], NOW)
    assert [(one.start, one.state) for one in tokiod.open("cscratch", at[0], at[8], config=path).completeness()] == [
        (at[0], "missing"), (at[2], "stored"), (at[4], "missing"), (at[5], "stored"), (at[6], "not yet"),
    ]  # fmt: skip


def test_the_ledgers_stretches_are_cut_to_the_span(site):
    path, ledger = site
    at = [START + hour * HOUR for hour in range(13)]
    ledger.store([entry(at[2], at[5])], NOW)
    ledger.lost("lmt", Window(at[5], at[9]), "Lost", "gone", NOW)
    found = tokiod.open("cscratch", at[3], at[7], config=path).completeness()
    assert found == (CoverageSpan("lmt", at[3], at[5], "stored"), CoverageSpan("lmt", at[5], at[7], "lost", "gone"))


def test_what_a_source_stored_for_another_system_is_not_stored_of_its_present_one(site):
    path, ledger = site
    ledger.store([entry(START, START + 2 * HOUR)], NOW)
    ledger.lost("lmt", Window(START + 2 * HOUR, START + 3 * HOUR), "Lost", "gone", NOW)
    path.write_text(path.read_text().replace('"cscratch"', '"moved"'))
    found = tokiod.open("moved", START, START + 4 * HOUR, config=path).completeness()
    assert found == (CoverageSpan("lmt", START, START + 4 * HOUR, "missing", "no source was configured"),)


def test_a_data_array_has_the_share_that_the_ledger_records_as_stored_without_a_read(site, tmp_path):
    path, ledger = site
    save(tmp_path, 1, ["a"], [[1]])
    (tmp_path / "tts" / "2018-01-01").mkdir()
    (tmp_path / "1.hdf5").rename(tmp_path / "tts" / "2018-01-01" / "cscratch.hdf5")
    at = [START + hour * HOUR for hour in range(13)]
    ledger.store([entry(at[2], at[5])], NOW)
    ledger.lost("lmt", Window(at[5], at[6]), "Lost", "gone", NOW)
    assert tokiod.open("cscratch", at[2], at[6], config=path)["datatargets/readrates"].attrs["completeness"] == 0.75
    files = f"{tmp_path}/tts/%Y-%m-%d/{{system}}.hdf5"
    whole = tokiod.open("cscratch", at[0] - 86400, at[0] + 86400, path=files, timezone="UTC")
    assert whole[READ].attrs["completeness"] == 0.5


def test_with_a_dataset_the_cells_answer_also_where_there_is_a_ledger(site, tmp_path):
    path, _ = site
    save(tmp_path, 1, ["a"], [[1]])
    (tmp_path / "tts" / "2018-01-01").mkdir()
    (tmp_path / "1.hdf5").rename(tmp_path / "tts" / "2018-01-01" / "cscratch.hdf5")
    archive = tokiod.open("cscratch", START, START + 2 * HOUR, config=path)
    assert archive.completeness(READ) == hours((0, 1, "stored", ""), (1, 2, "missing", ""))
