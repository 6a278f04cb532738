"""structlog without rich, which it imports for coloured tracebacks: 0.12 s of each process's start, and no process prints any."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def _hidden(name: str) -> Iterator[None]:
    """Make an import of a package fail; one that is imported already stays as it is."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment] # so the import system marks a package that can't be imported
    try:
        yield
    finally:
        del sys.modules[name]


with _hidden("rich"):
    import structlog

__all__ = ["structlog"]
