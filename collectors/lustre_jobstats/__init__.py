"""Lustre's job_stats: what each job did on the OSTs and MDTs, from the servers that count it.

config        what a [[source]] and `archive` take         collector     live: fetch, parse, join
command       one run of lctl on each server               parse         outputs to targets, blocks of jobs to counts
changes       which jobs changed between two polls         job_names     what jobid_name put into a job id
targets       jobs of each target, whichever server has it   to_rows       counts to rows of the job table
saved_files   saved outputs
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collectors.lustre_jobstats.config import Config, Saved

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tokiod.collector import Collector, SavedCollector, Site

__all__ = ["Config", "Saved", "live", "saved"]


def live(config: Config, site: Site) -> Collector:
    """Return the collector of a file system's servers."""
    from collectors.lustre_jobstats.collector import JobStats

    return JobStats(config, site)


def saved(inputs: Sequence[str | Path], options: Saved, site: Site) -> SavedCollector:
    """Return the collector of saved outputs. Raises TokiodError for a file that cannot be read, and for invalid options."""
    from collectors.lustre_jobstats.saved_files import opened

    return opened(inputs, options, site)
