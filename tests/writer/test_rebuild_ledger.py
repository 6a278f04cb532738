"""A ledger that is deleted, corrupt or older than the files, over real files: what it says once the writer has started."""

import errno
import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import archive_model as model
import pytest
from faulty_files import FaultyFiles
from rebuilt_site import HOUR, SAMPLES, Now, Past, Site
from structlog.testing import capture_logs

from tokiod.ledger.changes import LOST_NUMBERS
from tokiod.ledger.found_file import FoundFile
from tokiod.ledger.integrity import GENERATION_SECONDS
from tokiod.ledger.ledger import Ledger, StoredEntry
from tokiod.tts.sealed.seal import seal
from tokiod.window import Window
from tokiod.window_data import WindowMeta
from tokiod.writer import proven_windows as rebuild
from tokiod.writer import rebuild_ledger
from tokiod.writer.rebuild_ledger import LOST_REASON, UNTRUSTED_SECONDS

SURE = 1 + UNTRUSTED_SECONDS // HOUR
"""Hours at the end that are asked for again: the last difference has no second sample yet, and the hour before it is not believed."""
DOUBTED = UNTRUSTED_SECONDS // HOUR
"""Hours at the end of a source without a past that are lost."""


@pytest.fixture
def site(tmp_path):
    return lambda *sources: Site(tmp_path / "tts", *sources)


def events(logs):
    return [log["event"] for log in logs]


def hours(first, last):
    return Window(model.EPOCH + first * HOUR, model.EPOCH + last * HOUR)


def test_a_first_start_has_nothing_to_rebuild_and_a_second_none_to_doubt(site):
    one = site()
    with capture_logs() as logs:
        with closing(one.start()) as ledger:
            one.store(ledger, 0, 5)
        with closing(one.at(5).start()) as ledger:
            assert one.stored(ledger) == [(0, 5)]
    assert logs == []


def test_a_deleted_ledger_is_rebuilt_from_live_and_sealed_files_but_for_the_newest(site):
    one = site()
    with closing(one.start()) as ledger:
        one.store(ledger, 0, 30)
        one.store(ledger, 33, 52)
    sealed = one.directory / "2018-01-29" / "fs.hdf5"
    seal(sealed, sealed, 0)
    one.at(53).lose()
    with capture_logs() as logs, closing(one.start()) as ledger:
        assert one.stored(ledger) == [(0, 29), (33, 52 - SURE)]
        (status,) = ledger.sources()
        assert (status.name, status.last) == ("past", hours(51 - SURE, 52 - SURE))
    (log,) = logs
    assert (log["event"], log["files"], log["windows"], log["reason"]) == ("ledger.rebuilt", 3, 29 + 18, "it was lost")
    assert 0 < log["seconds"] < 5


def killed_before_it_synced(site, files):
    """Store 20 hours of an archive whose writer was killed before it synced any, and whose ledger is lost."""
    with closing(site.start()):
        pass
    sink = model.sink_in(site.directory, files)
    for hour in range(20):
        sink.apply(model.window(SAMPLES, hour, hour + 1))
    site.lose()
    return files.revive()


@pytest.mark.parametrize("seed", range(8))
def test_what_proves_windows_outlasts_a_power_loss(site, seed):
    one = site()
    files = killed_before_it_synced(one, FaultyFiles(one.directory))
    with closing(one.at(20).start(files)) as ledger:
        proven = one.stored(ledger)
    files.power_loss(seed)
    one.lose()
    with closing(one.at(20).start()) as ledger:
        assert one.stored(ledger) == proven == [(0, 20 - SURE)]


def test_a_file_that_cannot_be_synced_proves_nothing(site):
    one = site()
    files = killed_before_it_synced(one, FaultyFiles(one.directory))
    files.fail("fsync", 1, errno.EIO)
    with capture_logs() as logs, closing(one.at(20).start(files)) as ledger:
        assert one.stored(ledger) == []
    assert [log["event"] for log in logs] == ["ledger.file_skipped"]


