"""The exceptions that cross a seam.

TokiodError            a sentence for a person: what is wrong, where, and the way out
├── ConfigError        the configuration: every fault at once, each with its place
├── CollectError       one attempt at a window failed
│   ├── Transient      ask again, later and later (a server that is gone, busy, restarting)
│   │   └── NotYet     the source has not got that far; asking again is the normal course
│   └── Fatal          asking again can't help; wait for a person (no permission, no such table)
└── Malformed          a message or a batch that can't be what it says it is
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
