"""What sinks/elasticsearch stored in a server: its documents, and the cells in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from search_client import SearchClient

SORT = [{"@timestamp": "asc"}, {"component": "asc"}, {"group": "asc"}]
META = {"@timestamp", "system", "group", "component", "step", "revision"}
AT_ONCE = 5000


def documents(server: SearchClient, index: str) -> Iterator[dict[str, Any]]:
    """Yield all documents of the indices of a name, oldest first."""
    server.ask("POST", f"/{index}/_refresh?allow_no_indices=true")
    after: list[Any] = []
    while True:
        body = {"size": AT_ONCE, "sort": SORT} | ({"search_after": after} if after else {})
        hits = server.ask("POST", f"/{index}/_search?allow_no_indices=true", body)["hits"]["hits"]
        if not hits:
            return
        yield from (one["_source"] for one in hits)
        after = hits[-1]["sort"]


def metrics(document: dict[str, Any]) -> dict[str, float]:
    """Return the cells of a document by the names of their logical datasets."""
    return {f"{document['group']}/{name}": document[name] for name in document.keys() - META}
