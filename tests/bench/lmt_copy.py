"""Write a saved copy of an LMT database of any size: `lmt_copy.py PATH [--seconds 3605] [--osts 248] [--mdts 5] [--order time]`.

The default is the hour that LMT's speed is judged by: 248 OSTs, 248 OSSs and 5 MDTs at 5 s, and the sample at the hour's end,
436,926 rows. Counters grow, every cell is there; the numbers are a function of the place alone. order: that of the rows in the file.
"""

import argparse
import datetime as dt
import sqlite3
from contextlib import closing
from itertools import product
from pathlib import Path

START = dt.datetime(2018, 1, 28)  # noqa: DTZ001 - local, as LMT stores it
STEP = 5
FIRST_TS_ID = 8_921_898
OPERATIONS = [
    "open",
    "close",
    "mknod",
    "link",
    "unlink",
    "mkdir",
    "rmdir",
    "rename",
    "getxattr",
    "process_config",
    "connect",
    "reconnect",
    "disconnect",
    "statfs",
    "create",
    "destroy",
    "setattr",
    "getattr",
    "llog_init",
    "notify",
    "quotactl",
]
TABLES = {
    "FILESYSTEM_INFO": ("FILESYSTEM_ID, FILESYSTEM_NAME, FILESYSTEM_MOUNT_NAME, SCHEMA_VERSION", "FILESYSTEM_ID"),
    "OSS_INFO": ("OSS_ID, FILESYSTEM_ID, HOSTNAME, FAILOVERHOST", "OSS_ID, HOSTNAME"),
    "OST_INFO": ("OST_ID, OSS_ID, OST_NAME, HOSTNAME, OFFLINE, DEVICE_NAME", "OST_ID"),
    "MDS_INFO": ("MDS_ID, FILESYSTEM_ID, MDS_NAME, HOSTNAME, DEVICE_NAME", "MDS_ID"),
    "OPERATION_INFO": ("OPERATION_ID, OPERATION_NAME, UNITS", "OPERATION_ID"),
    "TIMESTAMP_INFO": ("TS_ID, TIMESTAMP", "TS_ID"),
    "OST_DATA": ("OST_ID, TS_ID, READ_BYTES, WRITE_BYTES, PCT_CPU, KBYTES_FREE, KBYTES_USED, INODES_FREE, INODES_USED", "OST_ID, TS_ID"),
    "OSS_DATA": ("OSS_ID, TS_ID, PCT_CPU, PCT_MEMORY", "OSS_ID, TS_ID"),
    "MDS_DATA": ("MDS_ID, TS_ID, PCT_CPU, KBYTES_FREE, KBYTES_USED, INODES_FREE, INODES_USED", "MDS_ID, TS_ID"),
    "MDS_OPS_DATA": ("MDS_ID, TS_ID, OPERATION_ID, SAMPLES, SUM, SUMSQUARES", "MDS_ID, TS_ID, OPERATION_ID"),
}


def write(path, *, steps=721, osts=248, mdts=5, order="time", keys=True, start=START):
    """Write a copy of `steps` time steps from `start` on; order "time" or "component"; keys: with primary keys."""
    with closing(sqlite3.connect(path)) as db, db:
        for table, (columns, key) in TABLES.items():
            db.execute(f"CREATE TABLE {table} ({columns}{f', PRIMARY KEY({key})' if keys else ''})")
        for table, rows in tables(steps, osts, mdts, order, start):
            db.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * (TABLES[table][0].count(',') + 1))})", rows)


def tables(steps, osts, mdts, order, start):
    stamps = range(FIRST_TS_ID, FIRST_TS_ID + steps)
    yield "FILESYSTEM_INFO", [(1, "bench", "", 1.1)]
    yield "OSS_INFO", [(i, 1, f"oss{i:04d}", None) for i in range(1, osts + 1)]
    yield "OST_INFO", [(i, i, f"bench-OST{i - 1:04x}", f"oss{i:04d}", 0, "/dev/md0") for i in range(1, osts + 1)]
    yield "MDS_INFO", [(i, 1, f"bench-MDT{i - 1:04x}", f"mds{i:04d}", "/dev/md66") for i in range(1, mdts + 1)]
    yield "OPERATION_INFO", [(i, name, "reqs") for i, name in enumerate(OPERATIONS, 1)]
    yield "TIMESTAMP_INFO", [(t, str(start + dt.timedelta(seconds=(t - FIRST_TS_ID) * STEP))) for t in stamps]
    yield "OST_DATA", (ost_row(i, t) for i, t in places(osts, stamps, order))
    yield "OSS_DATA", ((i, t, *percents(i, t)) for i, t in places(osts, stamps, order))
    yield "MDS_DATA", ((i, t, percents(i, t)[0], 10**9, 10**8, 10**8, 10**7) for i, t in places(mdts, stamps, order))
    operations = range(1, len(OPERATIONS) + 1)
    yield "MDS_OPS_DATA", ((i, t, o, 10**9 + t * (i + o), 0, 0) for i, t in places(mdts, stamps, order) for o in operations)


def places(components, stamps, order):
    ids = range(1, components + 1)
    return product(ids, stamps) if order == "component" else ((i, t) for t, i in product(stamps, ids))


def ost_row(ost, ts_id):
    used = 53_481_976_504 + (ts_id - FIRST_TS_ID) * 4
    return ost, ts_id, 2**53 + ts_id * 1_048_577 * ost, 2**52 + ts_id * 777_777 * ost, 0.0, 9 * 10**10 - used, used, 74_202_919, 14_465_625


def percents(component, ts_id):
    """Two percentages as MySQL prints FLOATs, with six digits."""
    return tuple(float(f"{(ts_id * 7919 + component * prime) % 1_000_003 / 10_000.03:.6g}") for prime in (104_729, 15_485_863))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("--seconds", type=int, default=3605)
    parser.add_argument("--osts", type=int, default=248)
    parser.add_argument("--mdts", type=int, default=5)
    parser.add_argument("--order", choices=["time", "component"], default="time")
    parser.add_argument("--no-keys", action="store_true")
    args = parser.parse_args()
    write(args.path, steps=args.seconds // STEP, osts=args.osts, mdts=args.mdts, order=args.order, keys=not args.no_keys)


if __name__ == "__main__":
    main()
