"""A small site that mmperfmon measures: what it prints, and the cells that must come of it."""

from __future__ import annotations

import datetime as dt

from mmperfmon_outputs import output, stamps

START = 1557903600
"""2019-05-15T07:00:00Z, a midnight in Los Angeles."""

LUN_MAP = (r"ddn\d+=datatarget", r"na\d+=mdtarget")
SERVER_MAP = (r"md\d=mdserver",)
SERVER = ("CPU|cpu_user", "CPU|cpu_sys", "Memory|mem_total", "Memory|mem_free")
NETWORK = tuple(f"Network|{name}|net_{way}" for name in ("lo", "eth0", "ib0") for way in "rs")
TARGET = tuple(f"gpfs_nsdds_{name}" for name in ("bytes_read", "bytes_written", "read_ops", "write_ops"))
HOSTS = {"md1": ("na07md01", "na07md02"), "nsd1": ("ddn1dt00", "ddn1dt01", "ddn1dt02")}
DATASETS = frozenset(
    [
        f"{kind}servers/{name}"
        for kind in ("data", "md")
        for name in ("cpuuser", "cpusys", "cpuload", "memfree", "memtotal", "netinbytes", "netoutbytes")
    ]
    + [f"{kind}targets/{name}" for kind in ("data", "md") for name in ("readbytes", "writebytes", "readops", "writeops")]
)


def usage(host, start, rows):
    return {f"{host}|{key}": [value(key, start + 60 * row) for row in range(rows)] for key in (*SERVER, *NETWORK)}


def disks(host, nsds, start, rows):
    keys = [f"{host}|GPFSNSDDisk|{nsd}|{counter}" for nsd in nsds for counter in TARGET]
    return {key: [value(key, start + 60 * row) for row in range(rows)] for key in keys}


def value(key, time):
    """Of the bucket that begins at a time: something that no other has; sometimes nothing."""
    number = (sum(key.encode()) * 1_000_003 + time // 60 * 7919) % 100_000
    return None if number % 97 == 0 else number / 1000 if "cpu" in key else number


def texts(start, rows, zone=dt.UTC, width=80):
    """What the queries of all hosts print of `rows` minutes from an epoch on."""
    first = dt.datetime.fromtimestamp(start + 60, zone).replace(tzinfo=None)
    times = stamps(first, rows)
    servers = [output(usage("md1", start, rows) | usage("nsd1", start, rows), times, width)]
    columns = {key: of for host, nsds in HOSTS.items() for key, of in disks(host, nsds, start, rows).items()}
    return [*servers, output(columns, times, width)]
