"""The collectors' process against a real bus and a real ledger; the sources are plugins that exist only in the test."""

import asyncio
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import asynccontextmanager, contextmanager

import pytest
from structlog.testing import capture_logs

import collectors
from tokiod.bus.receiver import Receiver
from tokiod.clock import SimulatedClock
from tokiod.config import load as configuration
from tokiod.ledger.ledger import Ledger, StoredEntry
from tokiod.polling.process import CollectorsProcess
from tokiod.ranges import Ranges
from tokiod.runtime.service import Service

NOON = 1_517_126_400 + 12 * 3600

PLUGIN = """
import sys
from pathlib import Path
import msgspec
from tokiod.collector import SourceConfig
from tokiod.errors import ConfigError
from tokiod.window_data import WindowData

class Config(SourceConfig, frozen=True):
    notes: str
    broken: bool = False
    jobs: bool = False

    @property
    def step(self):
        return 5

    @property
    def tables(self):
        return frozenset({"jobs/operations"} if self.jobs else ())

    def datasets(self):
        return frozenset({"datatargets/" + ("readbytes" if self.broken else "writebytes")})

class Saved(msgspec.Struct):
    pass

class Pretend:
    step = 5
    replayable = True
    needs_sample_at_end = False

    def __init__(self, config):
        self.notes = Path(config.notes)

    def note(self, text):
        with self.notes.open("a") as file:
            file.write(text + "\\n")

    async def collect(self, window):
        for minute in range(window.start, window.end, 60):
            self.note(f"{minute}")
        return WindowData()

    async def close(self):
        self.note(f"closed, HDF5 {'h5py' in sys.modules}")

def live(config, site):
    if config.broken:
        raise ConfigError(["no such secret: file:lmt-password"])
    return Pretend(config)

def saved(inputs, options, site):
    raise NotImplementedError
"""

PROCESS = """
import sys
from pathlib import Path
import collectors
collectors.__path__.append(sys.argv[1])
from tokiod.polling import process as collecting; from tokiod.config import load as config
from tokiod.clock import SimulatedClock
from tokiod.runtime.service import Service
print("up", flush=True)
collecting.run(Service(lambda: config.load(Path(sys.argv[2]))), SimulatedClock.parse(sys.argv[3]))
"""


class Site:
    def __init__(self, directory):
        self.directory = directory
        self.notes = directory / "notes"
        self.plugins = directory / "plugins"
        self.plugins.mkdir()
        (self.plugins / "pretend.py").write_text(PLUGIN)
        self.clock = SimulatedClock(NOON, time.time(), 100.0)
        self.path = directory / "tokiod.toml"

    def configure(self, extra=""):
        source = (
            f'[[source]]\nname = "well"\nkind = "pretend"\nsystem = "cscratch"\nnotes = "{self.notes}"\nretention = "1h"\nsettle = "0s"\n'
            'empty_after = "never"\n'
        )
        self.path.write_text(
            f'timezone = "UTC"\n[archive]\npath = "{self.directory}/archive/%Y-%m-%d/{{system}}.hdf5"\n'
            f'[bus]\nendpoint = "ipc://{self.directory}/bus"\n[feed]\nendpoint = "ipc://{self.directory}/feed"\n{source}{extra}'
        )
        return configuration.load(self.path)

    @property
    def asked(self):
        return [line for line in self.notes.read_text().split() if line.isdigit()] if self.notes.exists() else []


@pytest.fixture
def site(tmp_path, monkeypatch):
    made = Site(tmp_path)
    monkeypatch.setattr("tokiod.polling.sources.DRAIN_SECONDS", 0.1)
    monkeypatch.setattr(collectors, "__path__", [*collectors.__path__, str(made.plugins)])
    yield made
    sys.modules.pop("collectors.pretend", None)


@contextmanager
def writer(config, epoch="one"):
    """A writer that records windows without files; yields the ranges that it acknowledged, by source."""
    stop = threading.Event()
    ready = threading.Event()
    stored = {}

    def write():
        with Ledger.open_or_quarantine(config.archive.ledger, NOON) as ledger, Receiver(config.bus.endpoint, epoch) as receiver:
            ready.set()
            while not stop.is_set():
                for arrived in receiver.poll(20):
                    one = arrived.collected.meta
                    ledger.store([StoredEntry(one, 0)], NOON)
                    stored.setdefault(one.source, Ranges()).add(one.window.start, one.window.end)
                    receiver.ack(arrived, 0, {})
                receiver.beat()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        assert ready.wait(50)
        yield stored
    finally:
        stop.set()
        thread.join()


