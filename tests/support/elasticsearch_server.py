"""A real Elasticsearch or OpenSearch on loopback, for one run of tests. Standard library only.

elasticsearch_server.py elasticsearch|opensearch [--port N]    prints its URL and runs until Ctrl-C
elasticsearch_server.py fetch    puts both into the cache of the tests, and reports what is missing

Both are the stripped distributions of Maven Central. They refuse to run as root, so root runs them as the user nobody, in a directory
that this user can reach (pytest's directories are root's alone). While it starts, a server uses one core.
"""

import argparse
import base64
import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path

from java import java_home
from maven import Unavailable, fetch
from search_client import Refused, SearchClient

START_SECONDS = 600
"""A busy machine takes minutes."""
STOP_SECONDS = 20
NOBODY = 65534
SETTINGS = {
    "cluster.name": "tokiod-tests",
    "discovery.type": "single-node",
    "http.host": "127.0.0.1",
    "transport.host": "127.0.0.1",
    "transport.port": 0,
    "node.portsfile": True,
    "action.destructive_requires_name": False,
    "cluster.routing.allocation.disk.threshold_enabled": False,
    # How often expired contexts are closed; a minute by default, too long for a test.
    "search.keep_alive_interval": "200ms",
    # How often files of users and roles are read; every 5 s by default.
    "resource.reload.interval.high": "500ms",
}


@dataclass(frozen=True)
class Flavour:
    artifact: str
    java: str
    settings: tuple[tuple[str, object], ...] = ()


FLAVOURS = {
    "elasticsearch": Flavour(
        "org.elasticsearch.distribution.integ-test-zip:elasticsearch:8.19.4:zip", "ES_JAVA_HOME", (("xpack.security.enabled", False),)
    ),
    "opensearch": Flavour(
        "org.opensearch.distribution.integ-test-zip:opensearch:2.19.1:zip",
        "OPENSEARCH_JAVA_HOME",
        # The shortest life of a point in time, whatever it was opened with; 30 s by default.
        (("point_in_time.init.keep_alive", "500ms"),),
    ),
}

SECURED, LOGIN = "elasticsearch with a password and TLS", ("collector", "correct horse")
"""The name of this server in the fixture search_server, and its only user."""


