"""Examples at the end of a command's help, and of its manual page."""

from __future__ import annotations

HEADING = "Examples:"


def examples(*lines: str) -> str:
    """Return the epilog of a command: each example on a line of its own, which click does not fold."""
    return "\b\n" + "\n".join([HEADING, *(f"  {line}" for line in lines)])
