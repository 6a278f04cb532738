"""Jobs on the OSTs and MDTs of a simulated site, and what its servers print as job_stats.

work        what each job does on each target, and what the target has counted of it at any time
commands    lctl get_param on the servers
expected    what a job table must hold of it
"""