class SearchServer(SearchClient):
    """A context manager. url: its address; ca: the PEM file that its certificate is checked against, or None without TLS.

    settings: of its .yml, in addition to SETTINGS; login: (user, password) of its only user, by TLS, for Elasticsearch; starts_fast: with
    one compiler, and two thirds of its speed later.
    """

    def __init__(self, flavour, *, settings=(), login=None, port=0, starts_fast=True):
        super().__init__(login=login)
        self.flavour = flavour
        self._settings = SETTINGS | dict(FLAVOURS[flavour].settings) | {"http.port": port} | dict(settings)
        self._starts_fast = starts_fast
        self._process = self._temporary = None

    def __enter__(self):
        with contextlib.ExitStack() as undo:
            undo.callback(self.stop)
            self._install()
            self.start()
            undo.pop_all()
        return self

    def __exit__(self, *_):
        self.stop()

    def _install(self):
        archive, self._java = fetch(FLAVOURS[self.flavour].artifact), java_home()
        self._temporary = Path(tempfile.mkdtemp(prefix=f"tokiod-{self.flavour}-"))
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(self._temporary)
        self.home = self._temporary / archive.stem
        (self._temporary / "tmp").mkdir()
        for program in (self.home / "bin").iterdir():
            program.chmod(0o755)
        if self.login:
            self._certify()
            self._add_user(*self.login)
        self._configure()
        if os.geteuid() == 0:
            for path in (self._temporary, *self._temporary.rglob("*")):
                os.chown(path, NOBODY, NOBODY)

    def _add_user(self, user, password):
        """Write the files of the file realm, as elasticsearch-users does: that is a Java program of its own."""
        salt = os.urandom(32)
        digest = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, 1000, 32)
        encoded = [base64.b64encode(part).decode() for part in (salt, digest)]
        (self.home / "config" / "users").write_text(f"{user}:{{PBKDF2}}1000${'$'.join(encoded)}\n")
        (self.home / "config" / "users_roles").write_text(f"superuser:{user}\n")

    def _configure(self):
        config = self.home / "config"
        lines = [f"{name}: {json.dumps(value)}\n" for name, value in self._settings.items()]
        (config / f"{self.flavour}.yml").write_text("".join(lines))
        (config / "jvm.options.d").mkdir(exist_ok=True)
        # One compiler only: it starts with 12 s of processor time instead of 20.
        compilers = "-XX:TieredStopAtLevel=1\n" if self._starts_fast else ""
        (config / "jvm.options.d" / "heap.options").write_text(f"-Xms512m\n-Xmx512m\n-XX:-UsePerfData\n{compilers}")

    def _certify(self):
        self.ca = str(self.home / "config" / "server.pem")
        wanted = "req -x509 -newkey rsa:2048 -nodes -subj /CN=tokiod-tests -addext subjectAltName=IP:127.0.0.1 -days 2"
        command = ["openssl", *wanted.split(), "-keyout", str(self.home / "config" / "server.key"), "-out", self.ca]
        subprocess.run(command, check=True, capture_output=True)
        tls = {"enabled": True, "key": "server.key", "certificate": "server.pem"}
        self._settings |= {"xpack.security.enabled": True, "xpack.security.autoconfiguration.enabled": False}
        self._settings |= {f"xpack.security.http.ssl.{name}": value for name, value in tls.items()}

    def _run(self, command, how, **options):
        """Run one of its programs as a user other than root, in its environment; the kernel kills it when this process ends."""
        tmp = self._temporary / "tmp"
        variables = {
            "HOME": self.home,
            "ES_TMPDIR": tmp,
            "OPENSEARCH_TMPDIR": tmp,
            "CLI_JAVA_OPTS": f"-Djava.io.tmpdir={tmp} -XX:TieredStopAtLevel=1",
        }
        variables |= {FLAVOURS[self.flavour].java: self._java, "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
        who = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"] if os.geteuid() == 0 else []
        with (self._temporary / "console.log").open("ab") as log:
            places = {"cwd": self.home, "env": {k: str(v) for k, v in variables.items()}, "stdout": log, "stderr": log}
            program = str(self.home / "bin" / command[0])
            return how(["setpriv", "--pdeathsig=KILL", *who, program, *command[1:]], stdin=subprocess.DEVNULL, **places, **options)

    def start(self):
        """Start it, or restart it with its data after a stop or a kill; returns when it answers. Its port may change."""
        ports = self.home / "logs" / "http.ports"
        ports.unlink(missing_ok=True)
        self._process = self._run([self.flavour, "-p", str(self.home / "pid")], subprocess.Popen, start_new_session=True)
        deadline = time.monotonic() + START_SECONDS
        while not (ports.exists() and self._answers(ports)):
            assert self._process.poll() is None, f"{self.flavour} ended with {self._process.returncode}:\n{self.log()}"
            assert time.monotonic() < deadline, f"{self.flavour} was not up after {START_SECONDS} s:\n{self.log()}"
            time.sleep(0.1)

    def _answers(self, ports):
        # The file appears a moment before its text.
        if not (found := re.search(r"127\.0\.0\.1:\d+", ports.read_text())):
            return False
        self.url = f"{'https' if self.login else 'http'}://{found[0]}"
        try:
            return self.ask("GET", "/_cluster/health?wait_for_status=yellow&timeout=50s")["status"] in ("yellow", "green")
        except (OSError, Refused):
            return False

    def log(self):
        """Return the end of its logs, for a message about a server that does not start."""
        own = [self._temporary / "console.log", *self.home.glob("logs/tokiod-tests.log")]
        return "\n".join(path.read_text(errors="replace")[-4000:] for path in own if path.exists())

    def signal(self, number):
        """Send the server itself a signal (its launcher stays); after SIGKILL, return when it is gone."""
        os.kill(int((self.home / "pid").read_text()), number)
        if number == signal.SIGKILL:
            self._process.wait(STOP_SECONDS)

    def halt(self):
        """End the process and keep the data, for another start()."""
        if self._process is None:
            return
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process = None

    def stop(self):
        self.halt()
        if self._temporary:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None


def missing(flavour):
    """Return why a server can't be started here, as a sentence, or None; fetch it if it is not in the cache."""
    try:
        fetch(FLAVOURS[flavour].artifact)
        java_home()
    except Unavailable as error:
        return str(error)
    lacking = [name for name in ("setpriv", "openssl") if shutil.which(name) is None]
    return f"not installed: {' '.join(lacking)}" if lacking else None


def main():
    parser = argparse.ArgumentParser(description="Run a real Elasticsearch or OpenSearch until Ctrl-C.")
    parser.add_argument("flavour", choices=[*FLAVOURS, "fetch"])
    parser.add_argument("--port", type=int, default=0)
    wanted = parser.parse_args()
    if wanted.flavour == "fetch":
        for sentence in {missing(flavour) for flavour in FLAVOURS} - {None}:
            print(f"{sentence}; the tests that need it will skip", file=sys.stderr)
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt), SearchServer(wanted.flavour, port=wanted.port) as server:
        print(server.url, flush=True)
        server._process.wait()
        print(server.log())


if __name__ == "__main__":
    main()
