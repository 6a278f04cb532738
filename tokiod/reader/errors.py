"""Errors of readers of an archive. Each names what exists instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokiod.config.convert import nearest
from tokiod.errors import TokiodError
from tokiod.window import iso

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from tokiod.window import Window


class NoData(TokiodError):  # noqa: N818 - a state, not a fault
    """No file of a span exists, or none has a row in it. paths: those that were looked for."""

    def __init__(self, span: Window, paths: Sequence[Path]) -> None:
        where = f"; first missing file: {paths[0]}" if paths else ""
        super().__init__(f"no data in {span}{where}")
        self.span, self.paths = span, tuple(paths)


class NoSuchDataset(TokiodError):  # noqa: N818 - as above
    """No file of a span has a dataset of this name. known: those that the files have; none_of: the beginning of the sentence."""

    def __init__(self, dataset: str, known: Iterable[str], none_of: str) -> None:
        names = sorted(set(known))
        known_names = nearest(dataset, names) or f"; known: {', '.join(names) or 'none'}"
        super().__init__(f"{none_of} {dataset!r}{known_names}")
        self.dataset, self.known = dataset, tuple(names)


class StepChanged(TokiodError):  # noqa: N818 - as above
    """The rows of a dataset are not equally far apart in all files of a span. time: epoch seconds of the first file that differs."""

    def __init__(self, dataset: str, time: int, steps: tuple[int, int]) -> None:
        super().__init__(f"{dataset}: rows are {steps[0]} s apart before {iso(time)} and {steps[1]} s from then on; end or start there")
        self.dataset, self.time, self.steps = dataset, time, steps
