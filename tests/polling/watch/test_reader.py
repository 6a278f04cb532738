"""A real reader process over real files, and over files that would stop it."""

import ast
import asyncio
import gzip
import os
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import lmt_database
import numpy as np
import pytest

from tokiod.clock import SystemClock
from tokiod.collector import Site
from tokiod.config import plugins
from tokiod.errors import Fatal, Refusal
from tokiod.polling.watch import reader
from tokiod.polling.watch.reader import FileReader, Task
from tokiod.window import Calendar

SUPPORT = Path(__file__).parents[2] / "support"


def task(path, kind="lmt", seconds=60):
    return Task(kind, path, plugins.load(kind).Saved(), lmt_database.ZONE, seconds)


@pytest.fixture
def copy(tmp_path):
    return lmt_database.save(tmp_path / "copy.sqlite3", lmt_database.tables(steps=20))


def run(scenario):
    async def limited():
        async with asyncio.timeout(600):  # the reader is niced: on a busy machine it waits for all others
            return await scenario()

    return asyncio.run(limited())


async def everything(collector):
    try:
        spans = await collector.spans()
        return spans, [await collector.collect(span) for span in spans]
    finally:
        await collector.close()


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


def test_a_reader_has_no_network(copy):
    """The listener is on this machine: what can't reach it reaches no other."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        code = (
            "import socket, sys; from tokiod.runtime.process_setup import leave_network\n"
            "socket.create_connection((sys.argv[1], int(sys.argv[2])), 5).close()\nprint(leave_network() or 'left')\n"
            "try: socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)\nexcept OSError as error: print(error.strerror)\n"
            "print(len(open(sys.argv[3], 'rb').read()))\n"
        )
        done = subprocess.run([sys.executable, "-c", code, *map(str, address), copy], check=True, capture_output=True, text=True)
    left, refused, size = done.stdout.splitlines()
    if left != "left":
        pytest.skip(f"this machine permits no network namespace: {left}")
    assert (refused, int(size)) == ("Network is unreachable", copy.stat().st_size)


def exposures(copy):
    reader = FileReader(task(copy))
    run(lambda: everything(reader))
    return reader.exposure


def test_a_reader_reports_that_it_keeps_the_network_where_the_kernel_denies_it_another(copy):
    code = (
        "import sys; sys.path[:0] = sys.argv[2:]\nfrom pathlib import Path\nimport test_reader\n"
        "print(repr(test_reader.exposures(Path(sys.argv[1]))))"
    )
    command = shlex.join([sys.executable, "-c", code, str(copy), *map(str, (Path(__file__).parent, SUPPORT))])
    deny = "echo 0 > /proc/sys/user/max_user_namespaces && echo 0 > /proc/sys/user/max_net_namespaces"
    outside = ["unshare", "--user", "--map-root-user", "sh", "-c"]
    if shutil.which("unshare") is None or subprocess.run([*outside, deny], check=False, capture_output=True).returncode:
        pytest.skip("this machine permits no user namespace whose limits can be set")
    assert subprocess.run([*outside, command], check=True, capture_output=True, text=True).stdout == "''\n"
    denied = subprocess.run([*outside, f"{deny} && {command}"], check=True, capture_output=True, text=True)
    assert denied.stdout == "'the network (No space left on device)'\n"


TAKEN_OVER = """
import os, signal, socket, sys
from pathlib import Path
from tokiod.polling.watch import reader
copy, secret, parent, port = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
kept_network, reason = reader.leave_network(), reader._leave_files(copy.parent)
def outcome(attempt):
    try:
        attempt()
    except OSError as error:
        return error.strerror
    return "done"
def connect():
    socket.create_connection(("127.0.0.1", port), 5).close()
import numpy, sqlite3, zoneinfo, tempfile
zoneinfo.ZoneInfo("Europe/Berlin")
with tempfile.TemporaryFile() as spool:
    spool.write(b"x")
