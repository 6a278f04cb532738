"""The time of every parser grows with its input, not with the square of it: n, 2n and 4n bytes of what was made to be slow."""

import asyncio
import contextlib
import gc
import io
import json
import tarfile
import tempfile
import time
from functools import partial
from pathlib import Path

import growth
import lmt_database
import pytest

from tokiod.collector import Site
from tokiod.config import plugins
from tokiod.errors import TokiodError
from tokiod.testing.clock import FakeClock
from tokiod.window import Calendar

START = 1_517_126_400
DF = b"UUID                   1K-blocks        Used   Available Use% Mounted on\n"
ROW = "fs-OST%04x_UUID  90767651352 65387344040 24423870832  73%% /scratch[OST:%d]\n"
TARGET = b"obdfilter.fs-OST0000.job_stats=\njob_stats:\n"
OPERATION = b"  open:            { samples:           1, unit:  reqs }\n"
JOB = b"- job_id:          %d\n  snapshot_time:   1517126400\n" + OPERATION
DEVICE = "  4 UP osc fs-OST%04x-osc-ffff885f81a64000 8dbdc7f6-8f86-86ea-052f-357e2db2a7d9 5 10.1.%d.%d@o2ib\n"


def devices(n):
    """Half of the targets at home on servers of two, the others on one server: their homes are guessed from the order of all."""
    homes = [DEVICE % (i, i // 512, i // 2 % 256) for i in range(n)]
    return "".join(f"BEGIN {START + 60 * k}\n{''.join(homes[: len(homes) // (1 + k)])}" for k in range(2))


def outputs_of_new_targets(n):
    return "".join(f"BEGIN {START + 60 * i}\n{DF.decode()}{ROW % (i, i)}" for i in range(n))


def one_target_at_new_servers(n):
    return "".join(f"BEGIN {START + i}\n{DEVICE % (0, i // 256 % 256, i % 256)}" for i in range(n))


# Name, kind, options, n, and the input of a length that n says.
SLOW = [
    ("one line of BEGINs", "lustre", {}, 3_000, lambda n: b"BEGIN" * n),
    ("lines of BEGINs", "lustre", {}, 20_000, lambda n: b"BEGIN\n" * n),
    ("blanks after a header", "lustre", {"time": START}, 400_000, lambda n: DF + b" " * n),
    ("newlines after a header", "lustre", {"time": START}, 1_000_000, lambda n: DF + b"\n" * n),
    ("headers", "lustre", {"time": START}, 2_000, lambda n: DF * n),
    ("pages that never end", "collectd_es", {"parse_workers": 0}, 1_500, lambda n: b"[[[]" + b",[]" * n),
    ("a text that never ends", "collectd_es", {"parse_workers": 0}, 10_000, lambda n: b'[[{"a":"' + b"],[" * n),
    ("escapes", "collectd_es", {"parse_workers": 0}, 10_000, lambda n: b'[[{"a":"' + b'],[\\"' * n),
    ("blanks between pages", "collectd_es", {"parse_workers": 0}, 100_000, lambda n: b"[[{]" + b" " * n + b"]"),
    ("points", "esnet_snmp", {}, 20_000, lambda n: rates(n).encode()),
    ("points with NaN", "esnet_snmp", {}, 20_000, lambda n: rates(n).replace("1.5", "NaN", 1).encode()),
    ("interfaces", "esnet_snmp", {}, 2_000, lambda n: json.dumps({"r": {f"i{k}": {"in": {str(START): 1.0}} for k in range(n)}}).encode()),
]


def rates(n):
    return json.dumps({"router": {"interface": {"in": {str(START + 30 * i): 1.5 for i in range(n)}}}})


LEGEND = "\nLegend:\n1:\th|GPFSNSDDisk|d|gpfs_nsdds_bytes_read\n"
TABLE = "\nRow           Timestamp gpfs_nsdds_bytes_read\n"


def output_rows(n):
    at = [time.strftime("%Y-%m-%d-%H:%M:%S", time.gmtime(START + 60 * k)) for k in range(n)]
    return (LEGEND + TABLE + "".join(f"{k:>9} {stamp} {k}\n" for k, stamp in enumerate(at, 1))).encode()


def tar_of(n):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for k in range(n):
            member = tarfile.TarInfo(f"{k}-{'x' * 120}")
            member.size = len(LEGEND)
            archive.addfile(member, io.BytesIO(LEGEND.encode()))
    return out.getvalue()


def copy_of(n):
    with tempfile.TemporaryDirectory() as directory:
        return lmt_database.save(Path(directory) / "copy", lmt_database.tables(steps=n, osts=2, osss=1, mdts=1), "none").read_bytes()


def pax(n):
    member = tarfile.TarInfo("x")
    member.type, member.size = tarfile.XHDTYPE, n
    return member.tobuf(tarfile.USTAR_FORMAT) + b"1" * n + bytes(-n % 512)


SLOW += [
    ("homes to guess", "lustre", {}, 500, lambda n: devices(n).encode()),
    ("new targets", "lustre", {}, 300, lambda n: outputs_of_new_targets(n).encode()),
    ("new servers", "lustre", {"step": 1}, 1000, lambda n: one_target_at_new_servers(n).encode()),
    ("a legend of newlines", "mmperfmon", {}, 500_000, lambda n: b"Legend:" + b"\n" * n),
    ("a legend of blanks", "mmperfmon", {}, 200_000, lambda n: b"Legend:\n" + b" " * n + b"\n"),
    ("a long legend", "mmperfmon", {}, 3000, lambda n: b"Legend:\n" + b"".join(b"%d:\th|CPU|%d|cpu_user\n" % (k, k) for k in range(n))),
    ("headers of tables", "mmperfmon", {}, 2000, lambda n: (LEGEND + TABLE * n).encode()),
    ("rows", "mmperfmon", {}, 2000, output_rows),
    ("members", "mmperfmon", {}, 500, tar_of),
    ("pax digits", "mmperfmon", {}, 10_000, pax),
    ("rows of a copy", "lmt", {}, 200, copy_of),
    ("BEGINs of job_stats", "lustre_jobstats", {}, 100_000, lambda n: b"BEGIN 5\n" * n + TARGET + JOB % 1),
    ("targets", "lustre_jobstats", {"time": START}, 2_000, lambda n: (TARGET + JOB % 1) * n),
    ("jobs", "lustre_jobstats", {"time": START}, 2_000, lambda n: TARGET + b"".join(JOB % k for k in range(n))),
    ("one job", "lustre_jobstats", {"time": START}, 20_000, lambda n: TARGET + JOB % 1 * n),
    ("job ids alone", "lustre_jobstats", {"time": START}, 50_000, lambda n: TARGET + b"- job_id: x\n" * n),
    ("a job id of blanks", "lustre_jobstats", {"time": START}, 1_000_000, lambda n: TARGET + b"- job_id:" + b" " * n + b"\n"),
    ("a job id of escapes", "lustre_jobstats", {"time": START}, 300_000, lambda n: TARGET + b'- job_id: "' + b"\\x41" * n),
    ("operations", "lustre_jobstats", {"time": START}, 10_000, lambda n: TARGET + JOB % 1 + OPERATION * n),
    ("an operation without an end", "lustre_jobstats", {"time": START}, 300_000, lambda n: TARGET + JOB % 1 + b"  open: { " + b"1" * n),
]


async def collected(kind, options, path):
    plugin = plugins.load(kind)
    collector = plugin.saved([path], plugin.Saved(**options), Site(Calendar("UTC"), FakeClock()))
    try:
        for span in (await collector.spans())[:1]:
            await collector.collect(span)
    finally:
        await collector.close()


@pytest.fixture
def no_garbage_collection():
    """A collection passes over every object that earlier tests left in this process."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def read(kind, options, path):
    with contextlib.suppress(TokiodError):
        asyncio.run(collected(kind, options, path))


@pytest.mark.usefixtures("no_garbage_collection")
@pytest.mark.parametrize(("kind", "options", "n", "text"), [pytest.param(*one, id=name) for name, *one in SLOW])
def test_four_times_the_input_takes_less_than_eight_times_as_long(tmp_path, kind, options, n, text):
    short, long = tmp_path / "short", tmp_path / "long"
    short.write_bytes(text(n))
    long.write_bytes(text(4 * n))
    growth.check(partial(read, kind, options), short, long)
