"""A month of hourly sums by OST: `tokiod.open` beside dask.distributed, DuckDB and Spark, as whole programs. floor: ours."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tests.bench.measure import Row, skipped
from tests.bench.pytokio_process import ROOT
from tests.engines.answers import ENGINES, answers, made

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SPARK = ROOT / ".venv-engines" / "bin" / "python"


def rows(directory: Path, *, quick: bool) -> Iterator[Row]:
    place, days = directory / "engines", 2 if quick else 30
    place.mkdir()
    made(place, days)
    found = answers(place, days, SPARK if os.access(SPARK, os.X_OK) else None)
    ours = found["tokiod"]
    for name in ENGINES[1:]:
        what = f"{days} days to hourly sums: {name}"
        if name not in found:
            yield skipped(what, "s", "make engines installs it")
            continue
        seconds, equal = found[name].seconds, found[name].sums == ours.sums
        yield Row(what, "s", ours.seconds, seconds, seconds / ours.seconds, "", "the same numbers" if equal else "OTHER NUMBERS")
