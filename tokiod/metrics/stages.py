"""Where the time of every window and every file goes: the calls that record a stage, in /metrics and in the ring of the process.

    collection   due      settled, and not asked for yet: other windows, earlier attempts, a source that was down
                 ask      until the collector waits for its source for the first time
                 fetch    the collector waits for its source
                 parse    the collector computes
    submission   submit   the bus has no room
                 bus      from submission to acknowledgement; the commit lies within
    commit       apply    the cells of the window into the file, and those of the windows that are stored with it
                 sync     all applied windows to the disk
                 ledger   their transaction
                 feed     publication of the changed cells
    rewrite      make, grow, reopen, seal, convert: from the begin of a rewrite until the new file is in place

fetch and parse take turns; the ring holds the sum of each, fetch first.
"""

from __future__ import annotations

from contextlib import contextmanager
from time import monotonic_ns, time_ns
from typing import TYPE_CHECKING, Any, Protocol, Self

from tokiod.archive.rights import make_private, make_shared
from tokiod.errors import Refusal, TokiodError
from tokiod.metrics import catalogue
from tokiod.metrics.stage_ring import DONE, FAILED, KINDS, OPEN, REFUSED, STAGES, StageRing
from tokiod.runtime.logger import get_logger
from tokiod.window_result import Stored

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator, Iterator, Sequence
    from pathlib import Path

    from tokiod.archive.layout import FileSlot
    from tokiod.metrics.stage_ring import Kind
    from tokiod.metrics.types import Role
    from tokiod.window import Window
    from tokiod.window_data import Collected
    from tokiod.window_result import Answer

log = get_logger()

REWRITES: dict[str, Kind] = {"made": "make", "grown": "grow", "opened": "reopen", "sealed": "seal"}
"""By the change of the file; see FileChange."""
_PLACES = {kind: place for place, kind in enumerate(KINDS)}
_COMMIT = {stage: place for place, stage in enumerate(STAGES["commit"])}

_rings: list[StageRing] = []
"""The ring of this process, if it records."""


def ring_path(directory: Path, role: Role) -> Path:
    """Return where the process in a role records; directory: that of the rings, which readers may enter."""
    return directory / f"{role}.ring"


@contextmanager
def recording(directory: Path, private: Path, role: Role) -> Iterator[None]:
    """Record the stages of this process in the block. A failure is logged and stops nothing.

    directory: of the rings; private: the daemon's own directory, for the lock.
    """
    try:
        make_shared(directory)
        make_private(private)
        _rings.append(ring := StageRing(ring_path(directory, role), private / f"{role}.stages.lock"))
    except (TokiodError, OSError) as error:
        log.warning("stages.failed", reason=f"stages of the {role} are not recorded: {error}")
        yield
        return
    try:
        yield
    finally:
        _rings.remove(ring)
        ring.close()


class Span(Protocol):
    """What a piece of work is about: a window, or the day of a file."""

    @property
    def start(self) -> int:
        """UTC epoch seconds."""
        ...

    @property
    def end(self) -> int:
        """UTC epoch seconds."""
        ...


class OpenWork:
    """A piece of work that has begun. Its slot shows it open until it ends, also after a kill. Without a ring it records nothing."""

    __slots__ = ("_ring", "_slot")

    def __init__(self, kind: Kind, name: str, span: Span, attempt: int = 0, nbytes: int = 0) -> None:
        """Begin it, without a mark. name: a source, of a file its system; span: the window, of a file its day."""
        self._ring, start = _rings[-1] if _rings else None, span.start
        self._slot = [0, 0, 0, 0, 0, 0, 0, start, nbytes, span.end - start, attempt, 0, _PLACES[kind], OPEN]
        if (ring := self._ring) is not None:
            self._slot[0], self._slot[6], self._slot[11] = ring.next_number(), time_ns() - monotonic_ns(), ring.place_of(name)

    def begin(self, stage: int, *times: int) -> None:
        """Note when a stage begins, and those after it; times: ns of the monotonic clock."""
        if (ring := self._ring) is not None:
            self._slot[stage + 1 : stage + 1 + len(times)] = times
            ring.write(self._slot)

    def end(self, stages: int, *times: int, outcome: int = DONE) -> None:
        """End it after so many stages; times: its end, and before that when its last stages began."""
        if (ring := self._ring) is not None:
            if ring.is_overwritten(self._slot[0]):
                self._slot[0] = ring.next_number()
            self._slot[-1] = outcome
            self.begin(stages + 1 - len(times), *times)


class Rewriting:
    """A rewrite of a file."""

    def __init__(self, change: str, slot: FileSlot) -> None:
        """Begin to record it; change: as in FileChange."""
        self._work = OpenWork(REWRITES[change], slot.system, slot)
        self._work.begin(0, monotonic_ns())

    def end(self, *, is_done: bool = True) -> None:
        """Note that the new file is in place, or that it never will be."""
        self._work.end(1, monotonic_ns(), outcome=DONE if is_done else FAILED)


# ---- the collectors' process


