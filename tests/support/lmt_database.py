"""LMT databases of a test's own, as plain lists of rows, and what they mean, worked out row by row."""

from __future__ import annotations

import datetime as dt
import sqlite3
from contextlib import closing
from zoneinfo import ZoneInfo

COLUMNS = {
    "FILESYSTEM_INFO": ("FILESYSTEM_ID", "FILESYSTEM_NAME", "FILESYSTEM_MOUNT_NAME", "SCHEMA_VERSION"),
    "OSS_INFO": ("OSS_ID", "FILESYSTEM_ID", "HOSTNAME", "FAILOVERHOST"),
    "OST_INFO": ("OST_ID", "OSS_ID", "OST_NAME", "HOSTNAME", "OFFLINE", "DEVICE_NAME"),
    "MDS_INFO": ("MDS_ID", "FILESYSTEM_ID", "MDS_NAME", "HOSTNAME", "DEVICE_NAME"),
    "OPERATION_INFO": ("OPERATION_ID", "OPERATION_NAME", "UNITS"),
    "TIMESTAMP_INFO": ("TS_ID", "TIMESTAMP"),
    "OST_DATA": ("OST_ID", "TS_ID", "READ_BYTES", "WRITE_BYTES", "PCT_CPU", "KBYTES_FREE", "KBYTES_USED", "INODES_FREE", "INODES_USED"),
    "OSS_DATA": ("OSS_ID", "TS_ID", "PCT_CPU", "PCT_MEMORY"),
    "MDS_DATA": ("MDS_ID", "TS_ID", "PCT_CPU", "KBYTES_FREE", "KBYTES_USED", "INODES_FREE", "INODES_USED"),
    "MDS_OPS_DATA": ("MDS_ID", "TS_ID", "OPERATION_ID", "SAMPLES", "SUM", "SUMSQUARES"),
}
KEYS = {table: 2 if table in ("OST_DATA", "OSS_DATA", "MDS_DATA") else 1 for table in COLUMNS} | {"OSS_INFO": 1, "MDS_OPS_DATA": 3}
OPERATIONS = "open close mknod link unlink mkdir rmdir rename getxattr statfs setattr getattr".split()  # noqa: SIM905 - shorter
DATASETS = dict(zip(OPERATIONS, [f"mdtargets/{name}s" for name in OPERATIONS], strict=True))

START = 1_517_126_400
"""2018-01-28T00:00:00 in Los Angeles."""
STEP = 5
ZONE = "America/Los_Angeles"
FIRST_TS_ID = 8_921_898

Tables = dict[str, list[tuple]]


def tables(steps=13, osts=3, osss=2, mdts=2, start=START, zone=ZONE) -> Tables:
    """Return a database with every row there: `steps` time stamps from `start` on; MDTs two to a server; OPERATION_IDs upside down."""
    stamps = range(FIRST_TS_ID, FIRST_TS_ID + steps)
    numbers = {name: 80 - i for i, name in enumerate([*OPERATIONS, "quotactl"])}
    return {
        "FILESYSTEM_INFO": [(1, "lc1", "", 1.1)],
        "OSS_INFO": [(i, 1, f"oss{i}", None) for i in range(1, osss + 1)],
        "OST_INFO": [(i, i % osss + 1, f"lc1-OST{i - 1:04x}", f"oss{i % osss + 1}", 0, "/dev/md0") for i in range(1, osts + 1)],
        "MDS_INFO": [(i, 1, f"lc1-MDT{i - 1:04x}", f"mds{(i + 1) // 2}", "/dev/md66") for i in range(1, mdts + 1)],
        "OPERATION_INFO": [(number, name, "reqs") for name, number in numbers.items()],
        "TIMESTAMP_INFO": [(t, local(start + (t - FIRST_TS_ID) * STEP, zone)) for t in stamps],
        "OST_DATA": [
            (i, t, 2**53 + 1 + t * i, 2**60 + 3 * t, 0.0, 9_000 - t % 7, 1_000 + t % 7, 50 + i, 5 + t % 3)
            for t in stamps
            for i in range(1, osts + 1)
        ],
        "OSS_DATA": [(i, t, (t % 97) / 8 + i, 100 - (t % 31) / 16) for t in stamps for i in range(1, osss + 1)],
        "MDS_DATA": [(i, t, (t % 13) / 4 + i, 1, 2, 3, 4) for t in stamps for i in range(1, mdts + 1)],
        "MDS_OPS_DATA": [(i, t, n, 10**9 * n + t * i, 0, 0) for t in stamps for i in range(1, mdts + 1) for n in numbers.values()],
    }


