"""A real reader process over real files, and over files that would stop it."""

import asyncio
import gzip
import os
import signal
from pathlib import Path

import lmt_database
import numpy as np
import pytest

from tokiod.clock import SystemClock
from tokiod.collector import Site
from tokiod.config import plugins
from tokiod.errors import Fatal
from tokiod.polling.watch import reader
from tokiod.polling.watch.reader import FileReader, Task
from tokiod.window import Calendar


def task(path, kind="lmt", seconds=60):
    return Task(kind, path, plugins.load(kind).Saved(), lmt_database.ZONE, seconds)


@pytest.fixture
def copy(tmp_path):
    return lmt_database.save(tmp_path / "copy.sqlite3", lmt_database.tables(steps=20))


def run(scenario):
    async def limited():
        async with asyncio.timeout(60):
            return await scenario()

    return asyncio.run(limited())


async def everything(collector):
    spans = await collector.spans()
    found = [await collector.collect(span) for span in spans]
    await collector.close()
    return spans, found


def test_a_reader_process_returns_what_the_collector_does(copy):
    one = task(copy)
    spans, found = run(lambda: everything(FileReader(one)))
    site = Site(Calendar(lmt_database.ZONE), SystemClock())
    expected_spans, expected = run(lambda: everything(plugins.load("lmt").saved([copy], one.options, site)))
    assert (spans, [data.records for data in found]) == (expected_spans, [data.records for data in expected])
    assert [dict(data.dropped) for data in found] == [dict(data.dropped) for data in expected]
    pairs = [pair for one, two in zip(found, expected, strict=True) for pair in zip(one.batches, two.batches, strict=True)]
    assert pairs
    for batch, other in pairs:
        assert (batch.dataset, batch.form, batch.step, batch.columns) == (other.dataset, other.form, other.step, other.columns)
        for name in ("time", "column", "value"):
            np.testing.assert_array_equal(getattr(batch, name), getattr(other, name))


def test_a_file_that_is_not_of_the_kind_is_fatal_with_the_collectors_reason(tmp_path):
    (tmp_path / "notes").write_text("none")
    with pytest.raises(Fatal, match="notes is not a SQLite file"):
        run(lambda: everything(FileReader(task(tmp_path / "notes"))))


def test_a_file_that_is_never_read_to_its_end_is_fatal_after_the_time_limit(tmp_path):
    os.mkfifo(tmp_path / "endless")
    with pytest.raises(Fatal, match="longer than the 1 s of max_time"):
        run(lambda: everything(FileReader(task(tmp_path / "endless", "lustre", seconds=1))))


def test_a_file_that_needs_too_much_memory_is_fatal(tmp_path):
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(800 << 20)
    with pytest.raises(Fatal):
        run(lambda: everything(FileReader(task(tmp_path / "huge", "lustre"))))


def test_a_small_bomb_holds_up_no_other_source(tmp_path):
    """Its lines have no end: an expression that is quadratic holds one thread for minutes."""
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(b"BEGIN" * 200_000))

    async def scenario():
        reading = asyncio.ensure_future(everything(FileReader(task(tmp_path / "bomb.gz", "lustre", seconds=3))))
        pauses, loop = [], asyncio.get_running_loop()
        while not reading.done():
            before = loop.time()
            await asyncio.sleep(0.01)
            pauses.append(loop.time() - before)
        return reading.exception(), max(pauses)

    error, longest = run(scenario)
    assert isinstance(error, Fatal)
    assert longest < 2


def test_a_response_that_is_too_long_is_fatal(copy, monkeypatch):
    monkeypatch.setattr(reader, "MAX_RESPONSE_BYTES", 5)
    with pytest.raises(Fatal, match="MiB"):
        run(lambda: everything(FileReader(task(copy))))


def test_a_reader_that_dies_is_fatal_for_its_file(copy):
    async def scenario():
        one = FileReader(task(copy))
        (span, *_) = await one.spans()
        os.kill(one._process.pid, signal.SIGKILL)
        try:
            await one.collect(span)
        finally:
            await one.close()

    with pytest.raises(Fatal, match="was ended by signal 9"):
        run(scenario)


def test_a_reader_has_limits_and_no_secrets(copy, monkeypatch):
    monkeypatch.setenv("LMT_PASSWORD", "planted")

    async def scenario():
        one = FileReader(task(copy))
        await one.spans()
        process = Path(f"/proc/{one._process.pid}")
        environment, limits = (process / "environ").read_bytes(), (process / "limits").read_text()
        await one.close()
        return environment, limits

    environment, limits = run(scenario)
    assert b"planted" not in environment
    found = {line[:26].strip(): line[26:].split()[0] for line in limits.splitlines()}
    assert found["Max data size"] == str(reader.MAX_DATA_BYTES)
    assert found["Max cpu time"] == str(60 + reader.CPU_GRACE_SECONDS)
    assert (found["Max file size"], found["Max core file size"]) == (str(reader.MAX_FILE_BYTES), "0")


def test_a_reader_ends_when_it_is_closed(copy):
    async def scenario():
        one = FileReader(task(copy))
        await one.spans()
        await one.close()
        return one._process.returncode

    assert run(scenario) == -signal.SIGKILL
