"""Count in a process of its own, as the daemon does, and in the test's process, undone afterwards."""

import os
import subprocess
import sys
from contextlib import contextmanager

from tokiod.config import load as configuration
from tokiod.metrics import catalogue, shared_files

CONFIG = """\
timezone = "UTC"
[archive]
path = "{directory}/tts/%Y-%m-%d/{{system}}.hdf5"
[bus]
endpoint = "ipc://{directory}/bus"
[feed]
endpoint = "ipc://{directory}/feed"
"""
METRICS = '[metrics]\naddress = "127.0.0.1:{port}"\n'
SOURCE = '[[source]]\nname = "{name}"\nkind = "lmt"\nsystem = "fs-{name}"\nurl = "sqlite:///none"\n'

PREAMBLE = """\
import os, signal, sys
from pathlib import Path
from types import SimpleNamespace
from tokiod.metrics import catalogue
sources = [SimpleNamespace(name=name) for name in sys.argv[3:]]
catalogue.start_counting(Path(sys.argv[1], "metrics"), sys.argv[2], sources)
"""


def configured(directory, *sources, port=9464):
    """Return a configuration, written to a file in a directory; port: None for no metrics."""
    (directory / "tts" / ".tokiod").mkdir(parents=True, exist_ok=True)
    text = CONFIG.format(directory=directory) + (METRICS.format(port=port) if port else "")
    (directory / "tokiod.toml").write_text(text + "".join(SOURCE.format(name=name) for name in sources))
    return configuration.load(directory / "tokiod.toml")


def process(directory, role, code):
    """Run code in a process that counts in a role, of the sources a and b. Reading the configuration is left out: it takes longest."""
    command = [sys.executable, "-c", PREAMBLE + code, str(directory), role, "a", "b"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def run(directory, role, code):
    """Run code in such a process to its end, and return what it prints."""
    with process(directory, role, code) as running:
        return running.communicate(timeout=150)[0]


def values(directory):
    """Return what all processes have counted, {(name, labels...): value}, but for what is zero and sums that a test can't know."""
    told = {}
    for family in shared_files.collect(directory / "metrics", catalogue.ROLES):
        for sample in family.samples:
            if sample.value:
                told[(sample.name, *_in_order(family.name, sample.labels))] = sample.value
    return told


def _in_order(name, labels):
    order = next((list(metric.labels) for metric in catalogue.ALL if metric.name.removesuffix("_total") == name), [])
    return [labels[label] for label in sorted(labels, key=[*order, "le"].index)]


@contextmanager
def counting_here(config, role):
    """Count in this process; nothing is counted afterwards."""
    before = os.environ.pop("PROMETHEUS_MULTIPROC_DIR", None)
    try:
        catalogue.start_counting(config.counters, role, config.source)
        yield
    finally:
        _forget()
        os.environ.pop("PROMETHEUS_MULTIPROC_DIR", None)
        os.environ |= {} if before is None else {"PROMETHEUS_MULTIPROC_DIR": before}


def _forget():
    for metric in catalogue.ALL:
        for cell in metric._cells.values():
            for value in [getattr(cell, "_value", None), getattr(cell, "_sum", None), *getattr(cell, "_buckets", [])]:
                if value is not None:
                    value._file.close()
        metric._cells, metric._parent = {}, None
    while catalogue._roles:
        catalogue._roles.pop().__exit__()
