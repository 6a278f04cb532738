"""What may happen to a tortured daemon beside kills: to its processes, its sources and its clock; and the deck that all faults are in."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import torture_disk
import torture_files
import torture_ledger
import torture_operations
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tortured import Tortured

    Fault = Callable[[Tortured], None]

CRASHING = """\
import os, sys
if "writer" in sys.orig_argv and os.path.exists("{flag}"):
    os.abort()
"""
HOUR = 3600


def freeze(tortured: Tortured) -> None:
    """A process stands still for seconds; while it is the supervisor, another may die."""
    scene, rng = tortured.scene, tortured.rng
    process = rng.choice(("writer", "collectors", "supervisor"))
    with scene.frozen(process):
        if process == "supervisor" and rng.random() < 1 / 2:
            scene.kill(rng.choice(("writer", "collectors")))
        tortured.pause(0.5, 4)


def stop_source(tortured: Tortured) -> None:
    """A source stands still: queries wait."""
    with tortured.scene.stopped(tortured.rng.choice(tortured.scene.sources)):
        tortured.pause(0.5, 4)


def kill_source(tortured: Tortured) -> None:
    """A source dies, and is started again."""
    source = tortured.rng.choice(tortured.scene.sources)
    tortured.scene.kill_source(source)
    tortured.pause(0.1, 3)
    tortured.scene.start_source(source)


def crash_writer(tortured: Tortured) -> None:
    """The writer crashes at each start for seconds."""
    flag = tortured.scene.directory / "crash"
    flag.touch()
    tortured.scene.kill("writer")
    tortured.pause(1, 5)
    flag.unlink()


def let_crash(tortured: Tortured) -> None:
    """Have crash_writer() and fail_operations() work, for all that is started from now on."""
    directory = tortured.scene.directory
    site = directory / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(CRASHING.format(flag=directory / "crash") + torture_operations.failing(directory))
    os.environ["PYTHONPATH"] = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])


# A simulated clock is a function of the machine's, the same one in all processes: that it steps under a running process is tried with
# a clock of a test's own (tests/polling/test_poller.py, tests/polling/test_schedule.py).
def wrong_clock(tortured: Tortured) -> None:
    """The daemon starts with a clock that is an hour fast or slow, and then with the right one.

    What is measured meanwhile of a source that tells only what is now bears the wrong time; so it stands still. What a fast
    clock has asked for too early is asked for again once it is over: an hour.
    """
    scene, right = tortured.scene, tortured.scene.clock
    tortured.down()
    with stopped(tortured):
        scene.clock = replace(right, epoch=right.epoch + tortured.rng.choice((-HOUR, HOUR)))
        scene.start_daemon()
        tortured.pause(3, 8)
        tortured.down()
        scene.clock = right
    scene.start_daemon()
    tortured.outlive_a_fast_clock()


@contextmanager
def stopped(tortured: Tortured) -> Iterator[None]:
    """Let all sources without a past stand still."""
    scene = tortured.scene
    with ExitStack() as still:
        for source in scene.sources:
            if not source.replayable:
                still.enter_context(scene.stopped(source))
        yield


class Deck:
    """All faults there are, one after the other in a random order, and then again in another."""

    def __init__(self, tortured: Tortured) -> None:
        let_crash(tortured)
        self._tortured = tortured
        self._faults: list[Fault] = [freeze, stop_source, kill_source, crash_writer, wrong_clock]
        self._faults += [*torture_files.FAULTS, *torture_ledger.FAULTS, *torture_operations.FAULTS]
        self._faults += torture_disk.FAULTS if tortured.disk is not None else ()
        self._left: list[Fault] = []
        self.counts = {fault.__name__: 0 for fault in self._faults}

    def strike(self) -> str:
        """Let the next one happen; returns its name."""
        if not self._left:
            self._left = self._tortured.rng.sample(self._faults, len(self._faults))
        fault = self._left.pop()
        self._tortured.note(fault.__name__)
        fault(self._tortured)
        self._tortured.note(f"{fault.__name__} is over")
        self.counts[fault.__name__] += 1
        return fault.__name__
