"""A real Kerberos realm on loopback, of MIT's KDC, for one run of tests. Standard library only."""

import contextlib
import importlib.util
import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from tokiod.simulator.sources import free_port

REALM = "TESTS.EXAMPLE"
START_SECONDS = 60
SYSTEM_PATH = f"{os.environ['PATH']}:/usr/sbin"
CLIENT_CONFIG = """[libdefaults]
default_realm = {realm}
dns_canonicalize_hostname = false
dns_lookup_kdc = false
rdns = false
udp_preference_limit = 1
[realms]
{realm} = {{
  kdc = 127.0.0.1:{port}
}}
"""
SERVER_CONFIG = """[kdcdefaults]
kdc_listen = ""
kdc_tcp_listen = 127.0.0.1:{port}
[realms]
{realm} = {{
  database_name = {directory}/principal
  key_stash_file = {directory}/stash
  acl_file = {directory}/acl
}}
"""


class KerberosRealm:
    """A context manager. config: the file of clients, for KRB5_CONFIG."""

    def __init__(self):
        self._directory = self._process = None

    def __enter__(self):
        with contextlib.ExitStack() as undo:
            undo.callback(self.stop)
            self._directory = Path(tempfile.mkdtemp(prefix="tokiod-kerberos-"))
            self._port = free_port()
            self.config = self._directory / "krb5.conf"
            names = {"realm": REALM, "port": self._port, "directory": self._directory}
            self.config.write_text(CLIENT_CONFIG.format(**names))
            (self._directory / "kdc.conf").write_text(SERVER_CONFIG.format(**names))
            self._run("kdb5_util", "create", "-s", "-W", "-P", "master", "-r", REALM)
            self._start()
            undo.pop_all()
        return self

    def __exit__(self, *_):
        self.stop()

    def keytab(self, principal):
        """Make a principal; return the file with its key."""
        path = self._directory / f"{principal.replace('/', '-')}.keytab"
        self._run("kadmin.local", "-r", REALM, "addprinc", "-randkey", principal)
        self._run("kadmin.local", "-r", REALM, "ktadd", "-k", str(path), principal)
        return path

    def stop(self):
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        if self._directory:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def _start(self):
        log = self._directory / "console.log"
        with log.open("ab") as said:
            command = ["setpriv", "--pdeathsig=KILL", _program("krb5kdc"), "-n", "-r", REALM]
            self._process = subprocess.Popen(command, env=self._environment(), stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            assert self._process.poll() is None, f"krb5kdc ended:\n{log.read_text()}"
            assert time.monotonic() < deadline, f"krb5kdc was not up after {START_SECONDS} s:\n{log.read_text()}"
            time.sleep(0.05)

    def _answers(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0

    def _run(self, program, *arguments):
        done = subprocess.run([_program(program), *arguments], env=self._environment(), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def _environment(self):
        return os.environ | {"KRB5_CONFIG": str(self.config), "KRB5_KDC_PROFILE": str(self._directory / "kdc.conf")}


def missing():
    """Return why there can be no realm here, as a sentence, or None."""
    lacking = [name for name in ("krb5kdc", "kdb5_util", "kadmin.local", "setpriv") if _program(name) is None]
    if lacking:
        return f"not installed: {' '.join(lacking)}: apt-get install krb5-kdc krb5-admin-server"
    if importlib.util.find_spec("gssapi") is None:
        return "not installed: gssapi, which needs libkrb5-dev and gcc: pip install 'tokiod[kerberos]'"
    return None


def _program(name):
    return shutil.which(name, path=SYSTEM_PATH)
