"""The process that merges files of the job table: what it writes, and how it ends."""

import os
import stat
import subprocess

import pytest
from job_rows import DAY, collected, rows

from tokiod.jobs.rows import read
from tokiod.jobs.table import write_window
from tokiod.runtime.process_setup import python_command
from tokiod.tts.live.files import Files
from tokiod.window_data import job_parts


@pytest.fixture
def merge(tmp_path):
    """Merge two windows; return the process that ended, and the merged file."""
    paths = [tmp_path / f"{number}.jobs" for number in range(2)]
    for number, path in enumerate(paths):
        one = collected(number, rows(DAY + 60 * number + 5, ("1",), **{"open.samples": number}))
        write_window(path, Files(), one.meta, one.tables[0])

    def merge(users, *others, parent=None):
        line = python_command(
            "tokiod.jobs.merge_process", str(parent or os.getpid()), users, str(tmp_path / "all"), *map(str, (*paths, *others))
        )
        return subprocess.run(line, capture_output=True, text=True, umask=0, check=False), tmp_path / "all"

    return merge


@pytest.mark.parametrize(("users", "expected"), [("keep", {"1000"}), ("remove", {""})])
def test_it_merges_all_files_with_or_without_users_for_no_other_user_of_the_machine(merge, users, expected):
    done, merged = merge(users)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    found = read([merged], DAY, DAY + 86400)
    assert (len(found), {job_parts(key)["user"] for key in found.jobs.tolist()}) == (4, expected)
    assert stat.S_IMODE(merged.stat().st_mode) & stat.S_IRWXO == 0


def test_a_failure_is_one_line_and_leaves_nothing(merge, tmp_path):
    (tmp_path / "damaged").write_bytes(b"x" * 5000)
    done, merged = merge("keep", tmp_path / "damaged")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert str(tmp_path / "damaged") in done.stderr
    assert not merged.exists()


def test_it_does_nothing_for_a_parent_that_is_gone(merge):
    done, merged = merge("keep", parent=2**22 + 1)
    assert (done.returncode, done.stderr, merged.exists()) == (0, "", False)
