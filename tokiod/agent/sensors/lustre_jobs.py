r"""What each job did on this Lustre server: `lctl get_param obdfilter.*.job_stats mdt.*.job_stats`.

    obdfilter.scratch-OST0000.job_stats=
    job_stats:
    - job_id:          4711                        (in quotes if it has odd characters, with \xNN in it)
      snapshot_time:   1537070542                  (of the job's last operation, so the block of an idle job does not change)
      read_bytes:      { samples: 256, unit: bytes, min: 4194304, max: 4194304, sum: 1073741824 }
      open:            { samples: 25, unit: reqs }

A job that returns after `job_cleanup_interval` starts at zero: `start_time` (from 2.14 on) or a falling count marks it.
"""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

from tokiod.agent.command import Command, CommandFailed
from tokiod.agent.metric import Metric, counter
from tokiod.agent.sensor import Absent, Readings, Sensor, clean

if TYPE_CHECKING:
    from tokiod.agent.metric import Value
    from tokiod.agent.tree import Tree

WORDS = ["lctl", "get_param", "obdfilter.*.job_stats", "mdt.*.job_stats"]
PERIOD_SECONDS, DEADLINE_SECONDS = 60.0, 50.0

_TARGET = re.compile(rb"^(?:obdfilter|mdt)\.([^\n]{1,256})\.job_stats=", re.MULTILINE)
_BLOCK = b"\n- job_id:"
_OPERATION = re.compile(rb"^  (\w+):\s+\{ samples:\s*(\d+), unit:\s*(\w+)(?:[^}\n]*?sum:\s*(\d+))?", re.MULTILINE)
_START = re.compile(rb"^  start_time:\s+(\d+)", re.MULTILINE)

_OPERATIONS = (
    "open", "close", "mknod", "link", "unlink", "mkdir", "rmdir", "rename", "getattr", "setattr", "getxattr", "setxattr", "statfs", "sync",
    "samedir_rename", "parallel_rename_file", "parallel_rename_dir", "crossdir_rename", "migrate", "fallocate", "punch", "prealloc",
    "destroy", "create", "get_info", "set_info", "quotactl",
)  # fmt: skip
_BYTES = {
    b"read_bytes": (counter("job_lustre_reads", "1", "read requests"), counter("job_lustre_read", "B", "bytes read")),
    b"write_bytes": (counter("job_lustre_writes", "1", "write requests"), counter("job_lustre_written", "B", "bytes written")),
}
_COUNTS = {name.encode(): counter(f"job_lustre_{name}", "1", f"requests of {name}") for name in _OPERATIONS}
_CALLS = {name: counter(f"job_lustre_{name.decode()}_calls", "1", f"calls of {name.decode()}") for name in (b"read", b"write")}
_KNOWN = {**_COUNTS, **_CALLS}
_STARTED = counter("job_lustre_start", "s", "time at which the server began to count the job (2.14 and newer)")


class LustreJobs(Sensor):
    """The values of a job and target. Only blocks that changed since the last run are parsed; `parsed` counts them."""

    name = "lustre_jobs"
    metrics = (*(metric for pair in _BYTES.values() for metric in pair), *_KNOWN.values(), _STARTED)
    period = 1.0

    def __init__(
        self, tree: Tree, words: list[str] | None = None, period: float = PERIOD_SECONDS, deadline: float = DEADLINE_SECONDS
    ) -> None:
        super().__init__(tree)
        self._is_default = words is None
        self._command = Command(words or WORDS, period, deadline)
        self._blocks: dict[tuple[bytes, bytes], bytes] = {}
        self.parsed = 0

    def find(self) -> None:
        if self._is_default and not any(
            self.tree.names(f"{root}/fs/lustre/{kind}") for root in ("proc", "sys") for kind in ("obdfilter", "mdt")
        ):
            raise Absent("no Lustre target on this node")
        if not shutil.which(self._command.words[0]):
            raise Absent(f"no command {self._command.words[0]}")

    def sample(self, readings: Readings, now: float) -> None:
        try:
            text = self._command.take(now)
        except CommandFailed as error:
            readings.drop(error.reason, str(error))
            return
        if text is not None:
            self.read(readings, text)

    def read_ahead(self, now: float, *, is_rare: bool) -> bool:
        return not self._command.has_work(now)

    def is_waiting(self) -> bool:
        return self._command.is_running

    def close(self) -> None:
        self._command.close()

    def read(self, readings: Readings, text: bytes) -> None:
        """Put the jobs whose blocks changed into the readings."""
        starts = [*_TARGET.finditer(text), None]
        if len(starts) == 1:
            readings.drop("malformed", "no line TARGET.job_stats= in the output")
        blocks: dict[tuple[bytes, bytes], bytes] = {}
        for match, following in zip(starts, starts[1:]):
            if match is not None:
                target = match[1]
                first, *of_target = text[match.end() : following.start() if following else len(text)].split(_BLOCK)
                if (said := first.strip()) not in (b"job_stats:", b""):
                    readings.drop("malformed", f"{clean(target)}: {clean(said[:64])}")
                for block in of_target:
                    with readings:
                        job = _job(block)
                        blocks[target, job] = block
                        if self._blocks.get((target, job)) != block:
                            self.parsed += 1
                            _parse(readings, clean(job), clean(target), block)
        self._blocks = blocks


def _job(block: bytes) -> bytes:
    line, end, _ = block.partition(b"\n")
    if not end:
        raise ValueError("a block without the end of its job_id")
    return line.strip().strip(b'"')


def _parse(readings: Readings, job: str, target: str, block: bytes) -> None:
    found = _OPERATION.findall(block)
    if not found:
        raise ValueError(f"the block of job {job} on {target} has no operation")
    if start := _START.search(block):
        readings.add_job(job, target, _STARTED, int(start[1]))
    for name, samples, unit, total in found:
        for metric, value in _values(name, int(samples), unit, total):
            readings.add_job(job, target, metric, value)


def _values(name: bytes, samples: int, unit: bytes, total: bytes) -> list[tuple[Metric, Value]]:
    """Return the values of one line. `read` and `write` are latencies on new servers; an unused operation has no sum."""
    if name in _BYTES and unit == b"bytes":
        calls, octets = _BYTES[name]
        return [(calls, samples), (octets, int(total or 0))]
    return [(_KNOWN[name], samples)] if name in _KNOWN else []
