"""The names that schedulers give their jobs' cgroups."""

import pytest

from tokiod.agent.job_patterns import job_of, site_forms, unknown_in

V1, V2 = "sys/fs/cgroup/cpuacct/", "sys/fs/cgroup/"
JOBS = {
    f"{V2}system.slice/slurmstepd.scope/job_4711": ("slurm", "4711"),
    f"{V2}system.slice/n012_slurmstepd.scope/job_4711": ("slurm", "4711"),
    f"{V2}system.slice/slurmstepd.scope/sEKNKTV3WPV500": ("slurm", "sEKNKTV3WPV500"),
    f"{V2}system.slice/n012_slurmstepd.scope/s5K1KKYAYG5D00": ("slurm", "s5K1KKYAYG5D00"),
    f"{V1}slurm/uid_1000/job_42": ("slurm", "42"),
    f"{V1}slurm_n012/uid_1000/job_42": ("slurm", "42"),
    f"{V2}pbs_jobs.service/jobid/123.server": ("pbs", "123.server"),
    f"{V1}pbspro.service/jobid/123[7].server": ("pbs", "123[7].server"),
    f"{V1}pbs.service/jobid/123.server": ("pbs", "123.server"),
    f"{V1}site.service/jobid/123.server": ("pbs", "123.server"),
    f"{V2}pbs_jobs.service/jobs/12345": ("pbs", "12345"),
    f"{V2}pbs_jobs.service/jobs/12345.2": ("pbs", "12345.2"),
    f"{V2}pbspro.service/jobs/12345.server": ("pbs", "12345.server"),
    f"{V1}pbspro.slice/pbspro-123.server.slice": ("pbs", "123.server"),
    f"{V1}pbspro.slice/pbspro-123\\x5b7\\x5d.head\\x2dnode.slice": ("pbs", "123[7].head-node"),
    f"{V1}pbspro/0.headnode": ("pbs", "0.headnode"),
    f"{V1}pbs/7.headnode": ("pbs", "7.headnode"),
    f"{V1}torque/99.head": ("torque", "99.head"),
    f"{V1}lsf/prod_cluster/job.1011.28735.1452015131": ("lsf", "1011"),
    f"{V2}lsf/prod_cluster/job.1011[3].28735.1452015131": ("lsf", "1011[3]"),
    f"{V1}UGE/4711.1": ("sge", "4711.1"),
    f"{V2}AGE/4711.12": ("sge", "4711.12"),
    f"{V1}sge/4711.1": ("sge", "4711.1"),
    f"{V2}system.slice/sgeexecd.p6444.service/4711.1": ("sge", "4711.1"),
    f"{V2}ocs8012.slice/ocs8012-jobs.slice/ocs8012.1234.scope": ("sge", "1234"),
    f"{V2}ocs8012.slice/ocs8012-jobs.slice/ocs8012.1234.7.scope": ("sge", "1234.7"),
    f"{V2}grid.slice/grid-jobs.slice/grid-jobs-1234.slice": ("sge", "1234"),
    f"{V2}grid.slice/grid-jobs.slice/grid-jobs-1234.7.slice": ("sge", "1234.7"),
    "dev/oar_cgroups_links/cpuacct/oar/alice_1234": ("oar", "1234"),
    f"{V1}oardocker/node1/oar/alice.b_c_1234": ("oar", "1234"),
    f"{V2}oar.slice/oar-u1000.slice/alice_1234": ("oar", "1234"),
    f"{V2}oar.slice/alice_1234.scope": ("oar", "1234"),
    f"{V2}oar.slice/oar-u1000.slice/oar-u1000-j45670.slice": ("oar", "45670"),
    f"{V2}oar.slice/oar-1000.slice/oar-1000-j45670.slice": ("oar", "45670"),
    f"{V1}htcondor/condor_var_lib_condor_execute_slot1_3@wn7": ("htcondor", "slot1_3"),
    f"{V1}htcondor/condor_var_lib_condor_execute_slot1": ("htcondor", "slot1"),
    f"{V2}system.slice/htcondor/_scratch_condor_slot1_23@wn7.example.org": ("htcondor", "slot1_23"),
    f"{V2}system.slice/condor.service/site/_var_lib_condor_execute_slot4@wn7": ("htcondor", "slot4"),
    f"{V2}system.slice/condor.service/condor_scratch_slot2@wn7.scope": ("htcondor", "slot2"),
    f"{V2}system.slice/condor.service/htcondor/condor_scratch_slot2_1@wn7.slice": ("htcondor", "slot2_1"),
    f"{V2}system.slice/condor.service/htcondor/condor_scratch_slot2.slice": ("htcondor", "slot2"),
    f"{V2}user.slice/user-500.slice/user@500.service/app.slice/imp-shell-0-f46WnNNSTZ.service": ("flux", "f46WnNNSTZ"),
    f"{V2}system.slice/slurmstepd.scope/job_\x1b[2J": ("slurm", "\\x1b[2J"),
}
OTHERS = [
    f"{V2}system.slice/slurmstepd.scope/job_4711/step_0",
    f"{V2}system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_0",
    f"{V2}system.slice/slurmstepd.scope",
    f"{V2}system.slice/slurmstepd.scope/system",
    f"{V2}system.slice/slurmd.service",
    f"{V2}system.slice/sEKNKTV3WPV500",
    f"{V1}slurm",
    f"{V1}slurm/system",
    f"{V1}slurm/uid_1000",
    f"{V2}pbs_jobs.service",
    f"{V2}pbs_jobs.service/jobid",
    f"{V2}pbs_jobs.service/jobs",
    f"{V2}other.service/jobs/12",
    f"{V1}pbspro.slice",
    f"{V1}lsf/prod_cluster",
    f"{V2}system.slice/lsfd.service",
    f"{V1}UGE",
    f"{V2}storage/4711.1",
    f"{V2}ocs8012.slice/ocs8012-execd.service",
    f"{V2}ocs8012.slice/ocs8012-jobs.slice",
    f"{V2}ocs8012.slice/shepherds.scope",
    f"{V2}oar.slice/oar-u1000.slice",
    f"{V2}system.slice/htcondor",
    f"{V2}user.slice/user-1000.slice",
    f"{V2}system.slice/foo_12.service",
    f"{V2}user.slice/user-500.slice/user@500.service/app.slice/shell-x-y.service",
]
UNKNOWN = {
    f"{V2}system.slice/slurmstepd.scope/j-4711": "slurm",
    f"{V2}system.slice/slurmstepd.scope/sEKNKTV3WPV5": "slurm",
    f"{V1}slurm/4711": "slurm",
    f"{V1}slurm/uid_1000/4711": "slurm",
    f"{V2}pbs_jobs.service/jobs/job-12": "pbs",
    f"{V1}pbspro.slice/x-12.slice": "pbs",
    f"{V1}pbspro/job-12": "pbs",
    f"{V1}lsf/prod/4711": "lsf",
    f"{V1}UGE/job4711": "sge",
    f"{V2}ocs8012.slice/ocs8012-jobs.slice/ocs8012-x.scope": "sge",
    f"{V1}oar/alice": "oar",
    f"{V2}oar.slice/oar-u1000.slice/x": "oar",
    f"{V1}htcondor/condor_execute_4711": "htcondor",
}


