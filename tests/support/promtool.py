"""promtool out of Debian's package prometheus, which is not installed: that would start a server. Standard library only.

promtool.py fetch    puts it into the cache of the tests, and says what is missing where that can't be done
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from maven import Unavailable, cache

PACKAGE = "prometheus"
SECONDS = 300


def promtool():
    """Return its path, fetched unless it is installed or in the cache; raises Unavailable."""
    if (installed := shutil.which("promtool")) is not None:
        return Path(installed)
    place = cache() / "promtool"
    if not place.is_file():
        if not all(map(shutil.which, ("apt-get", "dpkg-deb"))):
            raise Unavailable(f"promtool is not installed, and there is no apt-get: it is in Debian's package {PACKAGE}")
        cache().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="fetching-", dir=cache()) as directory:
            unpacked(Path(directory)).replace(place)
    return place


def unpacked(directory):
    """Fetch the package into a directory and return the path of the one program in it that is wanted."""
    if run(["apt-get", "-qq", "download", PACKAGE], directory).returncode:
        if os.geteuid() == 0:
            run(["apt-get", "-qq", "update"], directory)
        if (again := run(["apt-get", "-qq", "download", PACKAGE], directory)).returncode:
            raise Unavailable(f"apt-get can't fetch {PACKAGE}: {(again.stderr.splitlines() or ['it does not say why'])[-1]}")
    (package,) = directory.glob("*.deb")
    if (done := run(["dpkg-deb", "--extract", package.name, "."], directory)).returncode:
        raise Unavailable(f"dpkg-deb can't unpack {package.name}: {done.stderr.strip()}")
    return directory / "usr" / "bin" / "promtool"


def run(command, directory):
    try:
        return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{command[0]} had not finished after {SECONDS} s") from None


if __name__ == "__main__":
    try:
        promtool()
    except Unavailable as error:
        print(f"{error}; the tests that need it will skip", file=sys.stderr)
