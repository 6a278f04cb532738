"""What a client sees of a site's Lustre file systems, moment by moment: how full targets are, who serves them, and what can't be seen.

Its commands print that, and an archive holds it: `lfs df -l [-i] MOUNT` and `lctl dl -t`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import starmap
from typing import TYPE_CHECKING

import numpy as np

from tokiod.simulator.drawn import draw
from tokiod.simulator.expected import Answer, Expected, steps
from tokiod.simulator.fake_commands import Reply, failing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from tokiod.simulator.site import Site
    from tokiod.window import Window

    Mask = NDArray[np.bool_]


MOUNTS = ("/scratch1", "/scratch2")
SECOND = "lus-2_b"
"""The second file system: four OSTs on two servers, two MDTs on one each."""
OUTAGE = 600
"""Seconds for which a server stands still, from a multiple of them on; the next server serves its targets then."""

STATES = ("", " D", " RN", ": inactive device", ": Cannot send after transport endpoint shutdown", "silent")
"""What may be wrong with a target: flags, an error in the place of numbers, or no row at all."""
_HEALTHY = 3


@dataclass(frozen=True, slots=True)
class Target:
    """kind: OST or MDT; server, servers: which of how many it is at home on; group: tells these servers from others."""

    filesystem: str
    kind: str
    index: int
    server: int
    servers: int
    group: int

    def __str__(self) -> str:
        return f"{self.filesystem}-{self.kind}{self.index:04x}"

    def nid(self, moved: int = 0) -> str:
        """Return the address of its home, or of a server behind that."""
        return f"10.100.{self.group}.{11 + (self.server + moved) % self.servers}@o2ib"


@dataclass(frozen=True, slots=True, eq=False)
class Moment:
    """All targets as they are seen.

    used, total: KiB, i8[targets]; state: of STATES; away: by how many servers each was moved; connected: whether the client knows who
    serves it; failing: what is wrong with the commands, by mount and for lctl.
    """

    used: NDArray[np.int64]
    total: NDArray[np.int64]
    state: NDArray[np.int64]
    away: NDArray[np.int64]
    connected: NDArray[np.bool_]
    failing: dict[str, str | None]

    @property
    def inodes(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Used and total inodes, i8[targets]."""
        return self.used // 128, self.total // 64

    @property
    def listed(self) -> NDArray[np.bool_]:
        """Which targets have numbers, if their mount answers."""
        return np.asarray(self.state < _HEALTHY)


