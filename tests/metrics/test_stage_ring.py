"""The ring survives a kill at any instant, is read while it is written, and goes on where the process before it was killed."""

import fcntl
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from tokiod.errors import TokiodError
from tokiod.metrics import stage_ring
from tokiod.metrics.stage_ring import FILE_BYTES, HEAD_BYTES, KINDS, MARKS, NAMES_END, SLOT_BYTES, SLOTS, STAGES, StageRing, Work, read_ring

WRITE = """\
import sys
from pathlib import Path
from tokiod.metrics.stage_ring import StageRing
path = Path(sys.argv[1])
ring = StageRing(path, path.with_suffix(".lock"))
while True:
    number = ring.next_number()
    for end, outcome in ((0, 0), (number, 1)):
        name = ring.place_of(f"source-{number % 7}")
        ring.write([number, number, number, end, 0, 0, number, number, number, 60, number % 5, name, 1, outcome])
    if not number % 1000:
        print(flush=True)
"""


def opened(path):
    return StageRing(path, path.with_suffix(".lock"))


def put(ring, number, name="a", outcome=1):
    kind = number % len(KINDS)
    marks = list(marks_of(number, outcome)) + [0] * (MARKS - 1 - len(STAGES[KINDS[kind]]))
    ring.write([number, *marks, 8, 60 * number, 7, 60, 3, ring.place_of(name), kind, outcome])


def marks_of(number, outcome):
    stages = len(STAGES[KINDS[number % len(KINDS)]])
    return (*(10 * number + stage for stage in range(stages)), 10 * number + 9 if outcome else 0)


def work(number, name="a", outcome="done"):
    return Work(number, marks_of(number, outcome != "open"), 8, 60 * number, 7, 60, 3, name, KINDS[number % len(KINDS)], outcome)


@contextmanager
def writing(path):
    process = subprocess.Popen([sys.executable, "-c", WRITE, str(path)], stdout=subprocess.PIPE)
    try:
        process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def is_whole(one):
    """Whether it has the fields that WRITE gives it, and no others; the next process ends what was open as failed."""
    number, end = one.number, {"open": 0, "done": one.number, "failed": one.marks[-1]}[one.outcome]
    return one == Work(
        number, (number, number, end), number, number, number, 60, number % 5, f"source-{number % 7}", "submission", one.outcome
    )  # fmt: skip


def test_works_are_read_as_they_were_written_in_their_order_open_ones_too(tmp_path):
    with opened(tmp_path / "r") as ring:
        numbers = [ring.next_number() for _ in range(20)]
        for number in reversed(numbers):
            put(ring, number, f"source {number}", outcome=number % 2)
        found = read_ring(tmp_path / "r")
        assert found.is_live
    assert found.works == [work(number, f"source {number}", "done" if number % 2 else "open") for number in numbers]
    assert (found.damaged, found.boot, read_ring(tmp_path / "r").is_live) == (0, stage_ring.boot_id(), False)


def test_the_oldest_works_are_overwritten(tmp_path):
    with opened(tmp_path / "r") as ring:
        for _ in range(SLOTS + 100):
            put(ring, ring.next_number())
        assert (ring.is_overwritten(100), ring.is_overwritten(101)) == (True, False)
    assert [one.number for one in read_ring(tmp_path / "r").works] == list(range(101, SLOTS + 101))
    assert (tmp_path / "r").stat().st_size == FILE_BYTES


def test_the_next_process_goes_on_after_the_last_number_with_the_same_names(tmp_path):
    for first, name in ((1, "a"), (4, "b"), (7, "a")):
        with opened(tmp_path / "r") as ring:
            for number in range(first, first + 3):
                assert ring.next_number() == number
                put(ring, number, name)
    assert read_ring(tmp_path / "r").works == [work(number, "b" if number in {4, 5, 6} else "a") for number in range(1, 10)]


def test_a_slot_of_which_a_kill_left_any_part_is_none_and_harms_no_other(tmp_path):
    torn = range(1, SLOT_BYTES)
    with opened(tmp_path / "r") as ring:
        for _ in range(2 * SLOT_BYTES):
            put(ring, ring.next_number())
    content = bytearray((tmp_path / "r").read_bytes())
    for written in torn:
        begin, end = (NAMES_END + 2 * written * SLOT_BYTES + place for place in (written, SLOT_BYTES))
        content[begin:end] = random.Random(written).randbytes(end - begin)
    (tmp_path / "r").write_bytes(content)
    found = read_ring(tmp_path / "r")
    whole = sorted({*range(1, 2 * SLOT_BYTES + 1)} - {2 * written for written in torn})
    assert found.works == [work(number) for number in whole]
    assert found.damaged == len(torn)
    with opened(tmp_path / "r") as ring:
        assert ring.next_number() == 2 * SLOT_BYTES + 1


