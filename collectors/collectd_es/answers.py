"""Is this answer all of it? What a server says that is no answer, as an error of the right class."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from tokiod.errors import CollectError, Fatal, Transient

if TYPE_CHECKING:
    from collectors.collectd_es.documents import Answer
    from collectors.collectd_es.hits import Shards

NOT_ALLOWED = {401, 403}
NOT_FOUND = 404
BUSY = {408, 429}
BROKEN = 500
_BUSY = re.compile(r"too many|rejected_execution|circuit_breaking", re.IGNORECASE)
_LONGEST = 300
NO_JSON = "and no JSON"


class ContextGone(Transient):
    """The server does not have the scroll or point in time any more."""


class NoIndex(Fatal):
    """There is no index of that name, or none that a wildcard matches."""


class Incomplete(Transient):
    """An answer, or all of them together, that is not all there is."""


def check_whole(answer: Answer) -> None:
    """Raise Incomplete unless every shard answered in full; status 200 alone says nothing."""
    if answer.timed_out:
        raise Incomplete("the search ran out of time on the server: what it had found by then is not all")
    if answer.terminated_early:
        raise Incomplete("the search was ended early by the server: what it had found by then is not all")
    if answer.shards is None:
        raise Incomplete("the answer does not say which shards it is from")
    check_shards(answer.shards)


def check_shards(shards: Shards) -> None:
    """Raise Incomplete unless every shard answered; servers count those that are gone as failed, or don't count them at all."""
    if shards.failed or shards.successful < shards.total:
        raise Incomplete(f"only {shards.successful} of {shards.total} shards answered: the rest of the documents is elsewhere")


def check_all_read(read: int, total: int | None) -> None:
    """Raise Incomplete unless as many documents were read as the server had found."""
    if total is not None and read != total:
        raise Incomplete(f"{read} documents came of {total} that the server had found")


def refused(status: int, body: bytes, server: str, pattern: str, user: str) -> CollectError:
    """Return the error that a status which is not 200 means. pattern: the indices that were asked; user: who asked, "" for nobody."""
    said = f"{server}: {reason(status, body)}"
    if b"search_context_missing_exception" in body:
        return ContextGone(said)
    if status in NOT_ALLOWED:
        who = f"as {user}: check the user and its password" if user else "without a user: set user and password_file"
        return Fatal(f"{said}; we came {who}, and it must be allowed to read {pattern}")
    # No fields of no indices is what a wildcard without a match has for a mapping.
    if status == NOT_FOUND and (b"index_not_found_exception" in body or body.strip() == b"{}"):
        return NoIndex(f"{said}; there is no index and no alias {pattern}: check index")
    if status in BUSY or status >= BROKEN or _BUSY.search(said) or NO_JSON in said:
        return Transient(said)
    return Fatal(f"{said}; that was about {pattern}")


def reason(status: int, body: bytes) -> str:
    """Return what a server says of an error, in one line; the innermost cause, which says most."""
    try:
        error = msgspec.json.decode(body)["error"]
        causes = list(_causes(error)) if isinstance(error, dict) else [str(error)]
    except (msgspec.DecodeError, KeyError, TypeError, UnicodeDecodeError):
        return f"HTTP status {status} {NO_JSON}: is there something else between us and the server?"
    return f"HTTP status {status}: {'; '.join(dict.fromkeys(causes))}"[:_LONGEST].replace("\n", " ")


def _causes(error: dict[str, Any]) -> Any:
    yield f"{error.get('type')}: {error.get('reason')}"
    inner = [failure.get("reason") for failure in error.get("failed_shards") or []]
    for cause in [*(error.get("root_cause") or [])[:2], *inner[:2], error.get("caused_by")]:
        if isinstance(cause, dict) and cause.get("reason") != error.get("reason"):
            yield f"{cause.get('type')}: {cause.get('reason')}"