print({
    "restricted": kept_network + reason,
    "copy": outcome(copy.read_bytes),
    "secret": outcome(secret.read_bytes),
    "written": outcome(lambda: secret.write_bytes(b"x")),
    "made": outcome(lambda: (secret.parent / "other").touch()),
    "removed": outcome(secret.unlink),
    "listed": outcome(lambda: os.listdir(secret.parent)),
    "memory": outcome(lambda: Path(f"/proc/{parent}/mem").open("rb").close()),
    "signal": outcome(lambda: os.kill(parent, 0)),
    "tcp": outcome(connect),
})
"""


@pytest.fixture
def disk():
    """A directory that is not below /dev/shm, which a reader shares with its processes."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def test_a_reader_that_was_taken_over_has_no_file_but_its_own(copy, disk):
    place = disk / "archive"
    place.mkdir()
    (place / "password").write_text("planted")
    (disk / "private").mkdir()
    copy = Path(shutil.move(copy, disk / "private"))
    with socket.create_server(("127.0.0.1", 0)) as listener, subprocess.Popen(["sleep", "60"]) as parent:
        arguments = [copy, place / "password", parent.pid, listener.getsockname()[1]]
        done = subprocess.run([sys.executable, "-c", TAKEN_OVER, *map(str, arguments)], check=True, capture_output=True, text=True)
        parent.kill()
    found = ast.literal_eval(done.stdout)
    if found["restricted"]:
        pytest.skip(f"this machine has no namespaces or no Landlock: {found['restricted']}")
    denied = dict.fromkeys(("secret", "written", "made", "removed", "listed", "memory"), "Permission denied")
    assert found.pop("signal") in {"done", "Operation not permitted"}  # kernels from 6.12 on
    assert found.pop("tcp") in {"Network is unreachable", "Permission denied"}
    assert found == {"restricted": "", "copy": "done"} | denied
    assert (place / "password").read_text() == "planted"


def test_a_file_that_is_not_of_the_kind_is_fatal_with_the_collectors_reason(tmp_path):
    (tmp_path / "notes").write_text("none")
    with pytest.raises(Fatal, match="notes is not a SQLite file"):
        run(lambda: everything(FileReader(task(tmp_path / "notes"))))


def test_a_file_that_is_never_read_to_its_end_is_fatal_after_the_time_limit(tmp_path):
    os.mkfifo(tmp_path / "endless")
    with pytest.raises(Fatal, match="longer than the 1 s of max_time"):
        run(lambda: everything(FileReader(task(tmp_path / "endless", "lustre", seconds=1))))


def test_a_file_that_needs_too_much_memory_is_fatal(tmp_path):
    (tmp_path / "bomb").write_bytes(b"BEGIN 1\n" * (4 << 20))
    with pytest.raises(Fatal, match="needs more than 512 MiB of memory"):
        run(lambda: everything(FileReader(task(tmp_path / "bomb", "lustre", seconds=500))))


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


def test_a_window_that_is_too_large_is_refused_and_the_next_request_is_answered(copy, monkeypatch):
    one = FileReader(task(copy))

    async def scenario():
        try:
            (span,) = await one.spans()
            with monkeypatch.context() as less:
                less.setattr(reader, "MAX_RESPONSE_BYTES", 1000)
                with pytest.raises(Refusal, match="a window of it has more than 0 MiB"):
                    await one.collect(span)
            return await one.collect(span)
        finally:
            await one.close()

    assert run(scenario).batches


def test_spans_that_are_too_long_are_fatal(copy, monkeypatch):
    one = FileReader(task(copy))
    monkeypatch.setattr(reader, "MAX_RESPONSE_BYTES", 10)

    async def scenario():
        try:
            with pytest.raises(Fatal, match="malformed answer"):
                await one.spans()
        finally:
            await one.close()

    run(scenario)


@pytest.mark.parametrize(
    "answer",
    [
        b"{",
        b'{"type":"failed","id":0,"outcome":"fatal","message":"\xff"}',
        b'{"type":"found","more":' + 50_000 * b"[",
        b'{"type":"data","id":0,"part":0,"parts":1}',
    ],
    ids=["no JSON", "no UTF-8", "nested", "another kind"],
)
def test_a_malformed_answer_of_a_reader_that_was_taken_over_is_fatal(copy, monkeypatch, answer):
    framed = struct.pack("!Q", len(answer)) + answer + struct.pack("!Q", 0)
    code = f"import sys; sys.stdout.buffer.write({framed!r}); sys.stdout.flush(); sys.stdin.read()"
    monkeypatch.setattr(reader, "python_command", lambda *_: [sys.executable, "-c", code])
    one = FileReader(task(copy))

    async def scenario():
        try:
            await one.spans()
        finally:
            await one.close()

    with pytest.raises(Fatal, match=r"^the process that read it gave a malformed answer$"):
        run(scenario)


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