def test_work_of_a_kind_that_this_version_does_not_know_is_passed_over(tmp_path):
    """A newer version wrote to the file before this one: a new kind, or a new outcome of an open piece of work."""
    with opened(tmp_path / "r") as ring:
        put(ring, ring.next_number())
        for kind, outcome in ((len(KINDS), 0), (1, len(stage_ring.OUTCOMES))):
            ring.write([ring.next_number(), *[9] * MARKS, 8, 60, 7, 60, 3, ring.place_of("a"), kind, outcome])
    assert read_ring(tmp_path / "r").works == [work(1)]
    with opened(tmp_path / "r") as ring:
        put(ring, 4)
        assert read_ring(tmp_path / "r").works == [work(1), work(4)]


def test_a_name_of_which_a_kill_left_a_part_is_no_name(tmp_path):
    with opened(tmp_path / "r") as ring:
        put(ring, ring.next_number(), "first")
        ring.place_of("second")
    content = bytearray((tmp_path / "r").read_bytes())
    begin = content.index(b"second")
    content[begin + 3 : begin + 6] = bytes(3)
    (tmp_path / "r").write_bytes(content)
    with opened(tmp_path / "r") as ring:
        put(ring, ring.next_number(), "third")
    assert [one.name for one in read_ring(tmp_path / "r").works] == ["first", "third"]


def test_names_that_find_no_place_do_not_end_the_recording(tmp_path):
    with opened(tmp_path / "r") as ring:
        for number in range(400):
            put(ring, ring.next_number(), f"{number:0200}")
    names = [one.name for one in read_ring(tmp_path / "r").works]
    kept = names.index("?")
    assert names == [f"{number:0200}" for number in range(kept)] + ["?"] * (400 - kept)
    assert kept == (NAMES_END - HEAD_BYTES) // 206


def test_a_process_that_is_killed_while_it_writes_leaves_whole_slots_only(tmp_path):
    last = 0
    for kill in range(6):
        with writing(tmp_path / "r") as process:
            time.sleep(random.Random(kill).random() / 20)
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        found = read_ring(tmp_path / "r")
        assert all(map(is_whole, found.works))
        assert found.damaged <= kill + 1
        assert found.works[-1].number >= last
        last = found.works[-1].number


def test_what_is_read_while_it_is_written_is_whole(tmp_path):
    read = []
    with writing(tmp_path / "r"):
        while len(read) < 3 or read[0].works[-1] == read[-1].works[-1]:
            read.append(read_ring(tmp_path / "r"))
    assert all(is_whole(one) for found in read for one in found.works)


def test_what_a_killed_process_left_open_ends_as_failed_at_the_last_time_that_it_recorded(tmp_path):
    with opened(tmp_path / "r") as ring:
        for outcome in (1, 0, 1, 0):
            put(ring, ring.next_number(), outcome=outcome)
    assert [one.outcome for one in read_ring(tmp_path / "r").works] == ["done", "open", "done", "open"]
    opened(tmp_path / "r").close()
    ended = [(one.number, one.marks[-1], one.outcome) for one in read_ring(tmp_path / "r").works]
    assert ended == [(1, 19, "done"), (2, 40, "failed"), (3, 39, "done"), (4, 40, "failed")]


def test_a_ring_belongs_to_one_process(tmp_path, monkeypatch):
    monkeypatch.setattr(stage_ring, "LOCK_TRIES", 2)
    with writing(tmp_path / "r"), pytest.raises(TokiodError, match="another process records"):
        opened(tmp_path / "r")


def test_a_reader_sees_that_the_process_lives_and_no_lock_that_a_reader_can_take_stops_a_recording(tmp_path):
    """A user who may read a file may take any shared lock on it, and any flock."""
    opened(tmp_path / "r").close()
    with (tmp_path / "r").open("rb") as file:
        fcntl.lockf(file, fcntl.LOCK_SH)
        fcntl.flock(file, fcntl.LOCK_EX)
        with opened(tmp_path / "r") as ring:
            put(ring, ring.next_number())
            assert read_ring(tmp_path / "r").works == [work(1)]
            assert read_ring(tmp_path / "r").is_live
    assert not read_ring(tmp_path / "r").is_live


def test_a_ring_of_another_boot_is_read_as_such_and_then_made_again(tmp_path, monkeypatch):
    monkeypatch.setattr(stage_ring, "boot_id", lambda: "an earlier boot".ljust(36))
    with opened(tmp_path / "r") as ring:
        put(ring, ring.next_number())
    monkeypatch.undo()
    assert read_ring(tmp_path / "r").boot == "an earlier boot".ljust(36)
    with opened(tmp_path / "r") as ring:
        assert ring.next_number() == 1
        assert read_ring(tmp_path / "r").works == []


@pytest.mark.parametrize("content", [b"", b"junk", bytes(FILE_BYTES), bytes(HEAD_BYTES)])
def test_a_file_that_is_no_ring_holds_nothing_and_is_made_one(tmp_path, content):
    (tmp_path / "r").write_bytes(content)
    assert read_ring(tmp_path / "r") is None
    with opened(tmp_path / "r") as ring:
        put(ring, ring.next_number())
    assert read_ring(tmp_path / "r").works == [work(1)]
