"""Fetch artifacts of Maven Central with mvn, once: they stay in a cache outside the repository. Standard library only."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:"
SECONDS = 600


SHA256 = {
    "elasticsearch-8.19.4.zip": "553088b4c0f60f04d7c63da609aaeae372c483159f4fb8013599e91233aab0de",
    "opensearch-2.19.1.zip": "af7152d8b7f6f1cee09d47276b32b70479fe6dd8cdbb61213f84eb7f8098b261",
    "kafka-4.1.0": "82a3231384edc4fadb16579cd6073b830d56c29ba3c0ad63eeeed30ce013786f",
}
"""Of what the tests execute: Maven checks what it receives only against sums from the same place.

Of a folder: of the lines that sha256sum prints for its files.
"""

PROJECT = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>tokiod</groupId><artifactId>tests</artifactId><version>1</version><packaging>pom</packaging><dependencies>{}</dependencies></project>
"""
DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"


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
        _check(Path(directory) / place.name)
        (Path(directory) / place.name).replace(place)
    return place


def fetch_with_dependencies(name, artifacts):
    """Return the path of a folder of jars, of artifacts "group:name:version" and all that they depend on. As fetch()."""
    place = cache() / name
    if place.is_dir():
        return place
    if shutil.which("mvn") is None:
        raise Unavailable(f"{name} comes from Maven Central and mvn is not installed: apt-get install maven")
    cache().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fetching-", dir=cache()) as directory:
        made = Path(directory) / name
        (Path(directory) / "pom.xml").write_text(PROJECT.format("".join(DEPENDENCY.format(*one.split(":")) for one in artifacts)))
        _run("copy-dependencies", [f"-DoutputDirectory={made}"], directory, name)
        _compare(name, _digest_of_folder(made))
        # Another run may have been faster; a folder with files is not replaced.
        with suppress(OSError):
            made.rename(place)
    return place


def _digest_of_folder(folder):
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(folder.iterdir())]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _check(path):
    with path.open("rb") as file:
        _compare(path.name, hashlib.file_digest(file, "sha256").hexdigest())


def _compare(name, found):
    if found != (expected := SHA256.get(name)):
        raise Unavailable(f"{name} has the SHA-256 {found}, expected {expected}")


def _copy(artifact, directory):
    _run("copy", [f"-Dartifact={artifact}", f"-DoutputDirectory={directory}"], directory, artifact)


def _run(goal, arguments, directory, what):
    command = ["mvn", "--batch-mode", "--quiet", f"{PLUGIN}{goal}", *arguments]
    try:
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"mvn has not fetched {what} after {SECONDS} s") from None
    if done.returncode:
        reason = next((line.partition("[ERROR] ")[2] for line in done.stdout.splitlines() if "[ERROR]" in line), "it does not say why")
        raise Unavailable(f"mvn can't fetch {what}: {reason}")
