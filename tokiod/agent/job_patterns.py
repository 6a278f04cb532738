"""Which cgroup is a job: schedulers give their jobs' cgroups these names.

A form is that of a path below any parent. What is in a scheduler's own directory and has none of its forms is counted: without that, a
scheduler that names its cgroups in another way would look like an idle node.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tokiod.agent.sensor import clean

if TYPE_CHECKING:
    from collections.abc import Iterable

    Forms = tuple[tuple[str, "re.Pattern[str]"], ...]

_SLUID = r"s[0-9A-Z]{13}"
_PBS = r"(?P<prefix>pbs[^/]*)"
_GRID_ENGINE = r"(?:(?i:uge|age|sge|gridengine|sgeexecd[^/]*|sge_execd))(?:\.slice|\.service)?"
_TASK = r"\d+(?:\.\d+)?"


def _forms(*given: tuple[str, str]) -> Forms:
    return tuple((scheduler, re.compile(rf"(?:^|/)(?:{form})\Z")) for scheduler, form in given)


PATTERNS = _forms(
    # Builds with MULTIPLE_SLURMD put the node's name before the scope.
    ("slurm", r"(?:[^/]+_)?slurmstepd\.scope/job_(?P<id>[^/]+)"),
    # 26.05, without CgroupJobIdPaths.
    ("slurm", rf"(?:[^/]+_)?slurmstepd\.scope/(?P<id>{_SLUID})"),
    ("slurm", r"slurm(?:_[^/]+)?/uid_\d+/job_(?P<id>[^/]+)"),
    ("slurm", rf"slurm(?:_[^/]+)?/uid_\d+/(?P<id>{_SLUID})"),
    # The hook's cgroup_prefix is the site's.
    ("pbs", r"[^/]+\.(?:service|slice)/jobid/(?P<id>[^/]+)"),
    ("pbs", r"pbs[^/]*\.(?:service|slice)/jobs/(?P<id>\d[^/]*)"),
    # 18 and older.
    ("pbs", rf"{_PBS}\.slice/(?P=prefix)-(?P<id>\d[^/]*)\.slice"),
    ("pbs", r"pbs(?:pro|_jobs)?/(?P<id>\d[^/]*)"),
    ("torque", r"torque/(?P<id>[^/]+)"),
    ("lsf", r"lsf[^/]*/(?:[^/]+/)*job\.(?P<id>\d+(?:\[\d+\])?)(?:\.[^/]*)?"),
    # Univa's and Altair's, and Son of Grid Engine.
    ("sge", rf"{_GRID_ENGINE}/(?P<id>{_TASK})"),
    # Open and Gridware Cluster Scheduler, whose slice has any name: a job in a scope, a parallel one in a slice of scopes.
    ("sge", rf"(?P<name>[a-z][a-z0-9]+)-jobs\.slice/(?P=name)\.(?P<id>{_TASK})\.scope"),
    ("sge", rf"(?P<name>[a-z][a-z0-9]+)-jobs\.slice/(?P=name)-jobs-(?P<id>{_TASK})\.slice"),
    ("oar", r"oar(?:\.slice)?/(?:[^/]+/)*[^/]*(?:_|-j|j=)(?P<id>\d+)(?:\.slice|\.scope)?"),
    # HTCondor names the slot, not the job: BASE_CGROUP, EXECUTE with _ for /, and the slot's name; since 24.8 with .slice on v2.
    ("htcondor", r"[^/]*_(?P<id>slot\d+(?:_\d+)?)@[^/]*"),
    ("htcondor", r"(?:htcondor/[^/]*|condor[^/]*)_(?P<id>slot\d+(?:_\d+)?)(?:\.slice)?"),
    # The id in ASCII F58.
    ("flux", r"(?:imp-)?shell-\d+-(?P<id>f[1-9A-HJ-NP-Za-km-z]+)\.service"),
)

_HOMES = _forms(
    ("slurm", r"(?:[^/]+_)?slurmstepd\.scope/(?!system$)[^/]+"),
    ("slurm", r"slurm(?:_[^/]+)?/(?:uid_\d+/[^/]+|(?!uid_\d+$|system$)[^/]+)"),
    ("pbs", r"pbs[^/]*\.service/(?:jobid|jobs)/[^/]+"),
    ("pbs", r"pbs[^/]*\.slice/(?!jobid$|jobs$)[^/]+"),
    ("pbs", r"pbs(?:pro|_jobs)?/[^/]+"),
    ("lsf", r"lsf(?:\.slice)?/[^/]+/[^/]+"),
    ("sge", rf"{_GRID_ENGINE}/[^/]+"),
    ("sge", r"(?P<name>[a-z][a-z0-9]+)-jobs\.slice/(?P=name)[.-][^/]+"),
    ("oar", r"oar(?:\.slice)?/(?:oar-u?\d+\.slice/[^/]+|(?!oar-u?\d+\.slice$)[^/]+)"),
    ("htcondor", r"htcondor/[^/]+"),
)
"""What is there and is no job's cgroup is of an unknown form; what schedulers put there for themselves is left out."""

_ESCAPE = re.compile(r"\\x([0-9a-fA-F]{2})")


def site_forms(texts: Iterable[str]) -> Forms:
    """Return the forms of SCHEDULER=REGULAR EXPRESSION, whose one group is the id. Raise ValueError."""
    return tuple(_site_form(text) for text in texts)


def _site_form(text: str) -> tuple[str, re.Pattern[str]]:
    scheduler, _, form = text.partition("=")
    try:
        pattern = re.compile(rf"(?:^|/)(?:{form})\Z")
    except (re.error, OverflowError, RecursionError):
        pattern = None
    if pattern is None or pattern.groups != 1 or not re.fullmatch(r"[a-z][a-z0-9_-]*", scheduler):
        raise ValueError(f'expected SCHEDULER=REGULAR EXPRESSION with one group, the id, as in "moab=moab/job_([0-9]+)", got "{text}"')
    return scheduler, pattern


def job_of(path: str, further: Forms = ()) -> tuple[str, str] | None:
    """Return the scheduler and the id of the job whose cgroup has this path; None if it is not the cgroup of a job.

    further: the site's own forms, which come first.
    """
    for scheduler, pattern in (*further, *PATTERNS):
        if match := pattern.search(path):
            found = match[match.lastgroup or 1]
            return scheduler, clean(_ESCAPE.sub(_unescaped, found) if path.endswith(".slice") else found)
    return None


def _unescaped(match: re.Match[str]) -> str:
    return chr(int(match[1], 16))


def unknown_in(path: str) -> str:
    """Return the scheduler in whose directory a cgroup is that is no job's; an empty text elsewhere."""
    return next((scheduler for scheduler, pattern in _HOMES if pattern.search(path)), "")
