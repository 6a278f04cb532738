"""Fetch artifacts of Maven Central with mvn, once: they stay in a cache outside the repository. Standard library only."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
SECONDS = 600


class Unavailable(Exception):  # noqa: N818 - the word that a skipped test shows
    """Something that tests need is missing and can't be fetched; the text names it and how to get it."""


def cache():
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tokiod-tests"


def fetch(artifact):
    """Return the path of an artifact "group:name:version:packaging", fetched unless it is in the cache; raises Unavailable.

    It gets its name in the cache only when it is complete, so a kill, a full disk or a second run at the same time leave no partial file.
    """
    _, name, version, packaging = artifact.split(":")
    place = cache() / f"{name}-{version}.{packaging}"
    if place.is_file():
        return place
    if shutil.which("mvn") is None:
        raise Unavailable(f"{place.name} comes from Maven Central and mvn is not installed: apt-get install maven")
    cache().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fetching-", dir=cache()) as directory:
        _copy(artifact, directory)
        (Path(directory) / place.name).replace(place)
    return place


def _copy(artifact, directory):
    command = ["mvn", "--batch-mode", "--quiet", PLUGIN, f"-Dartifact={artifact}", f"-DoutputDirectory={directory}"]
    try:
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"mvn had not fetched {artifact} after {SECONDS} s") from None
    if done.returncode:
        reason = next((line.partition("[ERROR] ")[2] for line in done.stdout.splitlines() if "[ERROR]" in line), "it does not say why")
        raise Unavailable(f"mvn can't fetch {artifact}: {reason}")
