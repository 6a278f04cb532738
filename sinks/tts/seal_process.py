"""`python -m sinks.tts.seal_process PARENT LIVE TEMPORARY UPDATED`: write the sealed form of a live file, at the lowest priority.

A process and not a thread: a thread without a processor keeps Python's lock and HDF5's, and on a busy machine windows would wait with it.
It only reads the live file; a window that is stored meanwhile makes the writer discard the result. An error is a line on stderr,
`[errno, text]`, and exit 1. It ends with its parent.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from tokiod.runtime.process_setup import die_with_parent, keep_freed_memory, python_command, restrict_rights
from tokiod.tts.live.files import REAL
from tokiod.tts.live.live_file import LiveFile
from tokiod.tts.sealed.seal import SealingFailed, write_sealed

if TYPE_CHECKING:
    from tokiod.tts.live.create import Pause
    from tokiod.tts.live.files import Files

PAUSE_SECONDS = 0.005
"""Between two pieces of work, so that the windows get the disk."""
WATCH_SECONDS = 0.05
LOWEST_PRIORITY = 19


def write_sealed_apart(live: LiveFile, path: Path, updated: int, _files: Files, pause: Pause) -> None:
    """Write a live file's sealed form to exactly this path in another process, and wait for it. pause may raise: that ends the process.

    Raises as write_sealed(); OSError too where the process can't be started or is killed.
    """
    line = python_command("sinks.tts.seal_process", str(os.getpid()), str(live.path), str(path), str(updated))
    # The writer has no event loop, and the process ends with it.
    with subprocess.Popen(  # noqa: TID251, S603
        line, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            while True:
                pause()
                try:
                    _, said = process.communicate(timeout=WATCH_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    continue
        finally:
            process.kill()
    if process.returncode:
        raise _failure(said, process.returncode, path)


def _failure(said: str, status: int, path: Path) -> OSError:
    last = said.strip().rpartition("\n")[2]
    try:
        code, text = json.loads(last)
    except ValueError:
        code, text = errno.EIO, last or f"the process that seals ended with {status}"
    return SealingFailed(code, text, str(path))


def main() -> None:
    """Write the sealed file. Raises SystemExit with the error."""
    parent, live, temporary, updated = sys.argv[1:]
    die_with_parent(int(parent))
    restrict_rights()
    keep_freed_memory(32)
    os.setpriority(os.PRIO_PROCESS, 0, LOWEST_PRIORITY)
    try:
        with closing(LiveFile.open(Path(live))) as source:
            write_sealed(source, Path(temporary), int(updated), REAL, lambda: threading.Event().wait(PAUSE_SECONDS))
    except Exception as error:  # noqa: BLE001 - HDF5 raises anything for a damaged file
        code = getattr(error, "errno", None) or errno.EIO
        raise SystemExit(json.dumps([code, getattr(error, "strerror", None) or " ".join(f"{error}".split())])) from None


if __name__ == "__main__":
    main()
