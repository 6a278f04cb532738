"""A user who may only put files into watched folders attacks a daemon of another user, with files that a collector of that user reads.

One story: all attacks at once, while the daemon collects from a source and runs in a directory of the attacker. Then each folder gets a
good file, which must be collected by the same processes.
"""

import json
import os
import re
import subprocess
from pathlib import Path

import h5py
import pytest
from lustre_site import df
from user_site import MIDNIGHT, UserSite
from users import READERS, SERVICE, User, need_users, open_directory
from waiting import wait_for

from tokiod.tts.layout import form_of

pytestmark = pytest.mark.system

DROPPER, DROPPERS = 61005, 61006
"""A user, and the group that may write to the folders: it has no other right."""
SERVICE_USER = User(SERVICE, READERS, (DROPPERS,))
ATTACKER = User(DROPPER, DROPPERS)
MAX_MIB = 300
"""Resident memory that neither the writer nor the collectors' process exceeds at any time: bombs are read elsewhere."""
SECTION = """\
[[source]]
name = "{name}"
kind = "lustre"
system = "{name}"
watch = "{{0}}/folders/{name}"
scan = "2s"
"""
SECRET = b"what only the daemon's user may read\n"

PLANTED = """
for name in ("structlog", "numpy", "msgspec", "zmq", "tokiod", "collectors"):
    open(f"{cwd}/{name}.py", "w").write(f"open('{cwd}/imported', 'a').write('{name}')\\nraise SystemExit(3)\\n")
"""
ATTACKS = {
    # Security 1: reasons of rejected files are links to files of the daemon, or block whatever opens them.
    "reasons": """
os.mkdir("rejected")
for name, target in (("a", secret), ("b", f"{private}/running.toml"), ("c", f"{tts}/.tokiod/ledger.sqlite3"), ("d", f"{tts}/made")):
    os.symlink(target, f"rejected/{name}.reason")
    open(name, "w").write("garbage")
os.mkfifo("rejected/e.reason")
open("e", "w").write("garbage")
""",
    "rejected": """
os.symlink(os.path.dirname(secret), "rejected")
open("secret", "w").write("garbage")
""",
    # Security 2: a directory of the folder becomes a link, and is one again, while files in it are examined.
    "swapped": """
os.mkdir("sub")
os.symlink(secret, "link")
for _ in range(60):
    open("sub/secret", "w").write("garbage")
    time.sleep(0.02)
    os.rename("sub", "sub.old")
    os.symlink(os.path.dirname(secret), "sub")
    time.sleep(0.05)
    os.unlink("sub")
    os.rename("sub.old", "sub")
os.rename("sub", "sub.old")
os.symlink(os.path.dirname(secret), "sub")
""",
    # Security 3: small files that cost time or memory.
    "bombs": """
open("line.gz", "wb").write(gzip.compress(b"BEGIN" * 200_000))
open("newlines.gz", "wb").write(gzip.compress(b"BEGIN 1517126400\\n" + header + b"\\n" * (63 << 20), 1))
with open("sparse", "wb") as file:
    file.truncate(2600 << 20)
""",
    # Security 5 and 12: names that are not UTF-8 or control a terminal, and directories without end.
    "names": """
for name in (b"n\\xff", b"x" * 255, b"\\x1b]0;owned\\x07"):
    open(name, "w").write("garbage")
inner = os.open(".", os.O_RDONLY)
for _ in range(1100):
    os.mkdir("d", dir_fd=inner)
    inner, outer = os.open("d", os.O_RDONLY, dir_fd=inner), inner
    os.close(outer)
""",
}
GOOD = "".join(f"BEGIN {MIDNIGHT - 3600 + 60 * k}\n{df({'fs-OST0000': (1000, 500 + k), 'fs-OST0001': (1000, 300)})}" for k in range(3))


