"""What the ledger records of the configured sources."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tokiod.collector import SourceConfig
    from tokiod.ledger.ledger import Ledger, SourceRow


def known_sources(sources: Iterable[SourceConfig], ledger: Ledger) -> dict[str, SourceRow]:
    """Return the status of each source that the ledger knows, by name.

    Not of a source that has another system now: the files of that one hold nothing of what it stored, and the daemon forgets it at its next
    start, or reload. So nothing that the ledger records under the name may be reported until then.
    """
    systems = {source.name: source.system for source in sources}
    return {row.name: row for row in ledger.sources() if systems.get(row.name) == row.system}
