"""Saved pages of collectd's documents to a sealed file, against decoding them and nothing else; and the memory it takes."""

from __future__ import annotations

import datetime as dt
import itertools
import resource
import statistics
import subprocess
import sys
import time
import timeit
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tests.bench import collectd_pages
from tests.bench.collectd_pages import ROW, START, STEP
from tests.bench.measure import Row, paired, rated
from tests.bench.memory import anonymous

if TYPE_CHECKING:
    from collections.abc import Iterator

TARGETS = {("pages.json", 2): "2.1 M/s, at most 1.2", ("pages.json.gz", 2): "1.5 M/s, at most 1.2"}
MEMORY = "under 200 MB, the same"


class Source(msgspec.Struct, gc=False):
    time: str = msgspec.field(name="@timestamp")
    host: str = msgspec.field(name="hostname")
    plugin: str
    type: str = msgspec.field(name="collectd_type")
    type_instance: str = ""
    plugin_instance: str = ""
    value: float | None = None
    read: float | None = None
    write: float | None = None


class Hit(msgspec.Struct, gc=False):
    source: Source = msgspec.field(name="_source")


def rows(directory: Path, *, quick: bool) -> Iterator[Row]:
    """The floor is one process that is told where the pages are in a file that is not packed, and forgets what it decodes."""
    steps = 56 if quick else 168
    plain, packed = directory / "pages.json", directory / "pages.json.gz"
    spans = collectd_pages.write(plain, steps)
    collectd_pages.write(packed, steps)
    times = 1 if quick else 3
    together = f"; two processes that only decode: {2 * steps * ROW / _seconds_of_two(plain, spans, times) / 1e6:.2f} M/s"
    for path, parsers in ((plain, 0), (plain, 1), (plain, 2), (packed, 2)):
        before = _processor_seconds()
        pair = paired(lambda: decode(plain, spans), lambda: archived(path, steps, parsers), times)  # noqa: B023 - used at once
        each = (_processor_seconds() - before) / (times + 1) / (steps * ROW)
        note = f"{each * 1e9:.0f} ns of all processes' CPU each{together if parsers > 1 else ''}"
        yield rated(_what(steps * ROW, path, parsers), "documents/s", steps * ROW, pair, TARGETS.get((path.name, parsers), ""), note)
    plain.unlink()
    packed.unlink()
    yield from _memory(directory, (30, 120) if quick else (90, 720))


def _processor_seconds() -> float:
    """Of the processes that have ended, which are those that archived; theirs too."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _what(documents: int, path: Path, parsers: int) -> str:
    return f"saved collectd {path.name} to a sealed TTS file, {documents:,} documents, parse workers: {parsers}"


def _memory(directory: Path, lengths: tuple[int, int]) -> Iterator[Row]:
    first = None
    for steps in lengths:
        path = directory / "memory.json.gz"
        collectd_pages.write(path, steps)
        peak = peak_of(path, steps, 2)
        first = first or peak
        what = f"archive of {steps * STEP // 60} min of saved collectd pages (288 hosts), peak anonymous memory of all processes"
        yield Row(what, "MB", first, peak, peak / first, MEMORY)
        path.unlink()


def decode(path: Path, spans: list[tuple[int, int]]) -> None:
    decoder = msgspec.json.Decoder(list[Hit])
    with path.open("rb", buffering=0) as file:
        for start, end in spans:
            file.seek(start)
            decoder.decode(file.read(end - start))


# Two cores of a virtual machine are less than twice one: they may share a processor's core, and share its memory.
def _seconds_of_two(path: Path, spans: list[tuple[int, int]], times: int) -> float:
    """Return the seconds that each of two processes takes that decode a file at the same time."""
    with get_context("spawn").Pool(2) as pool:
        return statistics.median(itertools.chain(*pool.starmap(_decoded, [(path, spans, times)] * 2)))


def _decoded(path: Path, spans: list[tuple[int, int]], times: int) -> list[float]:
    return timeit.repeat(lambda: decode(path, spans), number=1, repeat=times)


def archived(path: Path, steps: int, parsers: int) -> None:
    """Archive a file as a person would."""
    subprocess.run(_command(path, steps, parsers), stdout=subprocess.DEVNULL, check=True)


def peak_of(path: Path, steps: int, parsers: int) -> float:
    """Archive a file; returns the peak memory of all processes in MB, looked at now and then, which takes time of theirs."""
    peak = 0.0
    with subprocess.Popen(_command(path, steps, parsers), stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            peak = max(peak, anonymous([process.pid, *_children(process.pid)]))
            time.sleep(0.02)
    assert process.returncode == 0
    return peak


def _command(path: Path, steps: int, parsers: int) -> list[str]:
    output = path.with_name("pages.hdf5")
    output.unlink(missing_ok=True)
    span = [dt.datetime.fromtimestamp(t, dt.UTC).isoformat() for t in (START, START + steps * STEP)]
    command = [sys.executable, "-m", "tokiod.cli.tokioctl", "archive", "collectd_es", str(path), "--output", str(output)]
    return [*command, "--start", span[0], "--end", span[1], "--parse-workers", str(parsers)]


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()]
    except OSError:
        return []
