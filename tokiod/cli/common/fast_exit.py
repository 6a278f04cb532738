"""The end of a command whose answer somebody waits for."""

from __future__ import annotations

import gc
import os
import sys
import threading
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable


OBJECTS = 50_000
"""Objects that are made between two looks for garbage; Python's own 700 mean dozens of looks while a command is imported."""


# An interpreter takes 200 modules apart before it ends: 20 to 30 of the 120 ms of a status that monitoring asks for every few seconds,
# and looking for garbage that isn't there takes 7.
def at_once(command: Callable[[], object]) -> NoReturn:
    """Run a command, and end the process as it ends: without taking the interpreter apart where nothing is left to be done.

    That is so when it ended in an exit code, its output could be written, and no other thread runs; whatever it opened, it has closed.
    """
    gc.set_threshold(OBJECTS)
    try:
        command()
    except SystemExit as end:
        code = 0 if end.code is None else end.code
        if isinstance(code, int) and threading.active_count() == 1 and _flushed():
            os._exit(code)
        raise
    sys.exit(0)


def _flushed() -> bool:
    """Whether all that was printed is written, or nobody reads it any more; a process that was given no stdout has none to write to."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except BrokenPipeError:
            continue
        except (OSError, ValueError):
            return False
    return True