def test_the_files_that_prove_windows_are_known_with_them_so_that_their_loss_is_noticed(site):
    one = site()
    with closing(one.start()) as ledger:
        one.store(ledger, 0, 30)
    one.lose()
    with closing(one.start()) as ledger:
        known = ledger.known_files(one.directory)
        for date in ("2018-01-29", "2018-01-30"):
            one.directory.joinpath(date, "fs.hdf5").unlink()
        assert [(file.path.parent.name, file.system, file.window) for file in known.missing(lambda _: 0)] == [
            ("2018-01-29", "fs", hours(0, 24)),
            ("2018-01-30", "fs", hours(24, 48)),
        ]


def test_a_corrupt_ledger_is_set_aside_and_rebuilt(site):
    one = site()
    with closing(one.start()) as ledger:
        one.store(ledger, 0, 20)
    one.lose()
    one.path.write_bytes(b"no database" * 1000)
    with closing(one.at(20).start()) as ledger:
        assert one.stored(ledger) == [(0, 20 - SURE)]
        assert ledger.quarantined.read_bytes().startswith(b"no database")


def test_yesterdays_copy_of_the_ledger_is_found_to_be_old_and_told_the_rest(site, tmp_path):
    one = site()
    with closing(one.start()) as ledger:
        one.store(ledger, 0, 10)
    shutil.copy(one.path, tmp_path / "copy")
    with closing(one.at(10).start()) as ledger:
        for hour in range(10, 30):
            one.at(hour).store(ledger, hour, hour + 1)
    one.lose()
    shutil.copy(tmp_path / "copy", one.path)
    with capture_logs() as logs, closing(one.at(30).start()) as ledger:
        assert one.stored(ledger) == [(0, 30 - SURE)]
    assert [(log["event"], log["reason"]) for log in logs] == [("ledger.rebuilt", "it was older than the files")]
    with capture_logs() as logs, closing(one.at(31).start()):
        assert logs == []


def test_a_copy_of_the_ledger_that_comes_alone_into_an_archive_is_completed_from_the_files(site, tmp_path):
    one = site()
    with closing(one.start()) as ledger:
        one.store(ledger, 0, 10)
    shutil.copy(one.path, tmp_path / "copy")
    with closing(one.at(10).start()) as ledger:
        one.at(30).store(ledger, 10, 30)
    shutil.rmtree(one.path.parent)
    one.path.parent.mkdir()
    shutil.copy(tmp_path / "copy", one.path)
    with capture_logs() as logs, closing(one.at(30).start()) as ledger:
        assert one.stored(ledger) == [(0, 30 - SURE)]
    assert [(log["event"], log["reason"]) for log in logs] == [("ledger.rebuilt", "it was without ledger.stamp")]


def test_a_ledger_that_was_lost_or_is_older_than_the_files_begins_an_epoch_of_the_change_log_and_no_other_does(site, tmp_path):
    one = site()

    def epoch_and_head():
        with closing(one.start()) as ledger:
            one.store(ledger, 0, 1)
            return ledger.changes.state().epoch, ledger.changes.state().head

    epoch, head = epoch_and_head()
    again = epoch_and_head()
    assert (again[0], again[1] > head + LOST_NUMBERS) == (epoch, True)
    shutil.copy(one.path, tmp_path / "copy")
    with closing(one.at(10).start()) as ledger:
        for hour in range(10, 30):
            one.at(hour).store(ledger, hour, hour + 1)
    one.lose()
    shutil.copy(tmp_path / "copy", one.path)
    restored = epoch_and_head()
    one.lose()
    lost = one.at(31), *epoch_and_head()
    assert epoch < restored[0] < lost[1]
    assert again[1] < restored[1] < lost[2]


