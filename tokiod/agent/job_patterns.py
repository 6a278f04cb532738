"""Which cgroup is a job: schedulers give their jobs' cgroups these names."""

from __future__ import annotations

import re

from tokiod.agent.sensor import clean

PATTERNS = tuple(
    (scheduler, re.compile(pattern))
    for scheduler, pattern in (
        # 22.05 and newer on v2; Debian builds put the node's name before it; from 26.05 on the id may be a SLUID.
        ("slurm", r"(?:^|/)(?:[^/]+_)?slurmstepd\.scope/job_([^/]+)$"),
        ("slurm", r"(?:^|/)slurm(?:_[^/]+)?/uid_\d+/job_([^/]+)$"),
        ("pbs", r"(?:^|/)pbs(?:_jobs|pro)(?:\.service|\.slice)/jobid/([^/]+)$"),
        ("torque", r"(?:^|/)torque/([^/]+)$"),
        ("oar", r"(?:^|/)oar(?:\.slice)?/(?:[^/]+/)*[^/]+_(\d+)$"),
        # HTCondor names the slot, not the job.
        ("htcondor", r"(?:^|/)condor(?:[^/]*)_(slot\d+(?:_\d+)?)@[^/]*$"),
        # The id in ASCII F58.
        ("flux", r"(?:^|/)(?:imp-)?shell-\d+-(f[1-9A-HJ-NP-Za-km-z]+)\.service$"),
    )
)


def job_of(path: str) -> tuple[str, str] | None:
    """Return the scheduler and the id of the job whose cgroup has this path; None if it is not the cgroup of a job."""
    for scheduler, pattern in PATTERNS:
        if match := pattern.search(path):
            return scheduler, clean(match[1])
    return None
