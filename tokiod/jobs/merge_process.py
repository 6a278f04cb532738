"""`python -m tokiod.jobs.merge_process PARENT USERS TARGET PATH...`: merge files of the job table at the lowest priority.

A process and not a thread: a thread holds HDF5's lock while it waits for a processor, and on a busy machine windows would wait with it.
USERS: `keep`, or `remove` from the names of jobs. A failure is a line on stderr and exit 1. It ends with its parent.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tokiod.jobs.identity import without_users
from tokiod.jobs.table import LOWEST_PRIORITY, replace_by_merged
from tokiod.runtime.process_setup import die_with_parent, restrict_rights
from tokiod.tts.live.files import REAL


def main() -> None:
    """Merge. Raises SystemExit with a line about what failed."""
    parent, users, target, *paths = sys.argv[1:]
    die_with_parent(int(parent))
    restrict_rights()
    os.nice(LOWEST_PRIORITY)
    try:
        replace_by_merged([Path(path) for path in paths], Path(target), REAL, without_users if users == "remove" else None)
    except Exception as error:  # noqa: BLE001 - HDF5 raises anything for a damaged file
        raise SystemExit(" ".join(f"{error}".split())) from None


if __name__ == "__main__":
    main()