class Collecting:
    """Awaits the collection of a window and measures when it waits and when it computes, without a call in any collector.

    It returns and raises what the collection does. due: since how many seconds live polling could have asked; None for the past.
    """

    def __init__(self, collection: Coroutine[Any, Any, Collected], source: str, window: Window, due: float | None = None) -> None:
        self._collection, self._source = collection, source
        self._work = OpenWork("collection", source, window)
        self._begun = self._resumed = monotonic_ns()
        self._due = 0 if due is None else self._begun - int(due * 1e9)
        self._fetch = self._computed = 0

    # What `return (yield from collection.__await__())` does, with a look at the clock at each turn. A cancellation passes through.
    def __await__(self) -> Generator[Any, Any, Collected]:
        send, throw = self._collection.send, self._collection.throw
        step, value, is_done = send, None, False
        try:
            while True:
                waited_for = step(value)
                now = monotonic_ns()
                if self._fetch:
                    self._computed += now - self._resumed
                else:
                    self._fetch = now
                    self._work.begin(0, self._due, self._begun, now)
                try:
                    step, value = send, (yield waited_for)
                except BaseException as error:  # noqa: BLE001 - as above
                    step, value = throw, error
                self._resumed = monotonic_ns()
        except StopIteration as done:
            is_done = True
            return done.value  # type: ignore[no-any-return]
        finally:
            self._end(is_done=is_done)

    def _end(self, *, is_done: bool) -> None:
        parsing, now = self._resumed - self._computed, monotonic_ns()
        self._work.end(4, self._due, self._begun, self._fetch, parsing, now, outcome=DONE if is_done else FAILED)
        if is_done and self._due:
            catalogue.STAGE.observe((now - self._begun) / 1e9, self._source, "collect")
            catalogue.STAGE.observe((parsing - (self._fetch or parsing)) / 1e9, self._source, "fetch")
            catalogue.STAGE.observe((now - parsing) / 1e9, self._source, "parse")


class Submission:
    """A window on its way to the writer: the block waits for room on the bus; accepted() follows, until the answer."""

    __slots__ = ("_begun", "_collected", "_work")

    def __init__(self, collected: Collected) -> None:
        self._collected = collected

    def __enter__(self) -> Self:
        meta = self._collected.meta
        self._work = OpenWork("submission", meta.source, meta.window, nbytes=self._collected.nbytes)
        self._begun = monotonic_ns()
        self._work.begin(0, self._begun)
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is not None:
            self._work.end(2, monotonic_ns(), outcome=FAILED)

    def accepted(self, answer: Answer) -> None:
        """Record that the window is in flight, until its answer."""
        begun, self._begun = self._begun, monotonic_ns()
        self._work.begin(1, self._begun)
        catalogue.STAGE.observe((self._begun - begun) / 1e9, self._collected.meta.source, "submit")
        answer.add_done_callback(self._answered)
        catalogue.count_answer(self._collected, answer)

    def _answered(self, answer: Answer) -> None:
        result, now = None if answer.cancelled() else answer.result(), monotonic_ns()
        comes_again = isinstance(result, Refusal) and result.when != "never"
        self._work.end(2, now, outcome=DONE if isinstance(result, Stored) else REFUSED if comes_again else FAILED)
        if isinstance(result, Stored):
            catalogue.STAGE.observe((now - self._begun) / 1e9, self._collected.meta.source, "store")


# ---- the writer's process


class Attempt(Span, Protocol):
    """An attempt at a window of a source, as the bus names it."""

    @property
    def source(self) -> str:
        """The source's name."""
        ...

    @property
    def attempt(self) -> int:
        """The number of the attempt."""
        ...


class Commit:
    """Records the stages of the windows that the writer stores together. What has not ended with the block has failed."""

    __slots__ = ("_works",)

    def __enter__(self) -> Self:
        self._works: dict[int, OpenWork] = {}
        return self

    def __exit__(self, *_: object) -> None:
        for work in self._works.values():
            work.end(4, monotonic_ns(), outcome=FAILED)

    def stage(self, stage: str, attempts: Sequence[Attempt]) -> CommitStage:
        """Begin a stage of some windows, which lasts as long as the block."""
        now, place, works = monotonic_ns(), _COMMIT[stage], self._works
        for one in attempts:
            if (work := works.get(id(one))) is None:
                works[id(one)] = work = OpenWork("commit", one.source, one, one.attempt)
            work.begin(place, now)
        return CommitStage(works, stage, attempts, now)


class CommitStage:
    """A stage of windows that are stored together; the last one ends their commit."""

    __slots__ = ("_attempts", "_begun", "_stage", "_works")

    def __init__(self, works: dict[int, OpenWork], stage: str, attempts: Sequence[Attempt], begun: int) -> None:
        self._works, self._stage, self._attempts, self._begun = works, stage, attempts, begun

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is None:
            now = monotonic_ns()
            catalogue.WRITER_STAGE.observe((now - self._begun) / 1e9, self._stage)
            if self._stage == "feed":
                for one in self._attempts:
                    self._works.pop(id(one)).end(4, now)
