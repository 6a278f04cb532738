"""The home server of each target (configured, learned or guessed, in this order), and which targets are away from it."""

from __future__ import annotations

import ipaddress
import math
from bisect import bisect
from collections import Counter, defaultdict
from statistics import mode
from typing import TYPE_CHECKING

from tokiod.tts.schema import natural_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


# Lustre does not report where a target belongs. But the servers of a file system have the same number of targets, and a failover gives one
# server more than usual. So while no server has more, all targets are taken to be at home; while one has more, those of all others are.
# Which of its targets are the guests follows from the order: targets and servers are numbered alike, so the homes of a target's neighbours
# show where it should be.
class Homes:
    """The homes of targets: the configured one, else the server that served the target most often while that server had no guests."""

    def __init__(self, configured: Mapping[str, str]) -> None:
        self._configured = configured
        self._seen: dict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
        self._learned: dict[str, str] = {}

    def learn(self, served: Mapping[str, str]) -> None:
        """Learn from the servers of all targets at one moment."""
        for group in _groups(served):
            hosts = Counter(group.values())
            usual = _usual(hosts)
            for target, nid in group.items():
                if hosts[nid] <= usual:
                    seen = self._seen[target]
                    count, order = seen.get(nid, (0, -len(seen)))
                    seen[nid] = count + 1, order  # of servers seen equally often, the first one
                    if seen[nid] >= seen[self._learned.setdefault(target, nid)]:
                        self._learned[target] = nid

    def away(self, served: Mapping[str, str]) -> dict[str, bool | None]:
        """Return for each target whether another server than its home serves it; None where its home is unknown."""
        found: dict[str, bool | None] = {}
        for group in _groups(served):
            homes = {target: self._home(target) for target in group}
            homes |= _guessed(group, {target: home for target, home in homes.items() if home is not None})
            found |= {target: None if homes[target] is None else homes[target] != nid for target, nid in group.items()}
        return found

    def _home(self, target: str) -> str | None:
        if target in self._configured:
            return self._configured[target]
        return self._learned.get(target)


def _guessed(served: Mapping[str, str], known: Mapping[str, str]) -> dict[str, str | None]:
    """Guess the unknown homes of targets on servers with guests: the server itself, "" for another one, None where that is unclear."""
    usual = _usual(Counter(served.values()))
    if not usual:
        return {}
    places = _Places(known, _positions({*served.values(), *known.values()}))
    at_home = Counter(nid for target, nid in served.items() if known.get(target) == nid)
    unknown: dict[str, list[str]] = defaultdict(list)
    for target, nid in served.items():
        if target not in known:
            unknown[nid].append(target)
    guessed: dict[str, str | None] = {}
    for nid, targets in unknown.items():
        free = usual - at_home[nid]
        distances = sorted((places.distance(target, nid), target) for target in targets)
        is_clear = 0 < free < len(distances) and distances[free - 1][0] < distances[free][0]
        for rank, (_, target) in enumerate(distances):
            guessed[target] = (nid if rank < free else "") if is_clear or free <= 0 or free >= len(distances) else None
    return guessed


def _usual(hosts: Counter[str]) -> int:
    """Return how many targets most servers have; 0 where they differ too much."""
    usual = mode(sorted(hosts.values()))
    return usual if 2 * list(hosts.values()).count(usual) > len(hosts) else 0


class _Places:
    """The known homes of targets in the order of their indices, as positions."""

    def __init__(self, known: Mapping[str, str], positions: Mapping[str, float]) -> None:
        self._positions = positions
        self._points = sorted((_index(target), positions[home]) for target, home in known.items())

    def distance(self, target: str, nid: str) -> float:
        """Return how far a server is from the position that the homes of a target's neighbours suggest."""
        index, place, points = _index(target), self._positions[nid], self._points
        first, last = bisect(points, (index, -math.inf)), bisect(points, (index, math.inf))
        below, above = points[max(0, first - 1) : first], points[last : last + 1]
        if below and above:
            (left, start), (right, end) = below[0], above[0]
            return abs(start + (end - start) * (index - left) / (right - left) - place)
        return min((abs(at + index - point - place) for point, at in below + above), default=0.0)


def _positions(nids: Iterable[str]) -> dict[str, float]:
    """Return a position for each server: its address as a number, or its rank in natural order where one is not an IP address."""
    try:
        return {nid: float(int(ipaddress.ip_address(nid.partition("@")[0]))) for nid in nids}
    except ValueError:
        return {nid: float(rank) for rank, nid in enumerate(sorted(nids, key=natural_key))}


def _groups(served: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Split by file system, and OSTs from MDTs."""
    groups: dict[str, dict[str, str]] = defaultdict(dict)
    for target, nid in served.items():
        groups[target[:-4]][target] = nid
    yield from groups.values()


def _index(target: str) -> int:
    return int(target[-4:], 16)
