"""Sums of each hour and OST, by DuckDB over the Parquet files of a sink or of tokioctl export: a row per hour, a column per OST.

hourly_sums_duckdb.py DIRECTORY SYSTEM START END    e.g. hourly_sums_duckdb.py /data/parquet cscratch 2026-10-01 2026-11-01

Prints CSV; an hour without a value is empty. START and END are dates in UTC, END exclusive. DIRECTORY may be s3://BUCKET/PREFIX.
"""

from __future__ import annotations

import sys

import duckdb

DATASET = "datatargets/readbytes"
SUMS = """
SELECT epoch(date_trunc('hour', time))::BIGINT AS hour, sum(COLUMNS(* EXCLUDE (time)))
FROM read_parquet($files, hive_partitioning = false, union_by_name = true)
WHERE time >= $start::TIMESTAMPTZ AND time < $end::TIMESTAMPTZ
GROUP BY hour ORDER BY hour
"""


def hourly_sums(directory: str, system: str, start: str, end: str) -> duckdb.DuckDBPyConnection:
    """Return a connection with rows: hour in epoch seconds, and a sum per OST, NULL for an hour without a value."""
    group, dataset = DATASET.split("/")
    files = f"{directory}/system={system}/group={group}/dataset={dataset}/date=*/part.parquet"
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    return connection.execute(SUMS, {"files": files, "start": start, "end": end})


def main() -> None:
    """Print the sums."""
    found = hourly_sums(*sys.argv[1:])
    sys.stdout.write(",".join(name for name, *_ in found.description or ()) + "\n")
    while rows := found.fetchmany(1000):
        for hour, *sums in rows:
            sys.stdout.write(",".join([str(hour), *("" if value is None else f"{value:.0f}" for value in sums)]) + "\n")


if __name__ == "__main__":
    main()
