"""Find a Java that can run Elasticsearch and OpenSearch. Standard library only."""

import os
import re
import shutil
from pathlib import Path

from maven import Unavailable

JAVA = range(17, 24)
"""Older versions can't run Elasticsearch 8; from 24 on there is no security manager, which both servers require."""


def java_home():
    """Return the home of a Java that can run both; raises Unavailable."""
    named = [os.environ[name] for name in ("ES_JAVA_HOME", "JAVA_HOME") if os.environ.get(name)]
    found = [str(Path(java).resolve().parents[1])] if (java := shutil.which("java")) else []
    for home in map(Path, [*named, *found, *sorted(map(str, Path("/usr/lib/jvm").glob("*")))]):
        release = home / "release"
        if release.is_file() and (version := re.search(r'JAVA_VERSION="(\d+)', release.read_text())) and int(version[1]) in JAVA:
            return home
    raise Unavailable(f"no Java {JAVA.start} to {JAVA.stop - 1} is installed: apt-get install default-jre-headless")
