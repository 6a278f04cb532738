"""Damaged files of days, and what reading them must never cause: a crash, a hang, or an exception other than a sentence.

    python -m tests.fuzz.damaged_days [--inputs N] [--seed X]

A read of a damaged file either has cells or raises a TokiodError or an OSError. Each input is read by tokiod.open in every way: datasets,
columns, cells, reductions, completeness; and by `tokioctl summarize`, `health` and `export` of the file. It prints one line,
damaged days N read R refused F crashes 0 seed X, and exits 1 after a crash.
"""

from __future__ import annotations

import argparse
import random
import resource
import signal
import sys
import tempfile
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import h5py
import numpy as np
from click.testing import CliRunner
from stitched_days import READ, save

import tokiod
from tokiod.cli.tokioctl import main as tokioctl
from tokiod.errors import TokiodError
from tokiod.reader.span import Span

INPUT_SECONDS = 60
MEMORY_BYTES = 4 * 2**30
"""Of the process: a damaged size must not take the memory of the machine."""
HEAD_BYTES = 8192
"""Most of what HDF5 itself reads is in the first bytes of a file."""
FORMS = ("live", "sealed", "foreign")


def days(directory: Path) -> dict[str, bytes]:
    """Return a file of each form."""
    values = np.round(np.random.default_rng(1).random((288, 40)) * 50)
    values[values < 5] = np.nan
    found = {}
    for form in FORMS[:2]:
        place = save(directory, 1, [f"OST{i:04x}" for i in range(40)], values, 300, is_sealed=form == "sealed")
        found[form] = place.path.read_bytes()
        place.path.unlink()
    with h5py.File(directory / "foreign.hdf5", "w") as file:
        file["datatargets/timestamps"] = place.start + 300 * np.arange(288)
        made = file["datatargets"].create_dataset("readbytes", data=np.nan_to_num(values), compression="gzip")
        made.attrs["columns"] = np.array([f"OST{i:04x}".encode() for i in range(40)])
    return {**found, "foreign": (directory / "foreign.hdf5").read_bytes()}


def damaged(chance: random.Random, data: bytes) -> bytes:
    """Change bytes, or lose the end."""
    if chance.random() < 0.15:
        return data[: chance.randrange(len(data))]
    changed = bytearray(data)
    for _ in range(chance.choice([1, 1, 2, 5, 20])):
        at = chance.randrange(min(HEAD_BYTES, len(data)) if chance.random() < 0.7 else len(data))
        length = chance.choice([1, 1, 1, 4, 8, 100])
        changed[at : at + length] = chance.choice([bytes(length), b"\xff" * length, chance.randbytes(length)])
    return bytes(changed[: len(data)])


def read(path: Path) -> bool:
    """Read a file in every way; returns whether it could be read. Raises what a reader must not raise."""
    try:
        span = Span(*_SPAN)
        with tokiod.open("fs", span.start, span.end, path=path) as archive:
            for name in archive.datasets():
                archive.columns(name)
                values = archive.array(name)[...]
                assert values.dtype == np.float64
            archive.array(READ)[10:20, 3]
            archive.reduce(READ, "1h", "sum")
            archive.completeness()
    except (TokiodError, OSError) as error:
        if not str(error):
            raise AssertionError("an error without a sentence") from error
        return False
    return True


COMMANDS = (
    ("summarize", "--json"),
    ("summarize", "--bins", "3", "--json"),
    ("health", "--json"),
    ("export", READ, "--csv", "-"),
    ("export", "--json"),
)


def ask(path: Path) -> None:
    """Ask each command that takes a FILE about it. Raises what a command must not raise."""
    for name, *options in COMMANDS:
        done = CliRunner().invoke(
            tokioctl, [name, str(path), *options, "--config", "/nonexistent"], catch_exceptions=False, prog_name="tokioctl"
        )
        if done.exit_code not in (0, 2) or (done.exit_code == 2 and not done.stderr.startswith("tokioctl: ")):
            raise AssertionError(f"{name} {' '.join(options)}: exit {done.exit_code}: {done.stderr}")


_SPAN = (1_514_700_000, 1_514_900_000)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=None)
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(2**32)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    crashes, refused = 0, 0
    with tempfile.TemporaryDirectory(prefix="tokiod-damaged-") as place:
        forms = days(Path(place))
        path = Path(place) / "day.hdf5"
        assert all(_attempt(path, data) == "" for data in forms.values()), "an undamaged file can't be read"
        for number in range(arguments.inputs):
            chance = random.Random(f"{seed} {number}")
            form = FORMS[number % len(FORMS)]
            # HDF5 may kill the process: this line is the last one then.
            print(f"input {number} of seed {seed}: {form}", end="\r", file=sys.stderr, flush=True)
            failure = _attempt(path, damaged(chance, forms[form]))
            refused += failure == "refused"
            if failure not in ("", "refused"):
                crashes += 1
                print(f"input {number} of seed {seed}: {form}\n{failure}", file=sys.stderr)
    print(f"damaged days {arguments.inputs} read {arguments.inputs - refused - crashes} refused {refused} crashes {crashes} seed {seed}")
    return 1 if crashes else 0


def _attempt(path: Path, data: bytes) -> str:
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    signal.alarm(INPUT_SECONDS)  # it ends the process
    try:
        outcome = "" if read(path) else "refused"
        ask(path)
    except Exception:  # noqa: BLE001 - whatever it is, it is what the test is about
        return traceback.format_exc()
    else:
        return outcome
    finally:
        signal.alarm(0)


if __name__ == "__main__":
    sys.exit(main())