def test_what_an_old_copy_calls_stored_is_asked_for_again_where_the_file_has_gone_since(site, tmp_path):
    one = site()
    with closing(one.start()) as ledger:
        one.store(ledger, 0, 30)
    shutil.copy(one.path, tmp_path / "copy")
    with closing(one.at(31).start()) as ledger:
        one.store(ledger, 30, 31)
        one.at(31 + 3 * GENERATION_SECONDS / HOUR).store(ledger, 31, 32)
    one.lose()
    shutil.copy(tmp_path / "copy", one.path)
    shutil.rmtree(one.directory / "2018-01-29")
    with closing(one.start()) as ledger:
        assert one.stored(ledger) == [(24, 30)]


def test_what_an_old_copy_calls_stored_is_asked_for_again_where_the_file_was_lost_and_made_anew_since(site, tmp_path):
    one = site()
    with closing(one.start()) as ledger:
        one.store(ledger, 0, 30)
    shutil.copy(one.path, tmp_path / "copy")
    with closing(one.at(31).start()) as ledger:
        shutil.rmtree(one.directory / "2018-01-29")
        one.store(ledger, 20, 24)
        one.at(31 + 3 * GENERATION_SECONDS / HOUR).store(ledger, 30, 31)
    one.lose()
    shutil.copy(tmp_path / "copy", one.path)
    with closing(one.start()) as ledger:
        assert one.stored(ledger) == [(21, 30)]  # hour 20 has no difference that would prove it


def test_a_rebuilding_that_was_killed_begins_again(site, monkeypatch):
    one = site(Now())
    with closing(one.start()) as ledger:
        one.store(ledger, 0, 5)
    one.at(8).lose()
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "lost", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            one.start()
    with closing(one.start()) as ledger:
        assert [(row.window, row.error) for row in ledger.unstored("past")] == [(hours(5 - DOUBTED, 8), LOST_REASON)]


def test_of_a_source_without_a_past_what_has_a_number_is_stored_and_the_rest_behind_it_lost_with_the_reason(site):
    one = site(Now())
    with closing(one.start()) as ledger:
        one.store(ledger, 2, 30)
        one.store(ledger, 33, 52)
    one.at(53).lose()
    with closing(one.start()) as ledger:
        assert one.stored(ledger) == [(2, 30), (33, 52 - DOUBTED)]
        assert [(row.window, row.state, row.error) for row in ledger.unstored("past")] == [
            (hours(30, 33), "lost", LOST_REASON),
            (hours(52 - DOUBTED, 53), "lost", LOST_REASON),
        ]
        # So it stays when the collectors come, who expect such a source from now on.
        assert ledger.register(one.config.source[0], model.EPOCH + 53 * HOUR) == model.EPOCH + 2 * HOUR
        assert len(ledger.unstored("past")) == 2


def test_the_files_of_a_folder_are_collected_again_after_an_older_ledger_was_put_back(site, tmp_path):
    """A day's file was lost since the copy was made, and another source of the system made it again: nothing else shows the loss."""

    class Watched(Past, frozen=True):
        polled: ClassVar[bool] = False

    one, folder, file = site(Past(), Watched(name="folder")), "folder", FoundFile(Path("/spool/a.json"), 7, 100, 1)
    with closing(one.start()) as ledger:
        one.store(ledger, 0, 5)
        ledger.received_files(folder).record(file, "digest", "collected", "", model.EPOCH, [hours(0, 5)])
        ledger.received_files(folder).record(replace(file, path=Path("/spool/b"), inode=8), "other", "rejected", "no JSON", model.EPOCH)
    shutil.copy(one.path, tmp_path / "copy")
    for hour in (5, 6, 7):
        with closing(one.at(hour).start()) as ledger:
            one.store(ledger, hour, hour + 1)
            assert ledger.received_files(folder).outcome("digest") == "collected"
    one.lose()
    shutil.copy(tmp_path / "copy", one.path)
    with closing(one.at(9).start()) as ledger:
        received = ledger.received_files(folder)
        assert (received.knows(file), received.outcome("digest"), received.outcome("other")) == (False, None, "rejected")


