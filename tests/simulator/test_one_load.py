"""Where LMT's cells are said to be right, they add up to what jobs did: by the oracle's rule of differences, at sites of the demo."""

import numpy as np
import pytest

from tokiod.jobs.span import Days
from tokiod.jobs.table import JobTable
from tokiod.simulator.jobs.one_load import DATASETS, polls, right_cells
from tokiod.simulator.lmt.expected import Answers
from tokiod.simulator.load import Load
from tokiod.simulator.site import STEP, Site
from tokiod.testing.clock import FakeClock
from tokiod.window import Calendar, Window
from tokiod.window_data import JOB_COLUMNS, JOB_TABLE, Collected, TableRows, WindowMeta, job_key

MINUTE, START = 60 // STEP, 1_800_000_000


def by_minutes(cells, reduce):
    return reduce(cells.reshape(-1, MINUTE, cells.shape[1]), axis=1)


# At both a counter restarts, stays zero for longer than an hour, and moves again.
@pytest.mark.parametrize("epoch", [1795998300, 1796005500])
def test_right_cells_are_what_jobs_did(epoch):
    site = Site(epoch=epoch, timezone="UTC", acts=1)
    span = Window(epoch, epoch + 3 * 3600)
    answer, right = Answers(site, [Window(span.start, span.end + STEP)]).of(span), right_cells(site, span)
    done = _done_by_jobs(site, span)
    for number, name in enumerate(DATASETS):
        minutes = by_minutes(right[name], np.all)
        np.testing.assert_array_equal(by_minutes(answer[name].values, np.sum)[minutes], by_minutes(done[number], np.sum)[minutes])
        assert minutes.mean() > 0.5


def _done_by_jobs(site, span):
    """Return i8[2, rows, OSTs], bytes that were read and written between each two samples."""
    blocks = [Load(site)._sums_of_jobs(block) for block in range(span.seconds // STEP // 720 + 1)]
    both = [np.concatenate([block["ost", name][:, :, 1] for block in blocks]) for name in ("read_bytes", "write_bytes")]
    return np.stack(both)[:, 1 : span.seconds // STEP + 1]


def test_a_target_answered_where_its_window_says_so_and_not_where_it_has_a_row(tmp_path):
    """A window that was not stored is brought by the next one, in which the server may be silent."""
    table = JobTable(tmp_path, Calendar("UTC"), FakeClock(START + 300.0), inline=True)
    for start in (START, START + 120):
        fixed = (
            np.array([start + 1] * 2),
            np.array([b"fs-OST0000", b"fs-OST0001"]),
            np.array([job_key("7")] * 2),
            *np.zeros((3, 2), np.int64),
        )
        rows = TableRows(JOB_TABLE, (*JOB_COLUMNS, "read_bytes.sum"), (*fixed, np.array([5, 5])), polled=(b"fs-OST0000",))
        table.apply(Collected(WindowMeta("jobs", "lustre_jobstats", "fs", Window(start, start + 60)), [], [rows]))
    assert table.commit() == []
    found = polls(Days((tmp_path,), "fs"), Window(START, START + 300), 60)
    assert found == {("fs-OST0000", START), ("fs-OST0000", START + 120)}
