"""A site that `tokiod web` serves as a process of its own: a day of one file system, with all that a cell can be.

rows [0, 120)      values; of OST0000 the value is zero in row 3
rows [120, 132)    lost
rows [132, 144)    failed: the window is queried again
rows [144, 240)    values; OST0000 has none in row 150
row 240            the site's present: not due
"""

from __future__ import annotations

import http.client
import itertools
import json
import socket
import struct
import subprocess
import sys
from contextlib import closing, contextmanager, suppress

import msgspec
import numpy as np
from job_days import JobDays, polled
from waiting import wait_for

from tokiod.config import load as configuration
from tokiod.ledger.ledger import Ledger, StoredEntry
from tokiod.tts.live.create import create
from tokiod.tts.live.live_file import LiveFile
from tokiod.tts.spec import FileSpec, GroupSpec, MatrixSpec
from tokiod.window import Window
from tokiod.window_data import WindowMeta, job_key

START, STEP, ROWS = 1_517_184_000, 5, 240
NOW = START + ROWS * STEP + 20
DAY = "2018-01-29"
GAUGE, COUNTER = "dataservers/cpuload", "datatargets/readbytes"
EVIL = "<img src=x onerror=alert(1)>"
COLUMNS = (EVIL, "OST0000", "OST0001")
LOST, FAILED = (120, 132), (132, 144)
CONFIG = """\
timezone = "UTC"
[archive]
path = "{0}/tts/%Y-%m-%d/{{system}}.hdf5"
[bus]
endpoint = "ipc://{0}/bus"
[feed]
endpoint = "ipc://{0}/feed"
[web]
address = "{1}"
hosts = ["storage.example.org"]
[[source]]
name = "one"
kind = "lmt"
system = "fs"
url = "sqlite:///none"
window = "60s"
settle = "15s"
"""


def values(rows=ROWS):
    """The cells f8[rows, columns] that are stored, NaN where missing."""
    cells = 1.0 + np.arange(rows * len(COLUMNS), dtype=float).reshape(rows, len(COLUMNS)) ** 2
    cells[3, 1] = 0.0
    cells[LOST[0] : FAILED[1]] = np.nan
    cells[150, 1] = np.nan
    return cells


class WebProcess:
    """`tokiod web` of a configuration, as a process of its own. path: of the configuration; socket: of its address, or a port."""

    def __init__(self, path, socket, log):
        self.path, self.socket, self.log = path, socket, log

    @contextmanager
    def served(self, clock=f"{NOW}@0x0"):
        """Run it."""
        command = [sys.executable, "-P", "-m", "tokiod.cli.tokiod", "web", "--config", str(self.path), "--clock", clock]
        with self.log.open("ab") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            wait_for(lambda: process.poll() is not None or self._answers(), 30, "tokiod web does not answer")
            yield process
        finally:
            process.terminate()
            process.wait(100)

    def _answers(self):
        with suppress(OSError):
            return self.get("/healthz").status == 200
        return False

    def get(self, path, method="GET", host="localhost", **headers):
        """Send a request and return the answer, read."""
        with closing(http.client.HTTPConnection(host, timeout=100)) as connection:
            connection.sock = self.connected()
            connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
            answer = connection.getresponse()
            answer.body = answer.read()
            return answer

    def connected(self):
        is_unix = not isinstance(self.socket, int)
        client = socket.socket(socket.AF_UNIX if is_unix else socket.AF_INET)
        client.settimeout(100)
        try:
            client.connect(str(self.socket) if is_unix else ("127.0.0.1", self.socket))
        except OSError:
            client.close()
            raise
        return client

    def error(self, path, **options):
        """Return status and type of an error."""
        answer = self.get(path, **options)
        return answer.status, json.loads(answer.body)["error"]["type"]


