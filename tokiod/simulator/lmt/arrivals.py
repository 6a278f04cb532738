"""Which rows reach LMT under which TS_ID: not what was measured when, but what the one process that writes them makes of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokiod.simulator.load import Load, Table
from tokiod.simulator.site import OPERATIONS, Site

if TYPE_CHECKING:
    from numpy.typing import NDArray

FIRST_TS_ID = 8_921_898
PIECES = 3
"""Transactions in which the rows of one TS_ID arrive."""


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Rows on their way into a data table, ordered by TS_ID: their TS_IDs, components and fields, all [n]."""

    ts_id: NDArray[np.int64]
    component: NDArray[np.intp]
    fields: dict[str, NDArray[Any]]

    def __getitem__(self, some: NDArray[Any]) -> Rows:
        return Rows(self.ts_id[some], self.component[some], {name: values[some] for name, values in self.fields.items()})


class Arrivals:
    """What is written for a range of steps.

    A step has no TS_ID where LMT stood still, and two where its daemon was restarted: then a third of the servers wrote under the first,
    a third under the second, and the others under both, first still with what they had said a step before. Only the second counts.
    """

    def __init__(self, site: Site) -> None:
        self.load = Load(site)
        mds = site.osss + site.mds_of_mdt
        self._servers = {
            "OST_DATA": site.oss_of_ost,
            "OSS_DATA": np.arange(site.osss),
            "MDS_DATA": mds,
            "MDS_OPS_DATA": mds.repeat(len(OPERATIONS)),
        }

    def ts_ids(self, first: int, last: int) -> list[range]:
        """Return the TS_IDs of each of the steps [first, last)."""
        before, count = self.load.ticks(first, last)
        return [range(i, i + n) for i, n in zip((FIRST_TS_ID + before).tolist(), count.tolist(), strict=True)]

    def step(self, ts_id: int) -> int:
        """Return the step that a TS_ID belongs to."""
        return self.load.step_of(ts_id - FIRST_TS_ID)

    def rows(self, table: str, first: int, last: int) -> Rows:
        """Return a table's rows of the steps [first, last)."""
        before, count = self.load.ticks(first, last)
        now = self.load.table(table, first, last)
        group = (self._servers[table] + np.arange(first, last)[:, np.newaxis]) % 3
        twice = (count == 2)[:, np.newaxis]  # noqa: PLR2004 - two TS_IDs
        repeated = self._repeated(table, first, now, twice & (group == 1)) if twice.any() else now
        under_first = _take(repeated, ~twice | (group <= 1), FIRST_TS_ID + before)
        under_second = _take(now, twice & (group >= 1), FIRST_TS_ID + before + 1)
        rows = _joined(under_first, under_second)
        return rows[rows.ts_id.argsort(kind="stable")]

    def piece(self, table: str, rows: Rows, ts_id: int, piece: int) -> Rows:
        """Return those rows of a TS_ID that arrive in its transaction number `piece`: those of every PIECES-th server."""
        turn = (self._servers[table][rows.component] // 3 + ts_id) % PIECES
        return rows[(rows.ts_id == ts_id) & (turn == piece)]

    def _repeated(self, table: str, first: int, now: Table, where: NDArray[np.bool_]) -> Table:
        begin = max(0, first - 1)
        earlier = self.load.table(table, begin, first + len(now.present))
        earlier = earlier[np.maximum(np.arange(len(now.present)) + first - begin - 1, 0)]
        fields = {field: np.where(where, earlier.fields[field], values) for field, values in now.fields.items()}
        return Table(now.present & (earlier.present | ~where), fields)


def _take(table: Table, among: NDArray[np.bool_], ts_ids: NDArray[np.int64]) -> Rows:
    step, component = (table.present & among).nonzero()
    return Rows(ts_ids[step], component, {name: values[step, component] for name, values in table.fields.items()})


def _joined(one: Rows, other: Rows) -> Rows:
    fields = {name: np.concatenate([values, other.fields[name]]) for name, values in one.fields.items()}
    return Rows(np.concatenate([one.ts_id, other.ts_id]), np.concatenate([one.component, other.component]), fields)
