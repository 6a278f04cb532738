"""axe-core from npm, which finds faults of accessibility in a page. Standard library only.

axe.py fetch    puts it into the cache of the tests, and says what is missing where that can't be done
"""

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from maven import Unavailable, cache
from unpacked import unpack

VERSION = "4.14.1"
SHA256 = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"
"""Of axe.min.js, which the tests execute."""
SECONDS = 300


def axe():
    """Return its source, fetched unless it is in the cache; raises Unavailable."""
    place = cache() / f"axe-core-{VERSION}.js"
    if not place.is_file():
        if shutil.which("npm") is None:
            raise Unavailable("axe-core comes from npm, which is not installed: apt-get install npm")
        cache().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="fetching-", dir=cache()) as directory:
            checked(fetched(Path(directory))).replace(place)
    return place.read_text("utf-8")


def fetched(directory):
    try:
        command = ["npm", "pack", f"axe-core@{VERSION}", "--silent"]
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"npm had not fetched axe-core after {SECONDS} s") from None
    if done.returncode:
        raise Unavailable(f"npm can't fetch axe-core: {(done.stderr.splitlines() or ['it does not say why'])[-1]}")
    (package,) = directory.glob("*.tgz")
    unpack(package, directory, "package/axe.min.js")
    return directory / "package" / "axe.min.js"


def checked(path):
    if (found := hashlib.sha256(path.read_bytes()).hexdigest()) != SHA256:
        raise Unavailable(f"axe-core {VERSION} has the SHA-256 {found}, expected {SHA256}")
    return path


if __name__ == "__main__":
    try:
        axe()
    except Unavailable as error:
        print(f"{error}; the tests that need it will skip", file=sys.stderr)
