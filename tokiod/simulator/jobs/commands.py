"""`lctl-jobs SERVER get_param obdfilter.*.job_stats mdt.*.job_stats`: lctl on a server of a site, which Lustre 2.15 runs."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from tokiod.simulator.fake_commands import Reply, failing
from tokiod.simulator.jobs.work import SERVERS, Work

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokiod.simulator.jobs.work import Life
    from tokiod.simulator.site import Site

NAME = "lctl-jobs"
FAULTS = ("hang", "refuse", "refuse", "refuse")


def fault(site: Site, server: str, time: float) -> str | None:
    """Return why a server does not answer at a time, None where it does."""
    return failing(site, f"jobs {server}", time, FAULTS)


class JobCommands:
    """Answers command lines at a time."""

    def __init__(self, site: Site, work: Work | None = None) -> None:
        self._site = site
        self._work = work or Work(site)

    def __call__(self, argv: list[str], now: float) -> Reply:
        """Return what a command prints."""
        match argv:
            case [_, server, "get_param", "obdfilter.*.job_stats", "mdt.*.job_stats"] if server in SERVERS:
                how = fault(self._site, server, now)
                if how is not None:
                    return Reply(hangs=True) if how == "hang" else Reply(255, stderr="Permission denied (publickey).")
                # Each server has one sort of targets, and lctl complains about the other.
                return Reply(2, "".join(self.stats(server, now)), "error: get_param: param_path: No such file or directory")
            case [_, server, "get_param", "obdfilter.*.job_cleanup_interval", "mdt.*.job_cleanup_interval"] if server in SERVERS:
                lines = (f"{_path(target)}.job_cleanup_interval={self._work.cleanup}\n" for target in self._targets(server, now))
                return Reply(0, "".join(lines))
            case _:
                return Reply(2, stderr=f"the simulator knows no {' '.join(argv)}")

    def stats(self, server: str, now: float) -> Iterator[str]:
        """Yield the text of each target of a server at a time, and the jobs in it."""
        for target in self._targets(server, now):
            yield f"{_path(target)}.job_stats=\njob_stats:\n"
            for life, row in self._work.listed(target, now):
                yield block(life, row)

    def _targets(self, server: str, now: float) -> list[str]:
        return [target for target in self._work.targets if self._work.server(target, now) == server]


@lru_cache(maxsize=1 << 14)
def block(life: Life, row: int) -> str:
    """Return a job as Lustre 2.15 prints it: the same text until it does something.

    The fraction of the time of its last operation is the number of operations before that one.
    """
    lines = [
        f"- job_id:          {life.identity}" if ":" not in life.identity else f'- job_id:          "{life.identity}"',
        f"  snapshot_time:   {life.times[row]}.{row:09d} secs.nsecs",
        f"  start_time:      {life.begins[row]}.000000000 secs.nsecs",
    ]
    for name, (samples, total) in zip(life.operations, life.counts[row].tolist(), strict=True):
        unit = "bytes" if name.endswith("_bytes") else "usecs"
        least = min(samples, 1)
        numbers = f"min: {least:8}, max: {total:8}, sum: {total:16}, sumsq: {total * total % 2**64:18}"
        lines.append(f"  {name + ':':16} {{ samples: {samples:11}, unit: {unit}, {numbers} }}")
    return "\n".join(lines) + "\n"


def _path(target: str) -> str:
    return f"{'mdt' if '-MDT' in target else 'obdfilter'}.{target}"