def test_of_a_source_without_a_past_that_an_old_copy_knows_the_files_are_looked_at_before_anything_is_lost(site, tmp_path):
    one = site(Now())
    with closing(one.start()) as ledger:
        one.store(ledger, 0, 4)
        ledger.register(one.config.source[0], model.EPOCH)
        ledger.lost("past", hours(4, 5), "Past", "it was down", 0.0)
    shutil.copy(one.path, tmp_path / "copy")
    for hour in (5, 6, 7):
        with closing(one.at(hour).start()) as ledger:
            one.store(ledger, hour, hour + 1)
    one.lose()
    shutil.copy(tmp_path / "copy", one.path)
    with closing(one.at(9).start()) as ledger:
        assert one.stored(ledger) == [(0, 4), (5, 8 - DOUBTED)]
        lost = [(row.window, row.error) for row in ledger.unstored("past")]
        assert lost == [(hours(4, 5), "it was down"), (hours(8 - DOUBTED, 9), LOST_REASON)]


def test_a_rebuilding_that_is_killed_between_two_sources_begins_again(site, monkeypatch):
    class Killed(BaseException):
        pass

    def killed(*_):
        raise Killed

    one = site(Past(), Past("other", filled=(model.GAUGE,)))
    with closing(one.start()) as ledger:
        one.store(ledger, 0, 20)
    one.at(20).lose()
    one.path.with_suffix(".stamp").write_text("torn")  # by the same power loss: it proves nothing
    rebuild_source, asked = rebuild_ledger._rebuild, []
    monkeypatch.setattr(rebuild_ledger, "_rebuild", lambda *of: killed() if asked else asked.append(rebuild_source(*of)))
    with pytest.raises(Killed):
        one.start()
    monkeypatch.undo()
    with closing(one.start()) as ledger:
        assert [bool(ledger.stored(name)) for name in ("past", "other")] == [True, True]


def test_an_empty_ledger_in_which_the_collectors_registered_a_source_is_rebuilt(site):
    one = site()
    with closing(one.start()) as ledger:
        one.store(ledger, 0, 20)
    shutil.rmtree(one.path.parent)
    with closing(Ledger.open(one.at(20).path)) as collectors:
        collectors.register(one.config.source[0], model.EPOCH)
    with closing(one.start()) as ledger:
        assert one.stored(ledger) == [(0, 20 - SURE)]


def test_files_older_than_the_retention_are_not_looked_at(site):
    one = site(Past(retention=2 * 86400))
    with closing(one.start()) as ledger:
        one.store(ledger, 0, 100)
    one.at(100).lose()
    with closing(one.start()) as ledger:
        assert one.stored(ledger) == [(48, 100 - SURE)]


def test_of_the_window_in_which_the_retention_ends_an_old_copy_is_believed_for_it_cannot_be_queried(site, tmp_path):
    one = site(Past(retention=2 * 86400))
    with closing(one.start()) as ledger:
        one.store(ledger, 0, 100)
    shutil.copy(one.path, tmp_path / "copy")
    with closing(one.at(100).start()) as ledger:
        one.at(100 + 3 * GENERATION_SECONDS / HOUR).store(ledger, 100, 101)
    one.lose()
    shutil.copy(tmp_path / "copy", one.path)
    shutil.rmtree(one.directory / "2018-01-31")
    with closing(one.at(101.5).start()) as ledger:
        first, *_ = ledger.stored("past")
        assert first == (model.EPOCH, model.EPOCH + 54 * HOUR)  # the retention begins at 53.5 hours


@pytest.mark.parametrize("hour", [31, 31 + 24])
def test_a_rebuilt_ledger_has_no_watermark_before_the_whole_retention_was_queried_also_by_a_clock_that_is_ahead(site, hour):
    one = site(Past(retention=2 * 86400))
    with closing(one.start()) as ledger:
        one.store(ledger, 0, 30)
    one.at(hour).lose()
    with closing(one.start()) as ledger:
        assert one.stored(ledger)[-1][1] == 30 - SURE
        assert ledger.watermark("past") == model.EPOCH - 19 * HOUR


