"""`make engines`: a month of hourly sums by OST, by `tokiod.open`, dask.distributed, DuckDB and Spark; all must be the same numbers.

    python -m tests.engines [--days 30] [--spark .venv-engines/bin/python] [--directory DIR]

The archive is sealed days of 17,280 x 248; the Parquet files are those of the sink. Prints one line: the hours, the OSTs, the seconds of
each; exits 1 if an answer differs. Without --spark, Spark is left out.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.engines.answers import ENGINES, answers, made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--spark", type=Path, default=None)
    parser.add_argument("--directory", type=Path, default=None)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tokiod-engines-", dir=given.directory) as directory:
        place = Path(directory)
        made(place, given.days)
        found = answers(place, given.days, given.spark)
    right = found["tokiod"].sums
    differing = [name for name, one in found.items() if one.sums != right]
    seconds = ", ".join(f"{name} {one.seconds:.1f} s" for name, one in found.items())
    left_out = ", ".join(name for name in ENGINES if name not in found)
    print(
        f"{len(right)} hours x {len(next(iter(right.values())))} OSTs: {seconds}; "
        f"{'all equal' if not differing else 'different: ' + ', '.join(differing)}{f'; left out: {left_out}' if left_out else ''}"
    )
    return bool(differing)


if __name__ == "__main__":
    sys.exit(main())
