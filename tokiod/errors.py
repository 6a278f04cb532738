"""The exceptions that packages raise to each other.

TokiodError            a sentence for a person: what is wrong, where, and what to do
├── ConfigError        the configuration: all errors at once, each with its location
├── CollectError       one attempt at a window failed
│   ├── Transient      collect again, later and later (a server is down, busy, restarting)
│   │   └── NotYet     the source has not got that far; collecting again is the normal course
│   └── Fatal          collecting again doesn't help until a person acts (no permission, no such table)
├── NoPermission       a user may not read the archive
├── Refusal            a window can't be stored now, for the moment, or ever
└── Malformed          a message or a batch that contradicts itself or its format
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

When = Literal["busy", "retry", "never"]
"""When a refused window may be collected again.

busy: in a moment; nothing is wrong, the file that the window needs is being created, grown or opened. retry: when the cause is gone, such
as a full disk. never: the window contradicts what is stored.
"""


class TokiodError(Exception):
    """An error that a person can understand and act on; users see only its text."""


class ConfigError(TokiodError):
    """The configuration is wrong. `faults` holds every error as one line with its location."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


class NoPermission(TokiodError, PermissionError):  # noqa: N818 - a state, not a fault
    """A user may not read the archive at a path."""

    def __init__(self, path: object) -> None:
        super().__init__(
            f"no permission to read the archive {path}: join the group tokiod-readers, "
            "or run this as the daemon's user: `runuser -u tokiod -- COMMAND` (docs/security.md)"
        )


class CollectError(TokiodError):
    """One attempt at a window failed; the subclass states whether another attempt can help."""


class Transient(CollectError):  # noqa: N818 - the field says "transient", not "transient error"
    """Collect again, later and later.

    ended_at: the epoch second at which the source seems to end, and what it has before is complete: a backfill goes no farther.
    """

    def __init__(self, message: str, ended_at: int | None = None) -> None:
        super().__init__(message)
        self.ended_at = ended_at


class NotYet(Transient):
    """The source has not got that far yet. With ended_at, it has not gone on for long."""


class Fatal(CollectError):  # noqa: N818 - as above
    """Collecting again doesn't help until a person has changed something."""


class Malformed(TokiodError):  # noqa: N818 - as above
    """A message or batch that contradicts itself or its format. `reason` is a short stable word for counting."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason


class Refusal(TokiodError):  # noqa: N818 - the field says "refusal"
    """A window is not stored: raised by a sink, sent by the writer, received by the process that collected the window."""

    def __init__(self, message: str, when: When) -> None:
        super().__init__(message)
        self.message = message
        self.when = when


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ", did you mean X?" for the most similar known name, or an empty string."""
    found = difflib.get_close_matches(name, list(known), n=1)
    return f", did you mean {found[0]}?" if found else ""