@pytest.mark.parametrize("path", JOBS)
def test_a_jobs_cgroup_is_recognised(path):
    assert job_of(path) == JOBS[path]


@pytest.mark.parametrize("path", OTHERS)
def test_other_cgroups_are_no_jobs_and_known(path):
    assert (job_of(path), unknown_in(path)) == (None, "")


@pytest.mark.parametrize("path", UNKNOWN)
def test_what_a_scheduler_made_and_is_no_known_job_is_unknown(path):
    assert (job_of(path), unknown_in(path)) == (None, UNKNOWN[path])


def test_a_sites_own_form_is_below_any_parent_and_comes_first():
    forms = site_forms([r"moab=moab/job_(\d+)", r"pbs=pbspro/(\d+)[^/]*"])
    assert job_of(f"{V1}moab/job_12", forms) == ("moab", "12")
    assert job_of(f"{V1}xmoab/job_12", forms) is None
    assert job_of(f"{V1}moab/job_12/step", forms) is None
    assert job_of(f"{V1}pbspro/0.headnode", forms) == ("pbs", "0")


@pytest.mark.parametrize("text", ["", "moab", "=x(y)", "moab=", "moab=x", "moab=(a)(b)", "moab=((a)", "mo ab=(a)"])
def test_a_form_without_a_scheduler_or_with_other_than_one_group_is_refused(text):
    with pytest.raises(ValueError, match="expected SCHEDULER=REGULAR EXPRESSION"):
        site_forms([text])
