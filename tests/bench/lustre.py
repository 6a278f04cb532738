"""From what lfs df prints of a large file system to batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from collectors.lustre import parse_df
from collectors.lustre.datasets import FULLNESS, fullness
from collectors.lustre.to_batches import Columns, batches
from tests.bench.measure import Row, paired, timed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TARGETS = 1000
HEADER = "UUID                   1K-blocks        Used   Available Use% Mounted on\n"
ROW = "snx11168-OST{:04x}_UUID 90767651352 {} 24423870832  73% /global/cscratch1[OST:{}] \n"


def rows(_directory: Path, *, quick: bool) -> Iterator[Row]:
    text = (HEADER + "".join(ROW.format(index, 65387344040 + index, index) for index in range(TARGETS))).encode()
    columns = Columns()

    def floor() -> None:
        [line.split() for line in text.splitlines()]

    def ours() -> None:
        cells = fullness(parse_df.parse(text).targets)
        columns.add(cells)
        found = list(batches([(0, cells)], 60, columns, FULLNESS))
        assert [len(batch) for batch in found] == [TARGETS, TARGETS]

    pair = paired(floor, ours, 20 if quick else 100)
    yield timed(f"lfs df of {TARGETS} targets to batches", "ms", 1e3, pair, "5 ms", "floor: lines split at blanks")
