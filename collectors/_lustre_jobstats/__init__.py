"""Lustre's job_stats: what each job did on an OST or MDT, from the text to what changed since the last poll.

parse         pure: the outputs of lctl to targets, and blocks of jobs to counts
changes       what each job of a target did between two polls
job_names     what jobid_name put into a job id: job, command, user, node

The name begins with an underscore because this is no kind yet: its rows are for the job table, and until that exists the writer would
refuse each window of such a source.
"""