def local(time: float, zone: str = ZONE) -> str:
    return dt.datetime.fromtimestamp(time, ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M:%S")


def save(path, content: Tables, keys: str = "primary", columns=COLUMNS):
    """Write a saved copy. keys: "primary", as pytokio makes them; "none"; "rowless", WITHOUT ROWID; "time", an index on TS_ID."""
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("PRAGMA synchronous = OFF")
        create(db, content, keys, columns)
    return path


def create(db, content: Tables, keys="primary", columns=COLUMNS):
    for table, rows in content.items():
        names = columns[table]
        key = "" if keys == "none" or not rows or _repeated(rows, KEYS[table]) else f", PRIMARY KEY ({', '.join(names[: KEYS[table]])})"
        db.execute(f"CREATE TABLE {table} ({', '.join(names)}{key}){' WITHOUT ROWID' if key and keys == 'rowless' else ''}")
        if keys == "time" and "TS_ID" in names:
            db.execute(f"CREATE INDEX {table}_TS ON {table} (TS_ID)")
        add(db, {table: rows})


def add(db, content: Tables):
    for table, rows in content.items():
        if rows:
            db.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)


def _repeated(rows, key):
    return len({row[:key] for row in rows}) < len(rows)


def meaning(content: Tables, window, step=STEP, zone=ZONE, mdt_names="mdt"):
    """Return {dataset: {(column, row): value}} of a database whose clocks are never put back, by looking at each value in turn.

    Of the candidates for a cell that of the highest id, then the highest TS_ID, then the highest value counts.
    """
    times = {ts_id: instant(shown, zone) for ts_id, shown in content["TIMESTAMP_INFO"]}
    operations = {number: name for number, name, _ in content["OPERATION_INFO"]}
    host = {row[0]: row[3] for row in content["MDS_INFO"]}
    mdt = {row[0]: row[2] for row in content["MDS_INFO"]}
    ost = {row[0]: row[2] for row in content["OST_INFO"]}
    oss = {row[0]: row[2] for row in content["OSS_INFO"]}
    best = {}

    def say(dataset, name, identity, ts_id, value):
        time = times.get(ts_id)
        if value is not None and name is not None and time is not None and window.start <= time < window.end:
            cell = best.setdefault(dataset, {}).setdefault((name, (time - window.start) // step), [])
            cell.append((identity, ts_id, value))

    def both(one, other):
        return None if one is None or other is None else one + other

    for i, t, read, write, _, free, used, inodes_free, inodes_used in content["OST_DATA"]:
        say("datatargets/readbytes", ost.get(i), i, t, read)
        say("datatargets/writebytes", ost.get(i), i, t, write)
        say("fullness/bytes", ost.get(i), i, t, used)
        say("fullness/bytestotal", ost.get(i), i, t, both(used, free))
        say("fullness/inodes", ost.get(i), i, t, inodes_used)
        say("fullness/inodestotal", ost.get(i), i, t, both(inodes_used, inodes_free))
    for i, t, cpu, memory in content["OSS_DATA"]:
        say("dataservers/cpuload", oss.get(i), i, t, cpu)
        say("dataservers/memused", oss.get(i), i, t, memory)
    for i, t, cpu, *_ in content["MDS_DATA"]:
        say("mdservers/cpuload", host.get(i), i, t, cpu)
    for i, t, number, samples, *_ in content["MDS_OPS_DATA"]:
        if operations.get(number) in DATASETS:
            say(DATASETS[operations[number]], (host if mdt_names == "host" else mdt).get(i), i, t, samples)
    return {dataset: {cell: max(candidates)[2] for cell, candidates in cells.items()} for dataset, cells in best.items()}


def instant(shown: str, zone: str = ZONE) -> int:
    return int(dt.datetime.strptime(shown, "%Y-%m-%d %H:%M:%S").replace(tzinfo=ZoneInfo(zone)).timestamp())


def samples_of(batches, window, step=STEP):
    """Return what batches say in the form of meaning(); a cell that stands twice is an error."""
    cells = {}
    for batch in batches:
        for time, column, value in zip(batch.time.tolist(), batch.column.tolist(), batch.value.tolist(), strict=True):
            cell = batch.columns[column], (time - window.start) // step
            of_dataset = cells.setdefault(batch.dataset, {})
            assert cell not in of_dataset, (batch.dataset, cell)
            of_dataset[cell] = value
    return cells