@pytest.fixture
def site():
    need_users()
    with open_directory() as directory:
        own = directory / "own"
        own.mkdir()
        os.chown(own, DROPPER, DROPPERS)
        (directory / "folders").mkdir()
        for name in ATTACKS:
            (directory / "folders" / name).mkdir()
            os.chown(directory / "folders" / name, SERVICE, DROPPERS)
            (directory / "folders" / name).chmod(0o2770)
        done = ATTACKER.python(f"cwd = {str(own)!r}\n{PLANTED}")
        assert done.returncode == 0, done.stderr
        sections = "".join(SECTION.format(name=name) for name in ATTACKS)
        made = UserSite(directory, sections, SERVICE_USER, own)
        secret = directory / "state" / "secrets" / "secret"
        secret.parent.mkdir(mode=0o700)
        secret.write_bytes(SECRET)
        for path in (secret.parent, secret):
            os.chown(path, SERVICE, READERS)
        try:
            with made.running():
                yield made
        finally:
            subprocess.run(["rm", "-rf", directory / "folders"], check=True)  # Python can't delete directories as deep as that


def attack(site, code, name):
    """Run code as the attacker in a folder."""
    tts = site.config.archive.root
    names = {"secret": f"{site.directory}/state/secrets/secret", "private": f"{site.directory}/run/private", "tts": str(tts)}
    lines = ["import gzip, os, time", *(f"{key} = {value!r}" for key, value in names.items())]
    lines += [f"header = {df({}).splitlines()[0].encode() + chr(10).encode()!r}", f"os.chdir({str(site.directory / 'folders' / name)!r})"]
    done = ATTACKER.python("\n".join([*lines, code]), timeout=300)
    assert done.returncode == 0, done.stderr


def processes(site):
    """Return the names of the daemon's processes by their ids."""
    pong = json.loads(site.run("root", "tokioctl", "ping", "--json").stdout)
    return {process["pid"]: process["name"] for process in pong["processes"]}


def peak_mib(pid):
    return int(re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())[1]) / 1024


def collected(site):
    """Return the folders of which a file was collected."""
    told = site.run("root", "tokioctl", "status", "--json").stdout
    return set(re.findall(rf"[1-9]\d* files of {site.directory}/folders/(\w+) collected", told))


def test_no_file_that_a_user_puts_into_a_folder_overwrites_reads_or_stops_anything(site):
    secrets = site.directory / "state" / "secrets"
    before = {path.name: (path.read_bytes(), path.stat().st_ino, path.stat().st_mtime_ns) for path in secrets.iterdir()}
    running, pids = (site.directory / "run/private/running.toml").read_bytes(), processes(site)
    for name, code in ATTACKS.items():
        attack(site, code, name)
    for name in ATTACKS:
        attack(site, f"open('.good', 'w').write({GOOD!r})\nos.rename('.good', 'good')", name)
    wait_for(lambda: collected(site) == set(ATTACKS), 300, f"not every folder's good file was collected: {site.log}")
    wait_for(site.is_complete, 90, "the other source was delayed")

    # Overwritten: no file of the daemon, and nothing was moved or made where a link pointed to.
    assert {path.name: (path.read_bytes(), path.stat().st_ino, path.stat().st_mtime_ns) for path in secrets.iterdir()} == before
    assert (site.directory / "run/private/running.toml").read_bytes() == running
    assert {path.name for path in site.config.archive.root.iterdir()} == {"2018-01-28", "2018-01-29", ".tokiod", ".tokiod-readers"}
    for path in site.config.archive.files():
        with h5py.File(path, "r", locking=False) as file:
            assert form_of(file) in {"live", "sealed"}
    # Read: nothing that is outside of the folders is in them now, or in the log.
    command = ["find", site.directory / "folders", "-type", "f", "-size", f"{len(SECRET)}c"]
    assert subprocess.run(command, capture_output=True, check=True).stdout == b""
    assert SECRET.strip() not in site.log.read_bytes()
    # Grown: what costs time or memory was rejected, in one attempt.
    rejected = {path.name for path in (site.directory / "folders/bombs/rejected").iterdir()}
    assert {"line.gz", "line.gz.reason", "sparse", "sparse.reason"} <= rejected
    # Stopped: the same processes as before, none of which took more memory than without an attack.
    assert processes(site) == pids
    assert {name: peak_mib(pid) < MAX_MIB for pid, name in pids.items()} == dict.fromkeys(pids.values(), True)
    # Imported from the directory that the daemon was started in: nothing.
    assert not (site.directory / "own" / "imported").exists()
    # Shown: no escape of a name.
    assert b"\x1b" not in site.log.read_bytes() + site.run("root", "tokioctl", "status").stdout.encode()
