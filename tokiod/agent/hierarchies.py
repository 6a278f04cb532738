"""The cgroup hierarchies of a node, each once: v1 has links, and other mounts of the same hierarchy."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from tokiod.agent.job_patterns import job_of, unknown_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokiod.agent.job_patterns import Forms
    from tokiod.agent.tree import Tree

_V2 = ("sys/fs/cgroup", "sys/fs/cgroup/unified")
_V1 = ("sys/fs/cgroup", "cgroup", "dev/cgroup", "dev/oar_cgroups_links")
"""The last one is OAR's: links, or mounts of its own where the system has none."""
_CONTROLLERS = ("cpuacct", "memory", "pids", "blkio", "freezer", "cpuset", "devices")
"""Where jobs are looked for; of a job in the last three alone nothing but its name is known."""


FIRST_USER = 1000
"""The first uid that systems give to people. Their cgroups may have any name, also that of another one's job."""
_CHOWNED = "htcondor"
"""It gives a job's cgroup to the job's user, who cannot have made it in the scheduler's directory."""
OF_USER, UNKNOWN = "cgroup of a user", "unknown scheduler cgroup"


class Hierarchy(NamedTuple):
    """A tree of cgroups. has_cpu: it counts CPU time."""

    version: int
    root: str
    has_cpu: bool = True

    @property
    def is_v2(self) -> bool:
        """Return whether it is the one of v2."""
        return self.version == 2  # noqa: PLR2004 - cgroup v2


class Found(NamedTuple):
    """What a cgroup is: a job, SCHEDULER:ID, or a directory that may have jobs. reason: of what is counted."""

    job: str = ""
    may_have_jobs: bool = False
    reason: str = ""


def found_in(tree: Tree, directory: str, further: Forms = ()) -> Found:
    """Return what a cgroup is. further: the site's own forms of jobs' cgroups."""
    job = job_of(directory, further)
    if _is_of_user(tree, directory) and (job is None or job[0] != _CHOWNED):
        return Found(reason=OF_USER if job else "")
    return Found(":".join(job)) if job else Found(may_have_jobs=True, reason=UNKNOWN if unknown_in(directory) else "")


def _is_of_user(tree: Tree, directory: str) -> bool:
    """Return whether a user owns a cgroup, as those below user@UID.service: a scheduler's belong to the system."""
    try:
        owner = os.stat(tree.path(directory)).st_uid
    except OSError:
        return False
    return owner >= FIRST_USER and owner != os.geteuid()


def hierarchies(tree: Tree) -> tuple[list[Hierarchy], dict[str, str]]:
    """Return the hierarchies in which jobs may be, and where each controller of v1 is.

    Those with CPU time come first, v1 before v2: where a job is in both, v1 has its other figures, too.
    """
    controllers = dict(reversed([*_mounted(tree)]))
    v2 = [Hierarchy(2, root) for root in _V2 if tree.exists(f"{root}/cgroup.controllers")]
    v1 = [Hierarchy(1, controllers[name], name == "cpuacct") for name in _CONTROLLERS if name in controllers]
    found: dict[tuple[int, int], Hierarchy] = {}
    for one in sorted(v1 + v2, key=lambda one: not one.has_cpu):
        found.setdefault(_identity(tree, one.root), one)
    return list(found.values()), controllers


def _mounted(tree: Tree) -> Iterator[tuple[str, str]]:
    """Yield controllers of v1 and their directories, which have the names of one or several."""
    for base in _V1:
        for name in sorted(tree.names(base), key=lambda name: "," in name):
            if os.path.isdir(tree.path(f"{base}/{name}")):
                yield from ((one, f"{base}/{name}") for one in name.split(",") if one in (*_CONTROLLERS, "perf_event"))


def _identity(tree: Tree, root: str) -> tuple[int, int]:
    found = os.stat(tree.path(root))
    return found.st_dev, found.st_ino
