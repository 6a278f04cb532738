"""Landlock on this machine's kernel, as a process without privileges meets it."""

import ast
import subprocess
import sys
import tempfile

import pytest

RESTRICTED = """
import os, subprocess, sys, time
from pathlib import Path
from tokiod.runtime.landlock import restrict_files
place = Path(sys.argv[1])
if os.geteuid() == 0:
    os.chown(place, 65534, 65534)
    os.setgid(65534)
    os.setuid(65534)
def outcome(attempt):
    try:
        return attempt()
    except OSError as error:
        return error.strerror
mine, other = place / "mine", place / "other"
mine.mkdir()
other.mkdir()
(mine / "file").write_text("x")
(other / "file").write_text("x")
with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env={"PASSWORD": "planted"}) as other_process:
    # Empty or denied until the kernel has set up the memory of the new program.
    while (before := outcome(lambda: Path(f"/proc/{other_process.pid}/environ").read_bytes())) != b"PASSWORD=planted\\0":
        time.sleep(0.01)
    reason = restrict_files([other / "file", Path("/proc"), place / "missing"], [mine])
    print((reason, before, {
        "read": outcome((other / "file").read_text),
        "append": outcome(lambda: (other / "file").open("a").close()),
        "rename": outcome(lambda: (mine / "file").rename(other / "renamed")),
        "write": outcome(lambda: (mine / "new").write_text("xy")),
        "environment": outcome(Path(f"/proc/{other_process.pid}/environ").read_bytes),
        "program": outcome(lambda: os.posix_spawn("/bin/true", ["true"], {})),
        "again": restrict_files([], []),
        "at last": outcome((mine / "new").read_text),
    }))
"""


def test_a_process_keeps_only_the_files_that_it_names():
    # Not pytest's directory, which other users can't reach.
    with tempfile.TemporaryDirectory(prefix="tokiod-") as place:
        done = subprocess.run([sys.executable, "-c", RESTRICTED, place], check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    reason, before, found = ast.literal_eval(done.stdout)
    if reason:
        pytest.skip(f"this machine has no Landlock: {reason}")
    assert before == b"PASSWORD=planted\0"
    assert found.pop("rename") in {"Permission denied", "Invalid cross-device link"}
    denied = dict.fromkeys(("append", "environment", "program", "at last"), "Permission denied")
    assert found == denied | {"read": "x", "write": 2, "again": ""}
