"""Errors of readers of an archive. Each names what exists instead.

TokiodError
├── NoSuchSystem     no file of the archive has this system
├── NoSuchDataset    no file of the span has this dataset
├── NoSuchColumn     the dataset has no such column
├── NoData           no file of the span exists, or none has a row in it
├── NoJobTable       the archive has no job table of this system
├── StepChanged      the rows are not equally far apart in the whole span
├── NotTts           a file is no TTS file, or is damaged
├── UnclearTime      a time without a zone, one that occurs twice, or no time at all
└── NotInstalled     the call needs a package that is not installed
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokiod.errors import TokiodError, nearest
from tokiod.job_columns import kind_for
from tokiod.times import iso
from tokiod.tts.layout import NotLive

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from tokiod.reader.span import Span

MAX_NAMES = 20
"""Names that a sentence lists at most."""


class NoSuchSystem(TokiodError, LookupError):  # noqa: N818 - a state, not a fault
    """No file of the archive has a system of this name. known: those that have files."""

    def __init__(self, system: str, known: Iterable[str], templates: Sequence[str]) -> None:
        names = sorted(set(known))
        super().__init__(f"{' and '.join(templates)}: no files of system {system!r}{_instead(system, names)}")
        self.system, self.known = system, tuple(names)


class NoData(TokiodError):  # noqa: N818 - a state, not a fault
    """No file of a span exists, or none has a row in it. paths: those that were looked for; instead: what there is."""

    def __init__(self, span: Span, paths: Sequence[Path], instead: str = "") -> None:
        where = f"; first missing file: {paths[0]}" if paths else ""
        super().__init__(f"no data in {span}{where}{instead}")
        self.span, self.paths, self.instead = span, tuple(paths), instead


class NoJobTable(TokiodError, LookupError):  # noqa: N818 - a state, not a fault
    """The archive has no job table of a system. roots: where it was looked for."""

    def __init__(self, system: str, roots: Sequence[Path]) -> None:
        places = " and ".join(str(root / system) for root in roots)
        super().__init__(f"{system} has no job table at {places}: a source of kind {kind_for(system)} fills it (docs/jobs.md)")
        self.system, self.roots = system, tuple(roots)


class NoSuchDataset(TokiodError, LookupError):  # noqa: N818 - a state, not a fault
    """No file of a span has a dataset of this name. known: those that the files have; none_of: the beginning of the sentence."""

    def __init__(self, dataset: str, known: Iterable[str], none_of: str) -> None:
        names = sorted(set(known))
        super().__init__(f"{none_of} {dataset!r}{_instead(dataset, names)}")
        self.dataset, self.known = dataset, tuple(names)


class NoSuchColumn(TokiodError, LookupError):  # noqa: N818 - a state, not a fault
    """A dataset has no column of this name in the span."""

    def __init__(self, dataset: str, column: str, known: Iterable[str]) -> None:
        super().__init__(f"{dataset} has no column {column!r}{_instead(column, list(known))}")
        self.dataset, self.column = dataset, column


class StepChanged(TokiodError):  # noqa: N818 - as above
    """The rows of a dataset are not equally far apart in all files of a span. time: epoch seconds of the first file that differs."""

    def __init__(self, dataset: str, time: int, steps: tuple[int, int]) -> None:
        super().__init__(f"{dataset}: rows are {steps[0]} s apart before {iso(time)} and {steps[1]} s from then on; end or start there")
        self.dataset, self.time, self.steps = dataset, time, steps


class NotTts(TokiodError, NotLive):  # noqa: N818 - a state, not a fault
    """A file is no TTS file, or is damaged; the text names the file and the reason."""


class UnclearTime(TokiodError, ValueError):  # noqa: N818 - a state, not a fault
    """A time that names no instant: it has no zone, occurs twice or never in its zone, or is no time at all."""


class NotInstalled(TokiodError, ImportError):  # noqa: N818 - a state, not a fault
    """A call needs an optional package."""

    def __init__(self, call: str, package: str, otherwise: str, install: str = "") -> None:
        super().__init__(f"{call} needs {package}: {install or f'pip install {package}'}; without it, {otherwise}")


def _instead(name: str, known: Sequence[str]) -> str:
    listed = ", ".join(known[:MAX_NAMES]) + (f" and {len(known) - MAX_NAMES} more" if len(known) > MAX_NAMES else "")
    return nearest(name, known) or f"; known: {listed or 'none'}"
