"""The OSTs, OSSs, MDSs and MDTs of a file system, in the order in which LMT first saw them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from collectors.lmt.datasets import OPERATIONS, MdtNames
from tokiod.errors import Fatal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

INFO = {
    "FILESYSTEM_INFO": ("FILESYSTEM_ID", "FILESYSTEM_NAME"),
    "OSS_INFO": ("OSS_ID", "FILESYSTEM_ID", "HOSTNAME"),
    "OST_INFO": ("OST_ID", "OSS_ID", "OST_NAME"),
    "MDS_INFO": ("MDS_ID", "FILESYSTEM_ID", "MDS_NAME", "HOSTNAME"),
    "OPERATION_INFO": ("OPERATION_ID", "OPERATION_NAME"),
}
"""The columns of each table that parse_inventory() reads, ordered by the first."""

Info = dict[str, list[tuple[Any, ...]]]


class Roster:
    """Components of one type: their ids and the column of each.

    Several ids may share a name (the MDTs of a host, an OST that was registered again): they share its column.
    unnamed: how many have an invalid name or id, as in a damaged file.
    """

    def __init__(self, components: Iterable[tuple[Any, Any]]) -> None:
        found = {identity: name for identity, name in components if name}
        named = {identity: name for identity, name in found.items() if isinstance(identity, int) and _is_name(name)}
        self.unnamed = len(found) - len(named)
        self.names = tuple(dict.fromkeys(named.values()))
        position = {name: column for column, name in enumerate(self.names)}
        self.ids: NDArray[np.int64] = np.array(sorted(named), np.int64)
        self._columns = np.array([position[named[identity]] for identity in self.ids.tolist()] + [-1], np.int64)

    def columns(self, ids: NDArray[Any]) -> NDArray[np.int64]:
        """Return the column of each id, -1 for an unknown one."""
        place, known = places(self.ids, ids)
        return np.asarray(self._columns[place]) if known.all() else np.where(known, self._columns[place], -1)


def places(known: NDArray[np.int64], wanted: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return where each wanted number is among ascending ones, 0 for one that is not, and which are there."""
    if not len(known):
        return np.zeros(len(wanted), np.intp), np.zeros(len(wanted), bool)
    first, last = int(known[0]), int(known[-1])
    if last - first == len(known) - 1:
        # Numbers without a gap, as nearly all are, tell their places.
        is_there = (wanted >= first) & (wanted <= last)
        if wanted.dtype.kind == "f":
            is_there &= np.rint(wanted) == wanted
        return np.where(is_there, wanted - first, 0).astype(np.intp), is_there
    place = np.searchsorted(known, wanted)
    is_there = known[np.minimum(place, len(known) - 1)] == wanted
    return np.where(is_there, place, 0), is_there


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and name.isprintable() and name == name.strip()


@dataclass(frozen=True, slots=True)
class Inventory:
    """The components of one file system, and the ids of the operations that have a dataset, by LMT's names.

    listed: by roster, the ids of all components with a name, other file systems' too.
    """

    filesystem: str
    osts: Roster
    osss: Roster
    mdss: Roster
    mdts: Roster
    operations: dict[str, tuple[int, ...]]
    listed: dict[str, list[int]]

    @property
    def unnamed(self) -> int:
        """How many components have an invalid name."""
        return sum(roster.unnamed for roster in (self.osts, self.osss, self.mdss, self.mdts))


def parse_inventory(rows: Info, wanted: str | None, mdt_names: MdtNames) -> Inventory:
    """Parse the rows of INFO. wanted: the name of a file system, required only where there are several.

    Raises Fatal for an unknown file system, or if several are there and none is named.
    """
    chosen = _choose(rows, wanted)
    osts = [(ost, name) for ost, _, name in rows["OST_INFO"] if chosen.owns(name)]
    served = {oss for _, oss, name in rows["OST_INFO"] if chosen.owns(name)}
    foreign = {oss for _, oss, _ in rows["OST_INFO"]} - served
    osss = [(oss, host) for oss, of, host in rows["OSS_INFO"] if oss in served or (oss not in foreign and chosen.has_id(of))]
    mdss = [(mds, mdt, host) for mds, of, mdt, host in rows["MDS_INFO"] if chosen.owns(mdt, of)]
    everywhere = {
        "osts": ((ost, name) for ost, _, name in rows["OST_INFO"]),
        "osss": ((oss, host) for oss, _, host in rows["OSS_INFO"]),
        "mdss": ((mds, host) for mds, _, _, host in rows["MDS_INFO"]),
        "mdts": ((mds, host if mdt_names == "host" else mdt) for mds, _, mdt, host in rows["MDS_INFO"]),
    }
    return Inventory(
        chosen.name,
        Roster(osts),
        Roster(osss),
        Roster((mds, host) for mds, _, host in mdss),
        Roster((mds, host if mdt_names == "host" else mdt) for mds, mdt, host in mdss),
        _operations(rows["OPERATION_INFO"]),
        {roster: [identity for identity, name in components if name and _is_name(name)] for roster, components in everywhere.items()},
    )


# LMT finds the database of a row by a prefix: rows of lc10 get into that of lc1. So whole names are compared, and an OSS that serves
# only OSTs of another file system belongs to that, whatever its FILESYSTEM_ID.
@dataclass(frozen=True, slots=True)
class _Choice:
    """One file system of a database. ids: its known FILESYSTEM_IDs; is_alone: the database holds no other."""

    name: str
    ids: frozenset[int]
    is_alone: bool

    def owns(self, target: str | None, filesystem: int | None = None) -> bool:
        """Return whether an OST or MDT belongs to the file system, by its name, or by FILESYSTEM_ID where the name does not show it."""
        of = _filesystem(target)
        return self.is_alone or (of == self.name if of else filesystem in self.ids)

    def has_id(self, filesystem: int | None) -> bool:
        """Return whether a FILESYSTEM_ID is that of the file system, as far as ids are known."""
        return self.is_alone or not self.ids or filesystem in self.ids


def _choose(rows: Info, wanted: str | None) -> _Choice:
    registered = {name for _, name in rows["FILESYSTEM_INFO"] if name and isinstance(name, str)}
    targets = [row[2] for table in ("OST_INFO", "MDS_INFO") for row in rows[table]]
    seen = {of for target in targets if (of := _filesystem(target))}
    choices = sorted(registered & seen or seen or registered)
    listed = '", "'.join(sorted(registered | seen))
    if wanted is None and len(choices) > 1:
        raise Fatal(f'the database holds several file systems: set filesystem to one of "{listed}"')
    if wanted is not None and wanted not in registered | seen and choices:
        raise Fatal(f'the database holds no file system "{wanted}": set filesystem to one of "{listed}"')
    name = wanted or "".join(choices)
    ids = frozenset(identity for identity, found in rows["FILESYSTEM_INFO"] if found == name)
    return _Choice(name, ids, is_alone=len(registered) <= 1 and len(seen) <= 1)


def _filesystem(target: Any) -> str:
    """Return the part before the last -OST or -MDT of a target's name, "" for other names."""
    for suffix in ("-OST", "-MDT"):
        before, found, _ = (target if isinstance(target, str) else "").rpartition(suffix)
        if found:
            return before
    return ""


def _operations(rows: Sequence[tuple[Any, ...]]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(identity for identity, found in rows if found == name and isinstance(identity, int)) for name in OPERATIONS}
