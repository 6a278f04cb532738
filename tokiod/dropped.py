"""Why records of a source gave no cell and no row: counted by reason, each with one example and with what helps.

A reason is a stable phrase without data ("no host"), because it is a key in the ledger, in logs and in `--json`. The example shows the
data: escaped, at most EXAMPLE_LENGTH characters. The remedy names the option or the command that helps, as a part of a sentence:
"set host_field", "save it without -h".
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Annotated

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

EXAMPLE_LENGTH = 80


class Why(msgspec.Struct, frozen=True):
    """An example of what was dropped for a reason, printable, and the remedy; empty where none is known."""

    example: Annotated[str, msgspec.Meta(max_length=EXAMPLE_LENGTH)] = ""
    remedy: Annotated[str, msgspec.Meta(max_length=200)] = ""

    def __str__(self) -> str:
        example = f', for example "{self.example}"' if self.example else ""
        return example + (f" ({self.remedy})" if self.remedy else "")


class Dropped:
    """Records that gave no cell, by reason. counts: how many; why: the first example and remedy of each reason that has them."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.why: dict[str, Why] = {}

    def add(self, reason: str, count: int = 1, example: str | bytes = "", remedy: str = "") -> None:
        """Count records of a reason. example: one of them as it was read; of several calls the first with an example is kept."""
        if not count:
            return
        self.counts[reason] += count
        if (example or remedy) and not self.why.get(reason, Why()).example:
            self.why[reason] = Why(escaped(example), remedy)

    def take(self, other: Dropped) -> None:
        """Add what another part of the input dropped."""
        self.note(other.counts, other.why)

    def note(self, counts: Mapping[str, int], why: Mapping[str, Why] | None = None) -> None:
        """Add counts by reason, and what is known of the reasons."""
        self.counts.update(counts)
        self.why = {**(why or {}), **self.why}


def escaped(data: str | bytes) -> str:
    """Return data as printable ASCII on one line, at most EXAMPLE_LENGTH characters."""
    length = EXAMPLE_LENGTH + 1
    text = data[:length].decode("latin-1") if isinstance(data, bytes) else data[:length]
    shown = text.encode("unicode_escape").decode("ascii")
    return shown if len(shown) <= EXAMPLE_LENGTH and len(data) < length else shown[: EXAMPLE_LENGTH - 3] + "..."


def shape(data: bytes) -> str:
    """Return text as an example without names: an a for each letter and each other byte, a 0 for each digit, and the marks as they are."""
    return re.sub(r"[^\W\d_]|[^ -~]", "a", re.sub(r"[0-9]", "0", data.decode("latin-1")))


def sentence(counts: Mapping[str, int], why: Mapping[str, Why], kept: int) -> str:
    """Return what was dropped and what helps, for a person; empty if nothing was.

    kept: cells and rows that the same input gave. If it gave none and all was dropped for one reason, the sentence says that reason first.
    """
    by_count = sorted(counts.items(), key=lambda one: -one[1])
    parts = [f"{count} x {reason}{why.get(reason, Why())}" for reason, count in by_count if count]
    if not parts:
        return ""
    if not kept and len(parts) == 1:
        return f"nothing could be read: {parts[0]}"
    return ("nothing could be read, dropped: " if not kept else "dropped: ") + "; ".join(parts)


def lines(counts: Mapping[str, int], why: Mapping[str, Why]) -> list[str]:
    """Return a line for each reason, for a person."""
    return [f"dropped {count}: {reason}{why.get(reason, Why())}" for reason, count in sorted(counts.items())]
