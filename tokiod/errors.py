"""The exceptions that cross a seam.

TokiodError            a sentence for a person: what is wrong, where, and the way out
├── ConfigError        the configuration: every fault at once, each with its place
├── CollectError       one attempt at a window failed
│   ├── Transient      ask again, later and later (a server that is gone, busy, restarting)
│   │   └── NotYet     the source has not got that far; asking again is the normal course
│   └── Fatal          asking again can't help; wait for a person (no permission, no such table)
├── Refusal            a window can't be stored now, for the moment, or ever
└── Malformed          a message or a batch that can't be what it says it is
"""

from __future__ import annotations

from typing import Literal

When = Literal["busy", "retry", "never"]
"""When a refused window may be collected again.

busy: in a moment; nothing is wrong, the file that the window needs is being created, grown or opened. retry: when the cause is gone, such
as a full disk. never: the window contradicts what is stored.
"""


class TokiodError(Exception):
    """A fault that a person can understand and act on; its text is all they see."""


class ConfigError(TokiodError):
    """The configuration is wrong. `faults` holds every fault as one line with its place."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


class CollectError(TokiodError):
    """One attempt at a window failed; the subclass says whether asking again can help."""


class Transient(CollectError):  # noqa: N818 - the field says "transient", not "transient error"
    """Ask again, later and later."""


class NotYet(Transient):
    """The source has not got that far yet."""


class Fatal(CollectError):  # noqa: N818 - as above
    """Asking again can't help until a person has changed something."""


class Malformed(TokiodError):  # noqa: N818 - as above
    """A message or batch that can't be what it says. `reason` is a short stable word for counting."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason


class Refusal(TokiodError):  # noqa: N818 - the field says "refusal"
    """A window is not stored: raised by a sink, sent by the writer, received by the process that collected the window."""

    def __init__(self, message: str, when: When) -> None:
        super().__init__(message)
        self.message = message
        self.when = when
