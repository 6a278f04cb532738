"""mmperfmon: an archive of text files to a sealed TTS file, as `tokioctl archive mmperfmon` does."""

from __future__ import annotations

import datetime as dt
import io
import random
import subprocess
import sys
import tarfile
from typing import TYPE_CHECKING

from collectors.mmperfmon.parse import parse_all
from collectors.mmperfmon.saved_inputs import outputs, pieces
from tests.bench.measure import Row, paired, rated
from tests.support.mmperfmon_outputs import output, stamps

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

START = dt.datetime.fromisoformat("2019-05-15T00:00:00")
HOUR = 60
SERVERS, DATA_SERVERS, MD_SERVERS = 6, 2, 2
DATA_NSDS, MD_NSDS = 42, 20
TARGET = "target: 4 M values/s, at most 2.5"


def rows(directory: Path, *, quick: bool) -> Iterator[Row]:
    days = 1 if quick else 13
    path = directory / "mmperfmon.tgz"
    files, values = write(path, days)
    note = f"{files} files, {path.stat().st_size >> 20} MiB packed"
    times = 1 if quick else 2
    pair = paired(lambda: split(path), lambda: read(path), times)
    yield rated("mmperfmon .tgz to numbers, against unpacking and splitlines", "values/s", values, pair, "", note)
    pair = paired(lambda: split(path), lambda: archive(path, directory / "out.hdf5", days), times)
    yield rated("... to a sealed TTS file, the process's start included", "values/s", values, pair, TARGET, note)


def split(path: Path) -> int:
    """Unpack and look at every line: the least that a reader of text in Python does."""
    with tarfile.open(path, "r|gz") as members:
        return sum(len(file.read().splitlines()) for member in members if (file := members.extractfile(member)))


def read(path: Path) -> int:
    coming = (data for data, _ in outputs(path, lambda _bytes: None))
    return sum(table.value.size for piece in pieces(coming) for output in parse_all(piece) for table in output.tables)


def archive(path: Path, out: Path, days: int) -> None:
    out.unlink(missing_ok=True)
    command = [sys.executable, "-m", "tokiod.cli.tokioctl", "archive", "mmperfmon", str(path), "--output", str(out)]
    span = ["--start", START.isoformat(), "--end", (START + dt.timedelta(days=days)).isoformat()]
    maps = ["--lun-map", "ddn=datatarget", "--lun-map", "na=mdtarget"]
    subprocess.run([*command, *span, *maps], check=True, capture_output=True)


def write(path: Path, days: int) -> tuple[int, int]:
    """Write 14 files an hour, as the capture has them, 4,368 in 13 days; returns how many files, and how many values they have."""
    day = [(name, hour, *text) for hour in range(24) for name, text in _hour(hour)]
    with tarfile.open(path, "w:gz", compresslevel=6) as members:
        for number in range(days):
            date = (START + dt.timedelta(days=number)).strftime("%Y-%m-%d").encode()
            following = (START + dt.timedelta(days=number + 1)).strftime("%Y-%m-%d").encode()
            for name, hour, text, _ in day:
                dated = text.replace(b"2019-05-16", following).replace(b"2019-05-15", date)
                member = tarfile.TarInfo(f"{name}.{number:02}.{hour:02}.out")
                member.size = len(dated)
                members.addfile(member, io.BytesIO(dated))
    return days * len(day), days * sum(values for _, _, _, values in day)


def _hour(hour: int) -> Iterator[tuple[str, tuple[bytes, int]]]:
    chance = random.Random(hour)
    times = stamps(START + dt.timedelta(hours=hour, minutes=1), HOUR)
    for server in range(SERVERS):
        host = f"ngfsv{server}.example.gov"
        columns = {f"{host}|CPU|cpu_{name}": [round(chance.random() * 6, 2) for _ in times] for name in ("user", "sys")}
        columns |= {f"{host}|Memory|mem_{name}": [chance.randrange(18 << 30, 31 << 30) for _ in times] for name in ("total", "free")}
        columns |= {f"{host}|Network|lo|net_{way}": [chance.randrange(1 << 20) for _ in times] for way in "rs"}
        yield f"servers/{host}", (output(columns, times), HOUR * len(columns))
    nsds = {server: [f"ddn55dt{n:02}" for n in range(DATA_NSDS)] for server in range(DATA_SERVERS)}
    nsds |= {server: [f"na07md{n:02}" for n in range(MD_NSDS)] for server in range(DATA_SERVERS, DATA_SERVERS + MD_SERVERS)}
    for counter in ("read", "written"):
        for server, names in nsds.items():
            host = f"ngfsv{server}.example.gov"
            keys = [f"{host}|GPFSNSDDisk|{name}|gpfs_nsdds_bytes_{counter}" for name in names]
            # Half of the capture's disks do nothing at all.
            columns = {key: [chance.randrange(10**9) if n % 2 else 0 for _ in times] for n, key in enumerate(keys)}
            yield f"{counter}/{host}", (output(columns, times), HOUR * len(columns))
