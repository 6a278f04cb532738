"""Small files that used to cost minutes or gigabytes, each read in a process of its own with limits of time and memory.

python -m tests.fuzz.bombs NAME SHARE    read one, and print its seconds and MiB
"""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import os
import resource
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import lmt_database

from tokiod.collector import Site
from tokiod.config import plugins
from tokiod.errors import TokiodError
from tokiod.testing.clock import FakeClock
from tokiod.window import Calendar

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_SECONDS, MAX_MIB = 10, 300
ADDRESS_SPACE_BYTES = 3 << 30
MIB = 1 << 20
START = 1_517_126_400


@dataclass(frozen=True)
class Bomb:
    """A file to read. make: writes it to a path, at a share of its full size."""

    kind: str
    make: Callable[[Path, float], object]
    options: dict[str, Any] = field(default_factory=dict)


def packed(data: Callable[[int], bytes], size: int) -> Callable[[Path, float], object]:
    return lambda path, share: path.write_bytes(gzip.compress(data(int(size * share)), 1))


def plain(data: Callable[[int], bytes], size: int) -> Callable[[Path, float], object]:
    return lambda path, share: path.write_bytes(data(int(size * share)))


def sparse(path: Path, share: float) -> None:
    with path.open("wb") as file:
        file.truncate(int(2600 * MIB * share))


def rates(size: int) -> bytes:
    return json.dumps({"router": {"interface": {"in": {str(START + 30 * n): 1.5 for n in range(size // 19)}}}}).encode()


def header(size: int, kind: bytes) -> bytes:
    member = tarfile.TarInfo("x")
    member.type, member.size = kind, size
    return member.tobuf(tarfile.GNU_FORMAT)


def long_name(path: Path, share: float) -> None:
    size = int(512 * MIB * share)
    with gzip.open(path, "wb", 1) as file:
        file.write(header(size, tarfile.GNUTYPE_LONGNAME))
        for _ in range(size // MIB):
            file.write(b"x" * MIB)
        file.write(header(0, tarfile.REGTYPE))


def tar_of_newlines(path: Path, share: float) -> None:
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo("x")
        member.size = int(64 * MIB * share)
        archive.addfile(member, io.BytesIO(b"\n" * member.size))


def view(sql: str) -> Callable[[Path, float], object]:
    def make(path: Path, _share: float) -> None:
        lmt_database.save(path, lmt_database.tables(steps=5))
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("DROP TABLE OST_INFO")
            db.execute(f"CREATE VIEW OST_INFO AS {sql}")

    return make


COUNTED = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n{limit}) SELECT i OST_ID, 1 OSS_ID, 'lc1-OST' || i OST_NAME FROM n"
DF = b"UUID                   1K-blocks        Used   Available Use% Mounted on\n"

BOMBS = {
    "lustre-one-line": Bomb("lustre", packed(lambda n: b"BEGIN" * (n // 5), MIB)),
    "lustre-newlines": Bomb("lustre", packed(lambda n: DF + b"\n" * n, 63 * MIB), {"time": START}),
    "esnet-sparse": Bomb("esnet_snmp", sparse),
    "esnet-points": Bomb("esnet_snmp", packed(rates, 27 * MIB)),
    "mmperfmon-newlines": Bomb("mmperfmon", packed(lambda n: b"Legend:\n" + b"\n" * n, 64 * MIB)),
    "mmperfmon-tar-newlines": Bomb("mmperfmon", tar_of_newlines),
    "mmperfmon-long-name": Bomb("mmperfmon", long_name),
    "mmperfmon-unknown-type": Bomb("mmperfmon", plain(lambda _: header(1 << 36, b"z") + bytes(512), 1)),
    "mmperfmon-no-end": Bomb("mmperfmon", plain(lambda _: header(1 << 62, b"z") + bytes(512), 1)),
    "mmperfmon-pax-digits": Bomb("mmperfmon", plain(lambda n: header(n, tarfile.XHDTYPE) + b"1" * n + bytes(-n % 512), 60_000)),
    "lmt-long-text": Bomb("lmt", view("SELECT 1 OST_ID, 1 OSS_ID, printf('%.*c', 300000000, 'x') OST_NAME")),
    "lmt-many-rows": Bomb("lmt", view(COUNTED.format(limit=" LIMIT 3000000"))),
    "lmt-endless": Bomb("lmt", view(COUNTED.format(limit=""))),
    "collectd-one-page": Bomb("collectd_es", plain(lambda n: b"[[[]" + b",[]" * (n // 3), MIB), {"parse_workers": 0}),
}


def failures(name: str, share: float) -> str:
    """Read a bomb in another process; return what it exceeds, "" for nothing."""
    command = [sys.executable, "-m", "tests.fuzz.bombs", name, str(share)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, cwd=Path(__file__).parents[2])
    except subprocess.TimeoutExpired:
        return "hangs"
    if done.returncode:
        return f"ends with {done.returncode}: {done.stderr[-500:]}"
    seconds, mib = map(float, done.stdout.split()[-2:])
    return "" if seconds < MAX_SECONDS and mib < MAX_MIB else f"takes {seconds:.1f} s and {mib:.0f} MiB"


def main() -> None:
    name, share = sys.argv[1], float(sys.argv[2])
    bomb = BOMBS[name]
    with tempfile.TemporaryDirectory(prefix="tokiod-bomb-") as directory:
        path = Path(directory) / "input"
        if os.fork() == 0:  # so that making it is not measured
            bomb.make(path, share)
            os._exit(0)
        os.wait()
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, ADDRESS_SPACE_BYTES))
        plugin = plugins.load(bomb.kind)
        asyncio.run(_read(plugin, bomb, path.with_name("none")))
        before, begun = _mib("VmRSS"), time.process_time()
        asyncio.run(_read(plugin, bomb, path))
        sys.stdout.write(f"{time.process_time() - begun:.2f} {_mib('VmHWM') - before:.0f}\n")


async def _read(plugin: Any, bomb: Bomb, path: Path) -> None:
    """Read the first window of a file, if it exists: the imports are not measured."""
    try:
        collector = plugin.saved([path], plugin.Saved(**bomb.options), Site(Calendar("UTC"), FakeClock()))
    except TokiodError:
        return
    try:
        for span in (await collector.spans())[:1]:
            await collector.collect(span)
    except TokiodError:
        pass
    finally:
        await collector.close()


def _mib(name: str) -> float:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    main()
