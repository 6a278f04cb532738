"""File operations of a tortured writer that fail for seconds, a few of each kind: the sync of a directory among them.

Unlike a disk that fails (torture_disk.py), they fail one at a time: the next one may succeed, so a file can be written whose directory
can't be synced, or renamed and not opened again.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tortured import Tortured

FAILING = """\
if "writer" in sys.orig_argv:
    import random
    from tokiod.tts.live.files import Files

    def failing(name, operation):
        def method(files, *arguments):
            fails = os.path.exists("{flag}") and random.random() < {share}
            if name == "close" or not fails:
                done = operation(files, *arguments)
            if fails:
                with open("{record}", "a") as record:
                    record.write(name + "\\n")
                code = random.choice({codes})
                raise OSError(code, os.strerror(code), "a torture")
            return done
        return method

    for name, operation in list(vars(Files).items()):
        if callable(operation) and not name.startswith("_"):
            setattr(Files, name, failing(name, operation))
"""
"""Code that a process executes at its start, in which `os` and `sys` are imported."""
SHARE = 1 / 10
"""Of the operations, that fail."""
CODES = (5, 28, 116)
"""EIO, ENOSPC, ESTALE."""


def flag(directory: Path) -> Path:
    """Return the file that lets operations fail while it exists."""
    return directory / "failing"


def record(directory: Path) -> Path:
    """Return the file with the names of the operations that failed."""
    return directory / "failed-operations"


def failing(directory: Path) -> str:
    """Return the code that lets operations of a writer fail."""
    return FAILING.format(flag=flag(directory), record=record(directory), share=SHARE, codes=CODES)


def fail_operations(tortured: Tortured) -> None:
    """File operations of the writer fail for seconds; it may die meanwhile.

    What was quarantined and can't be copied is collected again. A day that no source holds any more is renamed back, as docs/operations.md
    tells a person to do: the file set aside must have every cell.
    """
    scene = tortured.scene
    known = scene.log.stat().st_size
    flag(scene.directory).touch()
    tortured.pause(2, 6)
    if tortured.rng.random() < 1 / 3 and not scene.has_ended:
        scene.kill("writer")
        tortured.pause(1, 3)
    flag(scene.directory).unlink()
    time.sleep(1)  # the ledger forgets a file right after the log reports it
    with scene.log.open("rb") as log:
        log.seek(known)
        events = [json.loads(line) for line in log if b'"file.set_aside"' in line and line.endswith(b"}\n")]
    aside = {Path(event["path"]): Path(event["aside"]) for event in events if not event["salvaged"]}
    for path in aside:
        for source in (source for source in scene.sources if source.system == path.stem):
            tortured.destroyed(source, path)
    if past := aside.keys() & tortured.past.files.keys():
        tortured.down()
        for path in past:
            tortured.note(f"{aside[path]} is renamed back")
            aside[path].rename(path)
        scene.start_daemon()


FAULTS = (fail_operations,)


def failures(directory: Path) -> str:
    """Return how many operations of each kind failed, as a sentence."""
    counts = Counter(record(directory).read_text().split()) if record(directory).exists() else Counter[str]()
    return "failed operations: " + (", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none")
