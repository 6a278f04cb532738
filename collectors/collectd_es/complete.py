"""Whether answers are complete: a status of 200 alone does not mean that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokiod.errors import Transient

if TYPE_CHECKING:
    from collectors.collectd_es.parse import Answer
    from collectors.collectd_es.parse_hits import Shards


class Incomplete(Transient):
    """An answer, or all of them together, is incomplete."""


def check_whole(answer: Answer[Any]) -> None:
    """Raise Incomplete unless every shard answered in full; status 200 alone does not mean that."""
    if answer.timed_out:
        raise Incomplete("the search timed out on the server: its results are incomplete")
    if answer.terminated_early:
        raise Incomplete("the server ended the search early: its results are incomplete")
    if answer.shards is None:
        raise Incomplete("the answer does not report its shards")
    check_shards(answer.shards)


def check_shards(shards: Shards) -> None:
    """Raise Incomplete unless every shard answered; servers count missing shards as failed, or not at all."""
    if shards.failed or shards.successful < shards.total:
        raise Incomplete(f"only {shards.successful} of {shards.total} shards answered: documents are missing")


def check_all_read(read: int, total: int | None) -> None:
    """Raise Incomplete unless all documents that the server found were read."""
    if total is not None and read != total:
        raise Incomplete(f"read {read} documents of {total} that the server found")
