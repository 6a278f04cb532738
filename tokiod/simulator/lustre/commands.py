"""`lfs df -l [-i] MOUNT` and `lctl dl -t` on a client of a site's Lustre file systems."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokiod.simulator.fake_commands import Reply
from tokiod.simulator.lustre.client import STATES, Lustre, Moment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokiod.simulator.site import Site

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
