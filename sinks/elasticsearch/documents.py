"""Rows to documents: one for each component and time, with all metrics of its group.

Its id is a hash of system, group, component and time, its version the revision of the rows. A component without any cell at a time has no
document: it is deleted with that version, so that older rows which arrive later are refused.
"""

from __future__ import annotations

import datetime as dt
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from tokiod.tts.schema import group_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tokiod.change_sink import Block

ID_BYTES = 15


@dataclass(frozen=True, slots=True)
class Action:
    """An action of a bulk request: its lines, and what is needed if it is rejected. body: empty for a deletion."""

    index: str
    id: str
    head: bytes
    body: bytes

    @property
    def nbytes(self) -> int:
        """Bytes of the action in a request."""
        return len(self.head) + len(self.body)


def index_of(prefix: str, system: str, time: int) -> str:
    """Return the index of an epoch second."""
    return f"{prefix}-{system.lower()}-{dt.datetime.fromtimestamp(time, dt.UTC):%Y.%m}"


def id_of(system: str, group: str, component: str, time: int) -> str:
    """Return the id of a document."""
    return urlsafe_b64encode(blake2b(f"{system}\0{group}\0{component}\0{time}".encode(), digest_size=ID_BYTES).digest()).decode()


def groups(blocks: Sequence[Block]) -> dict[str, list[Block]]:
    """Return the blocks by the group of their datasets."""
    found: dict[str, list[Block]] = {}
    for block in blocks:
        found.setdefault(group_of(block.dataset), []).append(block)
    return found


def actions(prefix: str, group: str, blocks: Sequence[Block], components: Sequence[str]) -> Iterator[Action]:
    """Yield the actions of the datasets of a group, which have the same rows. components: all that may have a document."""
    first, encoder = blocks[0], msgspec.json.Encoder()
    version = b',"version":%d,"version_type":"external_gte"}}\n' % first.revision
    cells = [_columns(block, components) for block in blocks]
    names = [block.dataset.partition("/")[2] for block in blocks]
    fixed = {"system": first.system, "group": group, "step": first.step, "revision": first.revision}
    for row, time in enumerate(first.times.tolist()):
        index = index_of(prefix, first.system, time)
        values = [one[row].tolist() for one in cells]
        for place, component in enumerate(components):
            found = {name: one[place] for name, one in zip(names, values, strict=True) if one[place] == one[place]}
            key = id_of(first.system, group, component, time)
            operation = b"index" if found else b"delete"
            head = b'{"%s":{"_index":%s,"_id":"%s"%s' % (operation, encoder.encode(index), key.encode(), version)
            body = encoder.encode({"@timestamp": time, **fixed, "component": component, **found}) + b"\n" if found else b""
            yield Action(index, key, head, body)


def _columns(block: Block, components: Sequence[str]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Return the values with a column for each component, NaN for those that the block lacks."""
    places = {name: i for i, name in enumerate(block.columns)}
    numbers = np.array([places.get(name, -1) for name in components], np.intp)
    if not block.columns:
        return np.full((block.rows, len(components)), np.nan)
    return np.where(numbers >= 0, block.values[:, numbers], np.nan)
