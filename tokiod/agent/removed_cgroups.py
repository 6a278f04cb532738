"""The CPU time of cgroups that are removed, from what their parent has used."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tokiod.agent.job_cgroup import CPU, cpu_parser

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokiod.agent.job_cgroup import JobCgroup
    from tokiod.agent.metric import Value
    from tokiod.agent.tree import Tree


ATTEMPTS = 5
ENOUGH_SECONDS = 0.002
"""CPU time that the other children may use while the number is read: half of it is the largest error."""


class ChildRemoved(Exception):  # noqa: N818 - a state, not a fault
    """A child was removed, or came, while the children were read."""


class RemovedChildren:
    """The CPU seconds of all children of a cgroup that were removed: the parent's own, less those of the children that are there.

    The kernel keeps what a removed cgroup used in its parent, exactly, while its own files are gone with it. So the CPU time of a job whose
    cgroup was removed before it could be read is the growth of this number. Meanwhile other children run: they are read before and after
    the parent, and the mean is taken, which leaves an error of microseconds. Where the agent had to wait for a core between these readings,
    they are repeated.
    """

    def __init__(self, tree: Tree, directory: str, version: int) -> None:
        self._tree, self._directory = tree, directory
        self._name, self._parse = cpu_parser(version)
        self.seconds: Value | None = None
        self._read_seconds: Value | None = None
        self._known: Value = 0

    def knows(self, removed: Sequence[JobCgroup | None]) -> bool:
        """Take removed children that were all read after their end, and return True; False if the number must be read."""
        sure = [job.last.get(CPU, 0) for job in removed if job is not None and job.is_sure]
        if self.seconds is None or len(sure) < len(removed):
            return False
        self._known += sum(sure)
        return True

    def read(self, known: set[str]) -> None:
        """Read the number for growth(). known: names of children that were there, of which no removal was reported yet.

        Raises ChildRemoved if one of them is gone, or a child was removed meanwhile: the number has what it used, so its removal must be
        known too. The caller waits for its event, and reads again. The same holds if an event comes before the caller calls growth().
        """
        self._read_seconds = self._read(known)

    def growth(self) -> Value | None:
        """Return by how much the number that was read grew since the last call; None for the first, or if the parent is removed too."""
        before, self.seconds = self.seconds, self._read_seconds
        return None if before is None or self.seconds is None else self.seconds - before

    def divide(self, removed: Sequence[JobCgroup | None], *, is_reported: bool) -> None:
        """Give what was used to the one of the removed children that was not read after its end; of several the sum alone is known.

        None: a child that was no job's. is_reported: whether all that came and were removed are known.
        """
        growth = self.growth()
        missed = [job for job in removed if job is None or not job.is_exact] or [job for job in removed if job is None or not job.is_sure]
        if is_reported and growth is not None and len(missed) == 1 and missed[0] is not None:
            known = sum(job.last.get(CPU, 0) for job in removed if job is not None and job is not missed[0])
            missed[0].last[CPU] = max(growth - self._known - known, missed[0].last.get(CPU, 0))
            missed[0].is_exact = True
        self._known = 0

    def _read(self, known: set[str]) -> Value | None:
        best: Value | None = None
        used = float("inf")
        first = self._of_children()
        for _ in range(ATTEMPTS):
            try:
                own = self._of(self._directory)
            except (OSError, ValueError):
                # It was removed with its last child.
                return None
            last = self._of_children()
            if first.keys() != last.keys() or not known <= first.keys():
                raise ChildRemoved
            before, after = sum(first.values()), sum(last.values())
            if best is None or after - before < used:
                best, used = own - (before + after) / 2, after - before
            if used <= ENOUGH_SECONDS:
                break
            first = last
        return best

    def _of_children(self) -> dict[str, Value]:
        try:
            with os.scandir(self._tree.path(self._directory)) as entries:
                names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
            return {name: self._of(f"{self._directory}/{name}") for name in names}
        except OSError:
            if self._tree.exists(self._directory):
                raise ChildRemoved from None
            return {}

    def _of(self, directory: str) -> Value:
        return self._parse(self._tree.read(f"{directory}/{self._name}"))