class WebSite(WebProcess):
    """The archive of a directory."""

    def __init__(self, directory, port=None, sections=""):
        self.directory = directory
        super().__init__(directory / "tokiod.toml", directory / "http" if port is None else port, directory / "log")
        self.path.write_text(CONFIG.format(directory, self.socket if port is None else f"127.0.0.1:{port}") + sections)
        self.config = configuration.load(self.path)
        self.file = directory / "tts" / DAY / "fs.hdf5"
        self.file.parent.mkdir(parents=True)
        self.config.archive.ledger.parent.mkdir()
        groups = {name.partition("/")[0]: GroupSpec(STEP, "lmt") for name in (GAUGE, COUNTER)}
        matrices = {GAUGE: MatrixSpec(COLUMNS, counter=False), COUNTER: MatrixSpec(COLUMNS, counter=True)}
        create(self.file, FileSpec(START, START + 86400, groups, matrices), created=START)
        self.write(values())
        with Ledger.open(self.config.archive.ledger) as ledger:
            ledger.register(self.config.source[0], START)
            self.store(ledger, 0, LOST[0])
            self.store(ledger, FAILED[1], ROWS)
            ledger.lost("one", window(*LOST), "NoData", "the source deleted it", NOW)
            ledger.failed("one", window(*FAILED), "Transient", "no answer", 3, NOW + 60, NOW)

    def store_jobs(self, window=60):
        """Store what some jobs did: one that has a markup as its id, one on two nodes, a process without a job."""
        jobs = JobDays(self.config.archive.jobs, window=window)
        ost, mdt = b"fs-OST0000", b"fs-MDT0002"
        jobs.store(
            START,
            *(
                polled(START + 65, ost, job_key("4711", "1000", None, f"n{n}", f"a{n}"), START + 1, {"write_bytes.sum": 6 << 40})
                for n in (1, 2)
            ),
            polled(START + 66, mdt, job_key("4711", "1000", None, "n1", "a1"), START + 1, {"open.samples": 12, "close.samples": 12}),
            polled(START + 66, mdt, job_key(EVIL, "1001", None, None, "b"), START + 2, {"open.samples": 6000, "mkdir.samples": 9}),
            polled(START + 66, ost, job_key("", "1001", "rsync", None, "c"), START + 3, {"read_bytes.sum": 1 << 40}),
        )
        return jobs

    def store(self, ledger, first, last):
        ledger.store([StoredEntry(WindowMeta("one", "lmt", "fs", window(first, last)), 10)], START + last * STEP)

    def write(self, cells, first=0):
        file = LiveFile.open(self.file)
        for dataset in (GAUGE, COUNTER):
            file.cells[dataset].write_rows(first, np.where(np.isnan(cells), -0.0, cells))
        file.commit()
        file.close()


class Client:
    """A client of the events that reads as much as it is asked to. address: that the reverse proxy reports."""

    def __init__(self, process, path="/api/v1/events", last_id="", address=""):
        self.socket = process.connected()
        more = f"Last-Event-ID: {last_id}\r\n" if last_id else ""
        more += f"X-Forwarded-For: {address}\r\n" if address else ""
        self.socket.sendall(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n{more}\r\n".encode())
        self.lines = self.socket.makefile("r", encoding="utf-8", newline="\n")
        self.status = int(self.lines.readline().split()[1])
        self.headers = dict(line.strip().split(": ", 1) for line in itertools.takewhile(str.strip, self.lines))

    def until(self, wanted):
        """Read to the event for which wanted(name, data) is true; return its data and the id that it leaves."""
        last = ""
        while True:
            block = "".join(itertools.takewhile(lambda line: line != "\n", self.lines))
            assert block, "the stream has ended"
            events, identity = events_of(block)
            last = identity or last
            for name, data in events:
                if wanted(name, data):
                    return data, last

    def close(self):
        self.lines.close()
        self.socket.close()


def events_of(text):
    """Return [(event, data)] of a stream's text, and the last id."""
    found, last = [], ""
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        last = fields.get("id", last)
        if "event" in fields:
            found.append((fields["event"], json.loads(fields["data"])))
    return found, last


def window(first, last):
    return Window(START + first * STEP, START + last * STEP)


def decoded(body):
    """Return header, levels u8[pixels, columns] and flags of an answer, by its grammar alone."""
    assert body[:4] == b"TKM1"
    (length,) = struct.unpack_from("<I", body, 4)
    header = msgspec.json.decode(body[8 : 8 + length])
    cells = np.frombuffer(body, np.uint8, offset=8 + length).reshape(2, header["pixels"], len(header["columns"]))
    return header, cells[0], cells[1]
