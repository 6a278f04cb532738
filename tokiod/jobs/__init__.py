"""The job table: what each job did on each target, by time; one file per window, merged into one per day.

table_file      one file: rows of one or more windows, sorted by job, with an index of jobs
merge           several files to one, column by column
merge_process   the same in a process of the lowest priority
table           the files of an archive: store and commit windows, merge what is over
rows            read the rows of a span, of all jobs or of one
activity        what jobs did between two polls, from their counts
"""