@asynccontextmanager
async def collecting(config, clock):
    task = asyncio.create_task(CollectorsProcess(Service(lambda: config), clock).run())
    try:
        yield
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(condition):
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


@contextmanager
def process(site):
    arguments = [sys.executable, "-c", PROCESS, str(site.plugins), str(site.path), str(site.clock)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout.readline() == "up\n"
            yield child
        finally:
            child.kill()


def wait_for(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_process_has_its_windows_acknowledged_its_collectors_closed_and_no_hdf5(site, number):
    config = site.configure()
    with writer(config) as stored, process(site) as child:
        wait_for(lambda: "well" in stored and stored["well"].total >= 3540)
        child.send_signal(number)
        assert child.wait(50) == 0
        asked = site.asked
        assert site.notes.read_text().endswith("closed, HDF5 False\n")
        assert sorted(set(asked)) == sorted(asked)
        assert {int(start) for start in asked} == {i for start, end in stored["well"] for i in range(start, end, 60)}
    with Ledger.open_readonly(config.archive.ledger) as ledger:
        assert (ledger.sources()[0].state, ledger.stored("well")) == ("stopped", stored["well"])


def test_a_process_without_a_welcome_collects_nothing_creates_no_ledger_and_stops_at_once(site):
    config = site.configure()
    with process(site) as child:
        time.sleep(0.3)
        child.terminate()
        assert child.wait(25) == 0
    assert (site.notes.exists(), config.archive.ledger.exists()) == (False, False)


def test_a_ledger_that_cannot_be_opened_is_reported_in_a_sentence_and_retried(site):
    config = site.configure()
    config.archive.ledger.parent.mkdir(parents=True)
    config.archive.ledger.write_bytes(b"no database" * 1000)
    with Receiver(config.bus.endpoint, "one") as receiver, process(site) as child:
        deadline = time.monotonic() + 1.5
        while time.monotonic() < deadline:
            receiver.poll(20)
            receiver.beat()
        assert (child.poll(), site.asked) == (None, [])
        config.archive.ledger.unlink()
        Ledger.open(config.archive.ledger).close()  # as the next writer does
        while not site.asked:
            receiver.poll(20)
            receiver.beat()
            assert time.monotonic() < deadline + 15
        child.kill()
        output = child.communicate()[0]
    assert (output.count("ledger.failed"), output.count("is corrupt"), "Traceback" in output) == (1, 1, False)


def test_after_a_kill_of_the_process_exactly_the_windows_that_are_not_stored_are_collected_again(site):
    config = site.configure()
    with writer(config) as stored:
        with process(site) as child:
            wait_for(lambda: "well" in stored and stored["well"].total >= 3540)
            child.send_signal(signal.SIGKILL)
            child.wait()
        time.sleep(0.1)
        proved = {i for start, end in stored["well"] for i in range(start, end, 60)}
        before = len(site.asked)
        with process(site) as child:
            wait_for(lambda: len(site.asked) > before + 1 and len(stored["well"]) == 1)
            child.terminate()
            assert child.wait(50) == 0
        assert proved.isdisjoint({int(start) for start in site.asked[before:]})


def test_a_writer_that_restarts_with_another_ledger_receives_again_what_that_does_not_hold(site):
    config = site.configure()

    async def scenario():
        async with collecting(config, site.clock):
            with writer(config) as first:
                await until(lambda: "well" in first and first["well"].total >= 3540)
            for suffix in ("", "-wal", "-shm"):
                file = config.archive.ledger.with_name(config.archive.ledger.name + suffix)
                if file.exists():
                    file.rename(file.with_name("aside" + suffix))
            with writer(config, epoch="two") as second:
                await until(lambda: "well" in second and second["well"].total >= 3540 and len(second["well"]) == 1)
        with Ledger.open_readonly(config.archive.ledger) as ledger:
            return first["well"], second["well"], ledger.stored("well"), ledger.sources()[0]

    first, second, stored, status = asyncio.run(scenario())
    assert stored == second
    assert first.within(*next(iter(second)))  # what the first had stored, at least what is still kept at the source, came again
    assert (status.step, status.retention) == (5, 3600)


def test_a_collector_that_cannot_be_made_is_reported_and_delays_no_other(site):
    broken = f'[[source]]\nname = "ill"\nkind = "pretend"\nsystem = "cscratch"\nbroken = true\nnotes = "{site.notes}"\n'
    config = site.configure(broken)

    async def scenario():
        with writer(config) as stored:
            async with collecting(config, site.clock):
                await until(lambda: "well" in stored and stored["well"].total >= 3540)
                with Ledger.open_readonly(config.archive.ledger) as ledger:
                    return {s.name: (s.state, s.state_reason) for s in ledger.sources()}

    assert asyncio.run(scenario()) == {"well": ("running", ""), "ill": ("fatal", "no such secret: file:lmt-password")}


def test_a_reload_while_the_directory_of_the_key_of_jobs_is_missing_is_refused_and_the_sources_go_on(site):
    config = site.configure("jobs = true\n")

    async def scenario():
        with writer(config) as stored:
            process = CollectorsProcess(Service(lambda: config), site.clock)
            task = asyncio.create_task(process.run())
            await until(lambda: "well" in stored)
            shutil.rmtree(config.archive.private)
            with capture_logs() as logs:
                process.request_reload()
                await until(lambda: task.done() or any(log["event"] == "config.refused" for log in logs))
            before = stored["well"].total
            await until(lambda: task.done() or stored["well"].total > before)
            assert not task.done(), task.exception()
            task.cancel()
            await asyncio.wait({task})
        return [log["faults"] for log in logs if log["event"] == "config.refused"]

    path = config.archive.private / "jobs.key"
    assert asyncio.run(scenario()) == [[f"the key of job ids can't be made: {path}: No such file or directory"]]


class Supervisor:
    """What the process reports to its supervisor."""

    interval = 0.01

    def __init__(self):
        self.reports = []

    def alive(self, status=""):
        self.reports.append(status)

    def ready(self):
        self.reports.append("ready")

    def stopping(self):
        self.reports.append("stopping")


def test_a_process_that_hangs_reports_no_progress_until_it_goes_on(site):
    """The watchdog of its supervisor would not end it otherwise, or would end a healthy one."""
    config, supervisor = site.configure(), Supervisor()

    async def scenario():
        process = CollectorsProcess(Service(lambda: config, supervisor), site.clock)
        task = asyncio.create_task(process.run())
        with capture_logs() as logs, writer(config):
            await until(lambda: "ready" in supervisor.reports)
            assert not [log for log in logs if log["event"] == "collectors.stuck"]
            stuck, process._sender.stuck = process._sender.stuck, lambda _now: "the writer is silent"
            await until(lambda: any(log["event"] == "collectors.stuck" for log in logs))
            before = len(supervisor.reports)
            await asyncio.sleep(0.1)
            assert len(supervisor.reports) == before
            process._sender.stuck = stuck
            await until(lambda: len(supervisor.reports) > before)
            task.cancel()
            await asyncio.wait({task})
        return {log["reason"] for log in logs if log["event"] == "collectors.stuck"}

    assert asyncio.run(scenario()) == {"the writer is silent"}


def test_a_process_without_a_source_runs_until_it_is_stopped(site):
    config = site.configure()
    text = site.path.read_text()
    site.path.write_text(text[: text.index("[[source]]")])
    with writer(config), process(site) as child:
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.5)
        child.terminate()
        assert child.wait(25) == 0


def test_a_second_process_is_refused_while_the_first_one_lives(site):
    """Both would query each source, and the one that ends first would record all of them as stopped."""
    config = site.configure()
    with writer(config), process(site) as child:
        second = [sys.executable, "-m", "tokiod.cli.tokiod", "collectors", "--config", site.path]
        text = site.path.read_text()
        site.path.write_text(text[: text.index("[[source]]")])  # the program has no plugin of the test
        wait_for(config.collectors_lock.exists)
        done = subprocess.run(second, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, f"process {child.pid} already collects for this daemon" in done.stderr) == (2, True), done.stderr
        child.kill()
        child.wait()
        with process(site):
            pass
