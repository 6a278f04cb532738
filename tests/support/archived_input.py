"""What `tokioctl archive KIND FILE` makes of a file: the cells or rows, and what it says."""

from __future__ import annotations

import h5py
import numpy as np
from click.testing import CliRunner

from tokiod.cli.tokioctl import main
from tokiod.jobs.rows import read
from tokiod.window import iso
from tokiod.window_data import job_parts


def archived(kind, path, span, *options):
    """Return the path of what was archived, None for nothing, and what the command printed."""
    out = path.parent / "archived"
    out.unlink(missing_ok=True)
    times = ("--start", iso(span[0]), "--end", iso(span[1]))
    result = CliRunner().invoke(main, ["archive", kind, *map(str, (path, "--output", out, *times, *options))])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert (result.exit_code == 0) == out.exists(), (result.exit_code, result.stderr)
    return out if out.exists() else None, result.stderr


def cells(path):
    """Return {(dataset, column, epoch seconds): value} of a TTS file."""
    found = {}
    with h5py.File(path, "r") as file:
        for group in (group for group in file if not group.startswith("_")):
            for name, node in file[group].items():
                if name != "timestamps" and node.ndim == 2:
                    values, times = node[...], file[group]["timestamps"][...].tolist()
                    columns = [column.decode() for column in node.attrs["columns"]]
                    there = ~((values == 0) & np.signbit(values))
                    found |= {
                        (f"{group}/{name}", columns[c], times[r]): values[r, c].item() for r, c in zip(*np.nonzero(there), strict=True)
                    }
    return found


def rows(path):
    """Return ((job, user, command, node), target, epoch seconds, ended, counts without zeros) for each row of a job table's file."""
    found = read([path], 0, 2**33)
    return [
        (
            tuple(job_parts(found.jobs[found.job[row]])[part] or None for part in ("job", "user", "command", "node")),
            found.targets[found.target[row]].decode(),
            int(found.columns["time"][row]),
            int(found.columns["ended"][row]),
            {name: int(values[row]) for name, values in found.counts.items() if values[row]},
        )
        for row in range(len(found))
    ]
