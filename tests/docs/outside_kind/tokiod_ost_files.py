"""A cron job's files: one per OST, a line "EPOCH READ_BYTES WRITE_BYTES" a minute, both counted since the server's start."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np

from tokiod.batch import Batch
from tokiod.collector import SavedOptions, SourceConfig
from tokiod.errors import Fatal, NotYet, TokiodError
from tokiod.option import option
from tokiod.sample_spans import spans_of
from tokiod.window_data import WindowData

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tokiod.collector import Site
    from tokiod.window import Window

DATASETS = ("datatargets/readbytes", "datatargets/writebytes")
STEP = 60
FIELDS = 3


class Config(SourceConfig, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """The section: option() explains a key in the reference, faults() checks what types can't."""

    directory: Annotated[str, option("Where the cron job's files are.", '"/srv/ost-counters"', values="an absolute path")]

    @property
    def step(self) -> int:
        return STEP

    def datasets(self) -> frozenset[str]:
        return frozenset(DATASETS)

    def faults(self) -> list[str]:
        return [] if self.directory.startswith("/") else ["directory: expected an absolute path"]


class Saved(SavedOptions, kw_only=True, frozen=True):
    """The options of `tokioctl archive ost_files`: it has none of its own."""

    @property
    def step(self) -> int:
        return STEP

    def datasets(self) -> frozenset[str]:
        return frozenset(DATASETS)


def live(config: Config, site: Site) -> OstFiles:
    return OstFiles(Path(config.directory), [], is_finished=False)


def saved(inputs: Sequence[str | Path], options: Saved, site: Site) -> OstFiles:
    if missing := [str(path) for path in inputs if not Path(path).is_file()]:
        raise TokiodError(f"there is no file {', '.join(missing)}")
    return OstFiles(None, [Path(path) for path in inputs], is_finished=True)


def parse(text: str, dropped: Counter[str]) -> np.ndarray:
    """Return i8[lines, 3] in order of time; count a malformed line (the last may be half written) in dropped."""
    rows = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) == FIELDS and all(field.isdigit() for field in fields):
            rows[int(fields[0]) // STEP] = fields
        else:
            dropped["line that is not EPOCH READ_BYTES WRITE_BYTES"] += 1
    return np.array([rows[row] for row in sorted(rows)], np.int64).reshape(-1, FIELDS)


def batches(osts: Mapping[str, np.ndarray], window: Window) -> Iterator[Batch]:
    """Yield a batch per dataset: all OSTs are columns, also those without a sample in the window."""
    columns = tuple(sorted(osts))
    parts = [(rows[(rows[:, 0] >= window.start) & (rows[:, 0] < window.end)], n) for n, rows in enumerate(osts[name] for name in columns)]
    time = np.concatenate([rows[:, 0] for rows, _ in parts])
    column = np.concatenate([np.full(len(rows), n, np.uint32) for rows, n in parts])
    order = np.lexsort((column, time // STEP))
    for place, dataset in enumerate(DATASETS, start=1):
        value = np.concatenate([rows[:, place] for rows, _ in parts])
        yield Batch(dataset, "counter", STEP, columns, time[order], column[order], value[order])


class OstFiles:
    """Fetches, parses, joins. See tokiod/collector.py for step, replayable and needs_sample_at_end."""

    step = STEP
    replayable: ClassVar[bool] = True
    needs_sample_at_end: ClassVar[bool] = True

    def __init__(self, directory: Path | None, paths: list[Path], *, is_finished: bool) -> None:
        self._directory = directory
        self._paths = paths
        self._is_finished = is_finished

    async def collect(self, window: Window) -> WindowData:
        osts, dropped = await self._osts()
        newest = max((int(rows[-1, 0]) for rows in osts.values() if len(rows)), default=0)
        if newest < window.end and not self._is_finished:
            raise NotYet(f"the files have got to {newest}, not yet to {window.end}")
        found = list(batches(osts, window))
        return WindowData(found, records=sum(map(len, found)), dropped=dropped)

    async def count(self, window: Window) -> int | None:
        osts, _ = await self._osts()
        return sum(map(len, batches(osts, window)))

    async def spans(self) -> list[Window]:
        osts, _ = await self._osts()
        return spans_of(np.concatenate([np.empty(0, np.int64), *(rows[:, 0] for rows in osts.values())]), STEP)

    async def close(self) -> None:
        pass

    async def _osts(self) -> tuple[dict[str, np.ndarray], Counter[str]]:
        paths = self._paths or sorted(self._directory.glob("OST*.txt"))
        if not paths:
            raise Fatal(f"there is no OST*.txt in {self._directory}")
        texts = await asyncio.to_thread(lambda: {path.stem: path.read_text() for path in paths})
        dropped: Counter[str] = Counter()
        return {name: parse(text, dropped) for name, text in texts.items()}, dropped
