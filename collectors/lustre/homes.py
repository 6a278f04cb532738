"""Which server each target is at home on: told, learned, or guessed, in this order; and which targets are away from home."""

from __future__ import annotations

import ipaddress
from collections import Counter, defaultdict
from statistics import mode
from typing import TYPE_CHECKING

from tokiod.tts.schema import natural_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


# Nobody tells where a target belongs. But servers of a file system have the same number of targets, and a failover gives one server more
# than the usual number. So wherever no server has more, all targets are at home as far as can be seen, and where one has, all others are.
# Which of its targets are the guests follows from the order: targets and servers are numbered alike, so what its neighbours' servers
# are tells where a target should be.
class Homes:
    """The homes of targets: those that are told win, then the server that a target was seen on most often while that had no guests."""

    def __init__(self, told: Mapping[str, str]) -> None:
        self._told = told
        self._seen: dict[str, Counter[str]] = defaultdict(Counter)

    def learn(self, served: Mapping[str, str]) -> None:
        """Take notice of who served each target at one moment."""
        for group in _groups(served):
            hosts = Counter(group.values())
            usual = _usual(hosts)
            for target, nid in group.items():
                if hosts[nid] <= usual:
                    self._seen[target][nid] += 1

    def away(self, served: Mapping[str, str]) -> dict[str, bool | None]:
        """Return for each target whether it is served by another than its home; None where its home is not known."""
        found: dict[str, bool | None] = {}
        for group in _groups(served):
            homes = {target: self._home(target) for target in group}
            homes |= _guessed(group, {target: home for target, home in homes.items() if home is not None})
            found |= {target: None if homes[target] is None else homes[target] != nid for target, nid in group.items()}
        return found

    def _home(self, target: str) -> str | None:
        if target in self._told:
            return self._told[target]
        return self._seen[target].most_common(1)[0][0] if target in self._seen else None


def _guessed(served: Mapping[str, str], known: Mapping[str, str]) -> dict[str, str | None]:
    """Guess the homes of the targets that are not known, on servers with guests: theirs, or "" for another one; None: can't be told."""
    usual = _usual(Counter(served.values()))
    if not usual:
        return {}
    places = _numbers({*served.values(), *known.values()})
    guessed: dict[str, str | None] = {}
    for nid in {nid for target, nid in served.items() if target not in known}:
        strangers = [target for target, at in served.items() if at == nid and target not in known]
        room = usual - sum(served.get(target) == nid == home for target, home in known.items())
        off = sorted((_off(target, places[nid], known, places), target) for target in strangers)
        clear = 0 < room < len(off) and off[room - 1][0] < off[room][0]
        for rank, (_, target) in enumerate(off):
            guessed[target] = (nid if rank < room else "") if clear or room <= 0 or room >= len(off) else None
    return guessed


def _usual(hosts: Counter[str]) -> int:
    """Return how many targets most servers have; 0 where they differ too much to say."""
    usual = mode(sorted(hosts.values()))
    return usual if 2 * list(hosts.values()).count(usual) > len(hosts) else 0


def _off(target: str, place: float, known: Mapping[str, str], places: Mapping[str, float]) -> float:
    """Return how far a server is from where a target's neighbours say that it should be."""
    index = _index(target)
    marks = sorted((_index(other), places[home]) for other, home in known.items())
    below = [mark for mark in marks if mark[0] < index][-1:]
    above = [mark for mark in marks if mark[0] > index][:1]
    if below and above:
        (left, start), (right, end) = below[0], above[0]
        return abs(start + (end - start) * (index - left) / (right - left) - place)
    return min((abs(at + index - mark - place) for mark, at in below + above), default=0.0)


def _numbers(nids: Iterable[str]) -> dict[str, float]:
    """Return a number for each server, its address, or where those are no addresses its place in their order."""
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
