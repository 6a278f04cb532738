"""Recording a source without a past: a window that fails in its time is missing and reported, and the others are in the file."""

import asyncio

import pytest

from collectors import lustre
from tokiod.errors import Fatal, TokiodError, Transient
from tokiod.reports.fetch import Fetch
from tokiod.testing.clock import FakeClock
from tokiod.window import Calendar, Window

MINUTE = 60
EPOCH = 1_517_184_000
SPAN = Window(EPOCH, EPOCH + 4 * MINUTE)
SOURCE = lustre.Config(name="m", kind="lustre", system="fs", mounts=("/a",))


class Momentary:
    """The collector of a source without a past, as far as a fetch looks at it."""

    replayable, needs_sample_at_end, step = False, False, MINUTE


class Text:
    def __init__(self, path):
        self._path, self._lines = path, []

    def add(self, raw):
        self._lines.append(raw)

    def close(self):
        self._path.write_text("\n".join(self._lines))


class Raw:
    """Raw output of windows: of those in `errors` each attempt raises."""

    suffix, file_seconds, window_seconds, collector = ".txt", 86400, 1, Momentary()

    def __init__(self, clock, errors):
        self.clock, self.errors, self.attempts = clock, errors, []

    async def fetch(self, window):
        number = (window.start - EPOCH) // MINUTE
        self.attempts.append(number)
        assert window.start <= self.clock.time() < window.end
        if number in self.errors:
            raise self.errors[number]
        return f"window {number}"

    def create(self, path):
        return Text(path)

    def options(self):
        return []


async def record(directory, errors):
    """Record four minutes, each error in each attempt; return what was fetched, the windows as they were missed, and the attempts."""
    clock, missed = FakeClock(EPOCH), []
    raw = Raw(clock, errors)
    fetch = Fetch(SOURCE, raw, SPAN, directory, Calendar("UTC"), clock, miss=missed.append)
    running = asyncio.create_task(fetch.run())
    while not running.done():
        await asyncio.sleep(0.001)  # the file is written in a thread
        await clock.advance(1)
    return await running, missed, raw.attempts


def test_windows_that_fail_in_their_time_are_missing_and_the_others_are_in_the_file(tmp_path):
    fetched, missed, attempts = asyncio.run(record(tmp_path, {0: Transient("lfs ended late"), 2: TimeoutError()}))
    windows = [Window(EPOCH + n * MINUTE, EPOCH + (n + 1) * MINUTE) for n in (0, 2)]
    assert missed == fetched.missing == [(windows[0], "lfs ended late"), (windows[1], "no answer in time")]
    (path,) = fetched.files
    assert path.read_text() == "window 1\nwindow 3"
    assert [attempts.count(number) for number in range(4)] == [4, 1, 4, 1]


@pytest.mark.parametrize(
    ("errors", "sentence"),
    [
        (dict.fromkeys(range(4), Transient("the mount is away")), "the mount is away"),
        ({2: Fatal("lfs is not installed")}, "lfs is not installed"),
    ],
    ids=["each window fails", "it can't go on"],
)
def test_without_any_window_and_after_a_fatal_error_there_is_no_file(tmp_path, errors, sentence):
    with pytest.raises(TokiodError, match=sentence):
        asyncio.run(record(tmp_path, errors))
    assert list(tmp_path.iterdir()) == []