class Lustre:
    """The file systems of a site; a moment is whole for site.moment seconds."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.targets = _targets(site)
        self.mounts = tuple(MOUNTS[target.filesystem == SECOND] for target in self.targets)
        self.at = lru_cache(maxsize=4096)(self._at)

    def homes(self) -> dict[str, str]:
        """Return the address of each target's home."""
        return {str(target): target.nid() for target in self.targets}

    def _at(self, moment: int) -> Moment:
        """Return what is seen from moment * site.moment on."""
        site, width, time = self.site, len(self.targets), moment * self.site.moment
        size, begin = draw(site, "lustre begin", 0, 2, width)
        changing, strange, state, connected = draw(site, "lustre moment", moment, 4, width)
        total = (9e10 * (0.5 + size)).astype(np.int64)
        used = (total * (0.2 + 0.6 * begin + 0.05 * changing)).astype(np.int64)
        kind = np.where(strange < site.trouble / 20, 1 + (state * (len(STATES) - 1)).astype(np.int64), 0)
        failed = {name: failing(site, f"lustre {name}", time, ("error", "hang"), 25) for name in (*MOUNTS, "lctl")}
        # A client that gets no answer of a file system has lost its servers, too.
        lost = np.array([failed[mount] is not None for mount in self.mounts])
        return Moment(used, total, kind, self._away(time), (connected >= site.trouble / 60) & ~lost, failed)

    def _away(self, time: int) -> NDArray[np.int64]:
        down = draw(self.site, "lustre outage", time // OUTAGE, 4, max(target.servers for target in self.targets)) < self.site.trouble / 12
        return np.array([int(target.servers > 1 and down[target.group, target.server]) for target in self.targets])


def _targets(site: Site) -> tuple[Target, ...]:
    osss, mdss = site.osss, len(site.mds_names)
    groups = (
        [(site.filesystem, "MDT", j, j // 2, mdss, 0) for j in range(site.mdts)]
        + [(site.filesystem, "OST", j, j % osss, osss, 1) for j in range(site.osts)]
        + [(SECOND, "MDT", j, j, 2, 2) for j in range(2)]
        + [(SECOND, "OST", j, j % 2, 2, 3) for j in range(4)]
    )
    return tuple(starmap(Target, groups))


_HEAD = "UUID                   1K-blocks        Used   Available Use% Mounted on\n"
_INODES_HEAD = "UUID                      Inodes       IUsed       IFree IUse% Mounted on\n"
_UUID = "8dbdc7f6-0dc8-d1a9-6d3b-2f0c6f7a8e11"


class LustreCommands:
    """Answers command lines at a time."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._load = Lustre(site)

    def __call__(self, argv: list[str], now: float) -> Reply:
        """Return what a command prints."""
        number = int(now) // self._site.moment
        moment = self._load.at(number)
        match argv:
            case ["lfs", "df", "-l", *inodes, mount] if mount in moment.failing and inodes in ([], ["-i"]):
                failed = _failed(moment.failing[mount], "Input/output error")
                return failed or self._df(mount, moment, old=number % 2 == 0, inodes=bool(inodes))
            case ["lfs", "df", "-l", *_, mount]:
                return Reply(22, stderr=f"lfs df: {mount}: not a Lustre file system")
            case ["lctl", "dl", "-t"]:
                return _failed(moment.failing["lctl"], "opening /dev/obd failed") or Reply(stdout="".join(self._dl(moment)))
            case _:
                return Reply(2, stderr=f"the simulator knows no {' '.join(argv)}")

    def _df(self, mount: str, moment: Moment, *, old: bool, inodes: bool) -> Reply:
        rows, used, total, code = [], 0, 0, 0
        of_use, of_size = moment.inodes if inodes else (moment.used, moment.total)
        for j, target in enumerate(self._load.targets):
            state = STATES[int(moment.state[j])]
            if self._load.mounts[j] != mount or state == "silent":
                continue
            if state.startswith(":"):
                rows.append(f"{target!s:<20}{state}\n")
                code = 5
                continue
            have, all_of_it = int(of_use[j]), int(of_size[j])
            row = _row(f"{target}_UUID", have, all_of_it)
            rows.append(f"{row} {mount}[{target.kind}:{target.index}]{state}\n")
            if target.kind == "OST":
                used, total = used + have, total + all_of_it
        label = "filesystem summary: " if old else "filesystem_summary: "
        head = _INODES_HEAD if inodes else _HEAD
        return Reply(code, head + "".join(rows) + f"\n{_row(label, used, total)} {mount}\n\n")

    def _dl(self, moment: Moment) -> Iterator[str]:
        yield f"  0 UP mgc MGC10.100.0.3@o2ib {_UUID} 5\n"
        for j, target in enumerate(self._load.targets):
            kind = "osc" if target.kind == "OST" else "mdc"
            end = f" {target.nid(int(moment.away[j]))}" if moment.connected[j] else ("", " <none>")[j % 2]
            yield f"{j + 1:3d} UP {kind} {target}-{kind}-ffff885f81a64000 {_UUID} 5{end}\n"


def _failed(how: str | None, complaint: str) -> Reply | None:
    return None if how is None else Reply(hangs=True) if how == "hang" else Reply(5, stderr=f"error: {complaint}")


def _row(name: str, used: int, total: int) -> str:
    free = (total - used) * 19 // 20
    return f"{name:<20} {total:11d} {used:11d} {free:11d} {-(-100 * used // max(1, used + free)):3d}%"


class LustreAnswers(Expected):
    """What the files of a site's file systems hold."""

    def __init__(self, site: Site, stored: Iterable[Window], since: int | None = None) -> None:
        super().__init__(site, stored, since)
        self._load = _load(site)

    def of(self, file: Window) -> dict[str, Answer]:
        """Return the answer for every dataset of a file."""
        times, targets = steps(file, self.site.moment), self._load.targets
        osts = np.array([target.kind == "OST" for target in targets])
        used, total, inodes, all_inodes, away = np.full((5, len(times), len(targets)), np.nan)
        nids = self._nids
        counts = np.full((len(times), len(nids)), np.nan)
        for row in self.in_archive(times).nonzero()[0].tolist():
            moment = self._load.at(int(times[row]) // self.site.moment)
            listed, served = self._seen(moment)
            used[row, listed], total[row, listed], away[row, served] = moment.used[listed], moment.total[listed], moment.away[served]
            inodes[row, listed], all_inodes[row, listed] = (one[listed] for one in moment.inodes)
            for j in np.flatnonzero(served & osts).tolist():
                place = nids.index(targets[j].nid(int(moment.away[j])))
                counts[row, place] = np.nan_to_num(counts[row, place]) + 1
        cells = {"fullness/bytes": (used, osts | True), "fullness/bytestotal": (total, osts | True)}
        cells |= {"fullness/inodes": (inodes, osts | True), "fullness/inodestotal": (all_inodes, osts | True)}
        cells |= {"failover/datatargets": (away, osts), "failover/mdtargets": (away, ~osts)}
        found = {name: self._answer(times, values, its) for name, (values, its) in cells.items()}
        return found | {"failover/dataservers": self.answer(nids, times, counts)}

    @property
    def _nids(self) -> tuple[str, ...]:
        """All servers that may serve an OST."""
        osts = [target for target in self._load.targets if target.kind == "OST"]
        return tuple(dict.fromkeys(target.nid(moved) for target in osts for moved in (0, 1)))

    def _seen(self, moment: Moment) -> tuple[Mask, Mask]:
        """Return for which targets the space is known, and for which the server is known."""
        answers = np.array([moment.failing[mount] is None for mount in self._load.mounts])
        return moment.listed & answers, moment.connected & (moment.failing["lctl"] is None)

    def _answer(self, times: NDArray[np.int64], values: NDArray[np.float64], its: Mask) -> Answer:
        columns = tuple(str(target) for target, one in zip(self._load.targets, its.tolist(), strict=True) if one)
        return self.answer(columns, times, values[:, its])


_load = lru_cache(maxsize=2)(Lustre)
