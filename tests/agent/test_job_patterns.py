"""The names that schedulers give their jobs' cgroups."""

import pytest

from tokiod.agent.job_patterns import job_of

JOBS = {
    "sys/fs/cgroup/system.slice/slurmstepd.scope/job_4711": ("slurm", "4711"),
    "sys/fs/cgroup/system.slice/n012_slurmstepd.scope/job_4711": ("slurm", "4711"),
    "sys/fs/cgroup/system.slice/slurmstepd.scope/job_s4Tq9X0000": ("slurm", "s4Tq9X0000"),
    "sys/fs/cgroup/cpuacct/slurm/uid_1000/job_42": ("slurm", "42"),
    "sys/fs/cgroup/cpuacct/slurm_n012/uid_1000/job_42": ("slurm", "42"),
    "sys/fs/cgroup/pbs_jobs.service/jobid/123.server": ("pbs", "123.server"),
    "sys/fs/cgroup/cpuacct/pbspro.service/jobid/123[7].server": ("pbs", "123[7].server"),
    "sys/fs/cgroup/cpuacct/torque/99.head": ("torque", "99.head"),
    "dev/oar_cgroups_links/cpuacct/oar/alice_1234": ("oar", "1234"),
    "sys/fs/cgroup/oar.slice/oar-u1000.slice/alice_1234": ("oar", "1234"),
    "sys/fs/cgroup/cpuacct/htcondor/condor_var_lib_condor_execute_slot1_3@wn7": ("htcondor", "slot1_3"),
    "sys/fs/cgroup/system.slice/condor.service/condor_scratch_slot2@wn7.scope": ("htcondor", "slot2"),
    "sys/fs/cgroup/user.slice/user-500.slice/user@500.service/app.slice/imp-shell-0-f46WnNNSTZ.service": ("flux", "f46WnNNSTZ"),
    "sys/fs/cgroup/system.slice/slurmstepd.scope/job_\x1b[2J": ("slurm", "\\x1b[2J"),
}
OTHERS = [
    "sys/fs/cgroup/system.slice/slurmstepd.scope/job_4711/step_0",
    "sys/fs/cgroup/system.slice/slurmstepd.scope/system",
    "sys/fs/cgroup/system.slice/slurmd.service",
    "sys/fs/cgroup/cpuacct/slurm/uid_1000",
    "sys/fs/cgroup/pbs_jobs.service/jobid",
    "sys/fs/cgroup/user.slice/user-1000.slice",
    "sys/fs/cgroup/system.slice/foo_12.service",
    "sys/fs/cgroup/user.slice/user-500.slice/user@500.service/app.slice/shell-x-y.service",
]


@pytest.mark.parametrize("path", JOBS)
def test_a_jobs_cgroup_is_recognised(path):
    assert job_of(path) == JOBS[path]


@pytest.mark.parametrize("path", OTHERS)
def test_other_cgroups_are_no_jobs(path):
    assert job_of(path) is None
