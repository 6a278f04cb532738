"""Users of a test: the daemon's, a reader in its group, an outsider. They need no entry in /etc/passwd, but a test that runs as root."""

import os
import shlex
import shutil
import site
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pytest

SERVICE, READERS, READER, OUTSIDER = 61001, 61002, 61003, 61004
"""User ids; READERS is the group of the daemon's processes."""
CHECKOUT = Path(__file__).parents[2]
ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "PYTHONPATH": os.pathsep.join([str(CHECKOUT), *site.getsitepackages()]),
    "PYTHONDONTWRITEBYTECODE": "1",
    "HOME": "/",
}


@dataclass(frozen=True)
class User:
    """A user with its groups."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()

    def command(self, *words):
        """Return the command that runs another one as this user, without any capability."""
        groups = f"--groups={','.join(map(str, self.groups))}" if self.groups else "--clear-groups"
        return ["setpriv", f"--reuid={self.uid}", f"--regid={self.gid}", groups, "--inh-caps=-all", *map(str, words)]

    def run(self, *words, **options):
        """Run a command as this user and return the result."""
        options = {"capture_output": True, "text": True, "timeout": 60, "cwd": "/", "env": ENVIRONMENT} | options
        return subprocess.run(self.command(*words), check=False, **options)

    def python(self, code, *arguments, **options):
        """Run Python code as this user and return the result."""
        return self.run(python(), "-P", "-c", code, *arguments, **options)


USERS = {
    "root": User(0, 0),
    "service": User(SERVICE, READERS),
    "reader": User(READER, READER, (READERS,)),
    "outsider": User(OUTSIDER, OUTSIDER),
}


@contextmanager
def as_another_user():
    """Be an outsider for a while, where root runs the tests: root may write everywhere."""
    user = os.geteuid()
    os.seteuid(OUTSIDER if user == 0 else user)
    try:
        yield
    finally:
        os.seteuid(user)


@lru_cache
def python():
    """Return an interpreter of this version that every user can run: the one of these tests may be below /root. Empty if there is none."""
    version = "{}.{}".format(*sys.version_info)
    for program in (sys.executable, f"/usr/bin/python{version}", f"/usr/local/bin/python{version}"):
        # Not setpriv itself, which still has root's capabilities when it executes the program.
        test = f"exec {shlex.quote(program)} -P -c 'import tokiod.cli.tokioctl, zmq, numpy, h5py'"
        if USERS["outsider"].run("sh", "-c", test).returncode == 0:
            return program
    return ""


@lru_cache
def obstacle():
    """Return why other users can't be played here; empty where they can."""
    if os.geteuid() != 0:
        return "only root can run commands as other users"
    if shutil.which("setpriv") is None:
        return "setpriv (util-linux) is missing"
    return "" if python() else f"other users can't run Python with {CHECKOUT}"


def need_users():
    """Skip the test where other users can't be played."""
    if reason := obstacle():
        pytest.skip(reason)


@contextmanager
def open_directory():
    """A directory that every user can enter, unlike tmp_path."""
    with tempfile.TemporaryDirectory(prefix="users-") as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)
