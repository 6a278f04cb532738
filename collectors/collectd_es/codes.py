"""Documents to the codes of their keys: small numbers that stand for five texts.

kind    plugin, type, type instance and plugin instance    what is measured: a few dozen
host    hostname                                           where: a few hundred or thousand

A code is found by both. All keys in one table of texts would be some ten thousand entries in no order, each out of the reach of the
processor's caches; these two tables stay in them, and so do their numbers.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np

from collectors.collectd_es.fields import NUMBERS
from collectors.collectd_es.series import Key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from collectors.collectd_es.fields import Source
    from collectors.collectd_es.series import Series

MOST_KEYS = 1_000_000
"""Different keys that are remembered; with more, all are forgotten and resolved again."""
MOST_TEXTS = 100_000
"""Kinds and hosts that are remembered; with more, all are forgotten."""
MOST_PAIRS = 1 << 23
"""Pairs of a kind and a host that are remembered: each takes four bytes, whether there is such a key or not."""

NOT_YET = np.iinfo(np.int32).min


class Crowded(Exception):  # noqa: N818 - nothing went wrong
    """So many kinds and hosts at once that there is no table of their pairs; fewer documents have fewer."""


class Codes:
    """Codes of all keys that were seen.

    tables: {field: i8[codes]}, the number of the series that a field holds the values of, -1 for none; reasons: why keys are of no series,
    at -1 - code where the code is below zero.
    """

    def __init__(self, series: Series) -> None:
        self._series = series
        self._forget()

    def of(self, sources: list[Source]) -> NDArray[np.int64]:
        """Return i8[n], the code of each document. What an earlier call returned may mean nothing any more. Raises Crowded."""
        kinds, hosts = self._kinds, self._hosts
        try:
            # Loops over documents are comprehensions with the attribute's name in them, see Decoder.
            kind = _integers([kinds[s.plugin][s.type][s.type_instance][s.plugin_instance] for s in sources])
            host = _integers([hosts[s.host] for s in sources])
        except KeyError:
            self._learn(sources)
            return self.of(sources)
        codes = self._pairs[kind, host].astype(np.int64)
        new = np.flatnonzero(codes == NOT_YET)
        if len(new):
            self._resolve((int(kind[n]), int(host[n]), sources[n]) for n in new.tolist())
            return self.of(sources)
        return codes

    def _forget(self) -> None:
        self._kinds: dict[str, dict[str, dict[str, dict[str, int]]]] = {}
        self._hosts: dict[str, int] = {}
        self._kind_count = 0
        self._pairs = np.empty((0, 0), np.int32)
        self._numbers: dict[str, list[int]] = {field: [] for field in NUMBERS}
        self.reasons: list[str] = []
        self.tables = {field: np.array([], np.int64) for field in NUMBERS}

    def _learn(self, sources: list[Source]) -> None:
        """Give numbers to kinds and hosts that are new; where they become too many, forget the others."""
        for is_last in (False, True):
            for s in sources:
                kinds = self._kinds.setdefault(s.plugin, {}).setdefault(s.type, {}).setdefault(s.type_instance, {})
                if s.plugin_instance not in kinds:
                    kinds[s.plugin_instance] = self._kind_count
                    self._kind_count += 1
                self._hosts.setdefault(s.host, len(self._hosts))
            if self._kind_count * len(self._hosts) <= MOST_PAIRS and self._kind_count + len(self._hosts) <= MOST_TEXTS:
                break
            self._forget()
            if is_last:
                raise Crowded
        known, self._pairs = self._pairs, np.full((self._kind_count, len(self._hosts)), NOT_YET, np.int32)
        self._pairs[: known.shape[0], : known.shape[1]] = known

    def _resolve(self, documents: Iterable[tuple[int, int, Source]]) -> None:
        """Ask for the series of each document's key, once."""
        if len(self._numbers["value"]) > MOST_KEYS:
            self._forget()
            return
        for kind, host, s in documents:
            if self._pairs[kind, host] == NOT_YET:
                self._pairs[kind, host] = self._code(Key(s.host, s.plugin, s.type, s.type_instance, s.plugin_instance))
        self.tables = {field: np.array(numbers, np.int64) for field, numbers in self._numbers.items()}

    def _code(self, key: Key) -> int:
        numbers = self._series.resolve(key)
        if isinstance(numbers, str):
            if numbers not in self.reasons:
                self.reasons.append(numbers)
            return -1 - self.reasons.index(numbers)
        for field, known in self._numbers.items():
            known.append(numbers.get(field, -1))
        return len(self._numbers["value"]) - 1


def _integers(numbers: list[int]) -> NDArray[np.int64]:
    """Return i8[n]; struct takes a third of numpy's time to read a list."""
    return np.frombuffer(struct.pack(f"{len(numbers)}q", *numbers), np.int64)
