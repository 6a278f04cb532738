"""Sums of each hour and OST, by Spark over the Parquet files of a sink or of tokioctl export: a row per hour, a column per OST.

hourly_sums_spark.py DIRECTORY SYSTEM START END [MASTER]
    e.g. hourly_sums_spark.py /data/parquet cscratch 2026-10-01 2026-11-01 'local[2]'

Prints CSV; an hour without a value is empty. START and END are dates in UTC, END exclusive. It needs pyspark 4.0 and Java 17, and no
tokiod.
"""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as of

DATASET = "datatargets/readbytes"


def hourly_sums(spark: SparkSession, directory: str, system: str, start: str, end: str) -> DataFrame:
    """Return a DataFrame: hour in epoch seconds, and a sum per OST, null for an hour without a value."""
    group, dataset = DATASET.split("/")
    # The directories of days are given as a pattern, so that their names become no columns.
    files = f"{directory}/system={system}/group={group}/dataset={dataset}/date=*/part.parquet"
    rows = spark.read.option("mergeSchema", "true").parquet(files).where((of.col("time") >= start) & (of.col("time") < end))
    names = [name for name in rows.columns if name != "time"]
    hours = rows.groupBy(of.unix_timestamp(of.date_trunc("hour", "time")).alias("hour"))
    # A column's name may hold dots.
    return hours.agg(*(of.sum(of.col(f"`{name}`")).alias(name) for name in names)).orderBy("hour")


def main() -> None:
    """Print the sums."""
    directory, system, start, end, *master = sys.argv[1:]
    builder = SparkSession.builder.master(master[0] if master else "local[*]").appName("hourly sums")
    options = {
        "spark.sql.session.timeZone": "UTC",
        # The vectorized reader does not know byte-stream split, the encoding that makes these files a fifth smaller.
        "spark.sql.parquet.enableVectorizedReader": "false",
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
    }
    for name, value in options.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    found = hourly_sums(spark, directory, system, start, end)
    sys.stdout.write(",".join(found.columns) + "\n")
    for hour, *sums in found.collect():
        sys.stdout.write(",".join([str(hour), *("" if value is None else f"{value:.0f}" for value in sums)]) + "\n")
    spark.stop()


if __name__ == "__main__":
    main()