def test_a_ledger_of_before_there_were_stamps_is_believed(site):
    one = site()
    with closing(Ledger.open(one.path)) as ledger:
        ledger.store([StoredEntry(WindowMeta("past", "lmt", "fs", hours(0, 5)), 1)], 0.0)
    with capture_logs() as logs, closing(one.at(5).start()) as ledger:
        assert (one.stored(ledger), logs) == ([(0, 5)], [])


@pytest.mark.parametrize("hour", [23, 24], ids=["day", "midnight"])
@pytest.mark.parametrize("names", [model.NAMES, model.NAMES[:1]], ids=["whole", "torn"])
@pytest.mark.parametrize("is_away", [False, True])
def test_a_window_of_a_source_without_a_past_counts_as_stored_only_where_the_ledger_says_so(site, hour, names, is_away):
    """A component that was away in the window before lacks a number as one that a kill tore off does."""
    one = site(Now(filled=(model.GAUGE,)))
    with closing(one.start()) as ledger:
        one.store(ledger, 0, hour - 1)
        one.store(ledger, hour - 1, hour, {name: SAMPLES[name] for name in (model.NAMES[:1] if is_away else model.NAMES)})
        with closing(model.sink_in(one.directory)) as sink:
            sink.apply(model.window({name: SAMPLES[name] for name in names}, hour, hour + 1))
            assert sink.commit() == []
    with closing(one.at(hour + 3).start()) as ledger:
        assert (one.stored(ledger), ledger.unstored("past")) == ([(0, hour)], [])
    one.lose()
    with closing(one.start()) as ledger:
        # The newest window is doubted, torn or not. One in which the component was away lacks a number as a torn one does.
        end = hour - is_away
        assert one.stored(ledger) == [(0, end)]
        assert [(row.window, row.state) for row in ledger.unstored("past")] == [(hours(end, hour + 3), "lost")]


@pytest.mark.parametrize("more", [2, 6])
@pytest.mark.parametrize("pause", [0, 30])
def test_a_torn_window_stays_lost_in_a_ledger_that_is_rebuilt_long_after(site, more, pause):
    """The daemon may have been down after it, for longer than a column may lack numbers."""
    one = site(Now(filled=(model.GAUGE,)))
    torn, after = 5, 6 + pause
    with closing(one.start()) as ledger:
        one.store(ledger, 0, torn)
        with closing(model.sink_in(one.directory)) as sink:
            sink.apply(model.window({model.NAMES[0]: SAMPLES[model.NAMES[0]]}, torn, torn + 1))
            assert sink.commit() == []
        one.store(ledger, after, after + more)
    one.lose()
    with closing(one.at(after + more).start()) as ledger:
        newest = after + more - DOUBTED
        assert one.stored(ledger) == [(0, torn), (after, newest)]
        lost = [(row.window, row.state) for row in ledger.unstored("past")]
        assert lost == [(hours(torn, after), "lost"), (hours(newest, newest + DOUBTED), "lost")]


def test_a_window_that_an_old_copy_calls_stored_stays_so_without_a_component(site, tmp_path):
    one = site(Now(filled=(model.GAUGE,)))
    with closing(one.start()) as ledger:
        one.store(ledger, 0, 3)
        one.store(ledger, 3, 4, {model.NAMES[0]: SAMPLES[model.NAMES[0]]})
    shutil.copy(one.path, tmp_path / "copy")
    with closing(one.at(3 * GENERATION_SECONDS / HOUR).start()):
        pass
    one.lose()
    shutil.copy(tmp_path / "copy", one.path)
    with closing(one.at(4).start()) as ledger:
        assert (one.stored(ledger), ledger.unstored("past")) == ([(0, 4)], [])


def test_of_a_source_that_can_be_asked_again_no_file_is_opened_while_the_ledger_is_trusted(site, monkeypatch):
    one = site()
    with closing(one.start()) as ledger:
        one.store(ledger, 0, 5)
    monkeypatch.setattr(rebuild, "open_for_reading", None)
    with closing(one.at(7).start()) as ledger:
        assert one.stored(ledger) == [(0, 5)]
