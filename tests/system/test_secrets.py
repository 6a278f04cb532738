"""Secrets of every kind, planted with a mark, in a daemon whose sources work and fail: the mark is nowhere but where it was put."""

import base64
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote
from urllib.request import urlopen

import pytest
from keyed import Keyring
from waiting import wait_for

from tokiod.clock import SimulatedClock
from tokiod.simulator.scene import Scene
from tokiod.simulator.site import Site
from tokiod.simulator.sources import LMT, free_port
from tokiod.subscribe.subscriber import Subscriber, Update

pytestmark = pytest.mark.system

NOON = 1_517_184_000 + 12 * 3600
MARKS = {name: f'Mark-{name}-«/+ "{name * 2}' for name in ("file", "env", "credential", "apikey", "server")}
"""With what JSON, URLs and repr() write in other ways."""

SOURCES = """\
[[source]]
name = "refused-lmt"
system = "a"
kind = "lmt"
url = "mysql://tokiod@127.0.0.1:{nobody}/filesystem_a"
password_file = "lmt-password"
retention = "1h"
[[source]]
name = "rude-lmt"
system = "b"
kind = "lmt"
url = "mysql://tokiod@127.0.0.1:{echo}/filesystem_b"
password_env = "LMT_PASSWORD"
retention = "1h"
[[source]]
name = "echoing"
system = "c"
kind = "collectd_es"
url = "http://127.0.0.1:{echo}"
index = "c-*"
user = "tokiod"
password_file = "es-password"
retention = "1h"
[[source]]
name = "echoing-keys"
system = "d"
kind = "collectd_es"
url = "http://127.0.0.1:{echo}"
index = "d-*"
api_key_env = "ES_KEY"
retention = "1h"
[[source]]
name = "command"
system = "e"
kind = "mmperfmon"
command = ["{command}", "query"]
lun_map = ['x=datatarget']
retention = "1h"
"""


class Echo(BaseHTTPRequestHandler):
    """A server that fails, and tells everybody everything that it was told."""

    heard: ClassVar[set[str]] = set()

    def _answer(self):
        given = self.headers.get("Authorization", "")
        kind, _, text = given.partition(" ")
        text = base64.b64decode(text).decode("utf-8", "replace") if kind == "Basic" else text.encode("latin-1").decode("utf-8", "replace")
        self.heard.add(text)
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = json.dumps({"error": {"reason": f"no {given} {text}", "type": text, "root_cause": [{"reason": text}]}}).encode()
        self.send_response(500 if len(self.heard) % 2 else 401)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_HEAD = do_DELETE = _answer  # noqa: N815 - the library's names

    def log_message(self, *_):
        pass


@pytest.fixture
def echo():
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


@pytest.fixture
def scene(echo, monkeypatch):
    with tempfile.TemporaryDirectory(prefix="secrets-") as name:
        directory = Path(name)
        site = Site(epoch=NOON - 300, timezone="UTC", osts=4, osss=2, mdts=1)
        scene = Scene(directory, site, SimulatedClock(float(NOON), time.time(), 60.0), retention=3600, sources=(LMT,), log_level="debug")
        scene.prepare()
        command = directory / "command"
        command.write_text(
            f"#!/bin/sh\nenv > {directory}/environment\ntr '\\0' ' ' < /proc/$$/cmdline >> {directory}/environment\nexit 3\n"
        )
        command.chmod(0o755)
        secrets = directory / "secrets"
        keyring = Keyring(secrets)
        for path, text in (("lmt-password", MARKS["file"]), ("credentials/es-password", MARKS["credential"])):
            (secrets / path).parent.mkdir(exist_ok=True)
            (secrets / path).write_text(f"{text}\n")
            (secrets / path).chmod(0o600)
        monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(secrets / "credentials"))
        monkeypatch.setenv("LMT_PASSWORD", MARKS["env"])
        monkeypatch.setenv("ES_KEY", MARKS["apikey"].encode("ascii", "ignore").decode())
        feed, metrics = free_port(), free_port()
        keyed = f'"tcp://127.0.0.1:{feed}"\nsecret_key_file = "server.key_secret"\nclients = "clients"'
        text = scene.config_path.read_text().replace(f'"ipc://{directory}/feed"', keyed)
        text = text.replace("[[source]]", f'[metrics]\naddress = "127.0.0.1:{metrics}"\n[[source]]', 1)
        scene.config_path.write_text('secrets = "secrets"\n' + text + SOURCES.format(nobody=free_port(), echo=echo, command=command))
        scene.ports = {"feed": feed, "metrics": metrics}
        try:
            scene.start_simulator()
            scene.start_daemon()
            yield scene, keyring
        finally:
            scene.close()


def spelled(secret):
    """Return the ways in which a secret may be written."""
    plain = [secret, json.dumps(secret)[1:-1], repr(secret)[1:-1], quote(secret), quote(secret, safe=""), secret.encode().hex()]
    basic = [base64.b64encode(f"tokiod:{secret}".encode()).decode(), base64.b64encode(secret.encode()).decode()]
    return {one.encode() for one in (*plain, *basic)}


def tokioctl(scene, *arguments):
    command = [sys.executable, "-m", "tokiod.cli.tokioctl", *arguments, "--config", str(scene.config_path)]
    done = subprocess.run(command, capture_output=True, check=False, timeout=300)
    return done.stdout + done.stderr


def test_no_secret_is_in_any_output_file_or_process(scene):
    scene, keyring = scene
    tested = {name: text if name != "apikey" else os.environ["ES_KEY"] for name, text in MARKS.items() if name != "server"}
    tested |= {f"key {path.name}": re.search('secret-key = "(.*)"', path.read_text())[1] for path in keyring.directory.glob("*.key_secret")}
    with Subscriber(f"tcp://127.0.0.1:{scene.ports['feed']}", silence=0.5, keys=keyring.allowed("friend")) as subscriber:
        wait_for(lambda: len(scene.stored()) > 0 and (scene.directory / "environment").exists(), 60, "nothing stored")
        wait_for(lambda: len([one for one in Echo.heard if "Mark" in one]) >= 2, 60, f"the secrets were never used; see {scene.log}")
        failing = ("refused-lmt", "rude-lmt", "echoing", "echoing-keys", "command")
        wait_for(lambda: all(scene.log.read_text().count(name) > 3 for name in failing), 60, "not all have failed")
        subscriber.silence = 0.2
        heard = next((event for event, _ in zip(subscriber, range(100), strict=False) if isinstance(event, Update)), None)
    asked = [("status",), ("status", "--json"), ("ping", "--json"), ("gaps",), ("reload", "--json"), *(("once", name) for name in failing)]
    outputs = {f"tokioctl {' '.join(words)}": tokioctl(scene, *words) for words in asked}
    with urlopen(f"http://127.0.0.1:{scene.ports['metrics']}/metrics", timeout=50) as answer:
        outputs["metrics"] = answer.read()
    for pid in scene.processes():
        outputs[f"command line of {pid}"] = Path(f"/proc/{pid}/cmdline").read_bytes()
    assert scene.stop_daemon() == 0
    for path in (path for path in scene.directory.rglob("*") if path.is_file() and keyring.directory not in path.parents):
        outputs[str(path)] = path.read_bytes()
    assert b"tokiod_" in outputs["metrics"]
    assert heard is None or isinstance(heard, Update)
    found = {
        (name, where): text[max(0, text.find(one) - 60) : text.find(one) + 60]
        for name, secret in tested.items()
        for where, text in outputs.items()
        for one in spelled(secret)
        if one in text
    }
    assert found == {}, found
