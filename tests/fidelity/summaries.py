"""`make fidelity-reading`: random spans and bins of random days by tokiod and by pytokio 0.13.0; summaries key by key, frames cell by cell.

    python -m tests.fidelity.summaries --pytokio PYTHON [--cases N] [--seed X]

Each case has three days, live, sealed or absent, of one to six components, complete or with missing cells, rows and columns. Each is asked
for a job's summary, a frame, summarize_tts of a day and bins of it. A number that differs must follow from pytokio's by a row of
docs/fidelity.md: the rule is computed, and what does not follow from it is an error. Prints the numbers of equal ones and of differences by
reason; exits 1 if one is unexplained.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
from click.testing import CliRunner

import tokiod
from tokiod.analysis.job import OPERATIONS
from tokiod.cli.tokioctl import main as tokioctl
from tokiod.reader.errors import NoData, NoSuchDataset
from tokiod.tts.live.create import create
from tokiod.tts.live.live_file import LiveFile
from tokiod.tts.sealed.seal import seal
from tokiod.tts.spec import FileSpec, GroupSpec, MatrixSpec

ZONE = ZoneInfo("America/Los_Angeles")
FIRST, DAYS, DAY = date(2018, 1, 28), 3, 86400
STEPS = (300, 600, 900, 1800)
BYTES = ("datatargets/readbytes", "datatargets/writebytes")
LOADS = ("dataservers/cpuload", "mdservers/cpuload")
METADATA = tuple(f"mdtargets/{name}s" for name in OPERATIONS)
RELATIVE_ERROR = 1e-12
SHOWN = 20

AS_ZERO = "missing cells count as 0"
ALL_MISSING, ALL_MISSING_NAN = "no cell has a value, 0", "no cell has a value, NaN"
TEBIBYTES = "ave_tibs holds GiB"
NO_ROW = "rows in which every cell is missing count as 0"
REST = "bins that do not divide the day"
ABSENT = "rows of a day without a file"


@dataclass
class Case:
    """Days [FIRST, FIRST + DAYS), NaN where missing; cells: by dataset and day, None for a day without a file."""

    directory: Path
    step: int
    cells: dict[str, list[np.ndarray | None]]
    job: tuple[int, int]
    frame: tuple[str, int, int]
    day: int
    bins: int

    @property
    def path(self) -> str:
        return str(self.directory / f"{FIRST + timedelta(self.day):%Y-%m-%d}.hdf5")

    def questions(self) -> list[tuple[str, list[str]]]:
        """Return what pytokio is asked."""
        dataset, *span = self.frame
        start, end = (datetime.fromtimestamp(at, ZONE).replace(tzinfo=None).isoformat(" ") for at in self.job)
        return [
            ("job", ["--file-system", "fs", "--start-time", start, "--end-time", end]),
            ("frame", [dataset, *(datetime.fromtimestamp(at, ZONE).replace(tzinfo=None).isoformat() for at in span)]),
            ("tts", ["--timesteps", "--columns", self.path]),
            ("bins", ["--summary", "--bins", str(self.bins), self.path]),
        ]


def midnight(day: int) -> int:
    return int(datetime.combine(FIRST + timedelta(day), datetime.min.time(), ZONE).timestamp())


def made(rng: random.Random, directory: Path) -> Case:
    """Write the days of a random case."""
    directory.mkdir()
    generator, step = np.random.default_rng(rng.randrange(2**32)), rng.choice(STEPS)
    kinds = [rng.choice(("live", "sealed", "sealed", "absent")) for _ in range(DAYS)]
    day = rng.randrange(DAYS)
    kinds[day] = rng.choice(("live", "sealed"))
    missing = rng.choice((0.0, 0.0, 0.1, 0.6))
    widths = {name.partition("/")[0]: rng.randint(1, 6) for name in (*BYTES, *LOADS, *METADATA)}
    cells: dict[str, list[np.ndarray | None]] = {name: [] for name in (*BYTES, *LOADS, *METADATA)}
    for number, kind in enumerate(kinds):
        of_day = {name: _random(generator, DAY // step, widths[name.partition("/")[0]], name, missing) for name in cells}
        for name, values in of_day.items():
            cells[name].append(None if kind == "absent" else values)
        if kind != "absent":
            _write(directory / f"{FIRST + timedelta(number):%Y-%m-%d}.hdf5", midnight(number), step, of_day, is_sealed=kind == "sealed")
    start = midnight(day) + rng.randrange(DAY - 3 * step)
    length = rng.randint(3 * step, 2 * DAY)
    first = rng.randrange(midnight(0), midnight(DAYS) - 2 * step)
    span = (first, min(first + rng.randint(2 * step, 2 * DAY), midnight(DAYS)))
    divisors = [n for n in range(1, DAY // step + 1) if (DAY // step) % n == 0]
    bins = rng.choice(divisors) if rng.random() < 0.8 else rng.randint(1, DAY // step)
    return Case(directory, step, cells, (start, min(start + length, midnight(DAYS))), (rng.choice(tuple(cells)), *span), day, bins)


def _random(generator: np.random.Generator, rows: int, columns: int, name: str, missing: float) -> np.ndarray:
    values = generator.random((rows, columns)) * 100 if name in LOADS else np.floor(generator.gamma(0.3, 1e9, (rows, columns)))
    values[generator.random(values.shape) < 0.05] = 0.0
    if missing:
        values[generator.random(values.shape) < missing] = np.nan
        values[generator.random(rows) < missing / 4] = np.nan
        values[:, generator.random(columns) < missing / 4] = np.nan
    return values


def _write(path: Path, start: int, step: int, cells: dict[str, np.ndarray], *, is_sealed: bool) -> None:
    groups = {name.partition("/")[0]: GroupSpec(step, "lmt") for name in cells}
    columns = {name: tuple(f"c{i:02d}" for i in range(values.shape[1])) for name, values in cells.items()}
    create(path, FileSpec(start, start + DAY, groups, {n: MatrixSpec(of, counter=False) for n, of in columns.items()}), created=start)
    file = LiveFile.open(path)
    for name, values in cells.items():
        file.cells[name].write_rows(0, np.where(np.isnan(values), -0.0, values))
    file.commit()
    file.close()
    if is_sealed:
        seal(path, path, updated=start + DAY)


class Comparison:
    """What was equal, what differs by which reason, and what is not explained."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.errors: list[str] = []

    def check(self, place: str, ours: Any, theirs: Any, rules: dict[str, Any] | None = None) -> None:
        """Compare two numbers. rules: by reason, what pytokio has in place of ours where they differ."""
        if _close(ours, theirs):
            self.counts["equal"] += 1
            return
        reason = next((reason for reason, value in (rules or {}).items() if _close(value, theirs)), None)
        if reason is None:
            self.errors.append(f"{place}: tokiod {ours!r}, pytokio {theirs!r}")
        else:
            self.counts[reason] += 1


def _close(one: Any, other: Any) -> bool:
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return (math.isnan(one) and math.isnan(other)) or math.isclose(one, other, rel_tol=RELATIVE_ERROR, abs_tol=0.0)
    return bool(one == other)


def compare(case: Case, answers: list[Any], found: Comparison) -> None:
    job, frame, tts, binned = answers
    _compare_job(case, job[0], found)
    _compare_frame(case, frame, found)
    ours = _printed("summarize", case.path, "--timesteps", "--columns", "--bins", str(case.bins), "--timezone", str(ZONE))
    for part in ("total", "timesteps", "columns"):
        _compare_sums(part, ours[part], tts[part], found)
    _compare_bins(case, ours, binned, found)


def _printed(*words: str) -> Any:
    done = CliRunner().invoke(tokioctl, [*words, "--json", "--clock", f"{midnight(DAYS + 1)}@0x0"], catch_exceptions=False)
    if done.exit_code == 2:
        raise ValueError(done.output)
    return json.loads(done.stdout)


def _compare_sums(place: str, ours: Any, theirs: Any, found: Comparison) -> None:
    if isinstance(theirs, dict):
        if theirs.keys() != ours.keys():
            found.errors.append(f"{place}: keys {sorted(theirs.keys() ^ ours.keys())}")
        for key in theirs.keys() & ours.keys():
            _compare_sums(f"{place} {key}", ours[key], theirs[key], found)
    else:
        found.check(place, ours, theirs, {ALL_MISSING: 0.0} if ours is None else None)


def _compare_frame(case: Case, theirs: Any, found: Comparison) -> None:
    """Each cell of pytokio's frame; the rows that it does not have are those of days without a file."""
    dataset, start, end = case.frame
    try:
        ours = tokiod.open("fs", start, end, path=f"{case.directory}/%Y-%m-%d.hdf5").array(dataset)
    except (NoData, NoSuchDataset):
        # A file of a day whose rows all begin before the span: pytokio has its columns and no row.
        found.check("frame", None, None if theirs is None or not theirs[1] else theirs)
        return
    values = ours[...]
    rows = {int(time): row for time, row in zip(ours.times, values, strict=True)}
    cells, times, columns = theirs if theirs is not None else ([], [], list(ours.columns))
    if columns != list(ours.columns):
        found.errors.append(f"frame {dataset}: columns {columns}, {ours.columns}")
        return
    for time_of_row, row in zip(times, cells, strict=True):
        own = rows.pop(time_of_row, None)
        if own is None:
            found.errors.append(f"frame {dataset}: pytokio has a row {time_of_row}")
            continue
        for one, other in zip(own.tolist(), row, strict=True):
            found.check(f"frame {dataset} {time_of_row}", one, other)
    for time_of_row, row in rows.items():
        if _has_file(case, dataset, time_of_row) or not np.isnan(row).all():
            found.errors.append(f"frame {dataset}: only tokiod has a row {time_of_row}")
        else:
            found.counts[ABSENT] += 1


def _has_file(case: Case, dataset: str, at: int) -> bool:
    return case.cells[dataset][(at - midnight(0)) // DAY] is not None


def _of_job(case: Case, dataset: str) -> np.ndarray:
    """Return the cells of the rows of a job, without those of days that have no file."""
    days = [
        (midnight(n) + case.step * np.arange(len(of_day)), of_day) for n, of_day in enumerate(case.cells[dataset]) if of_day is not None
    ]
    times, cells = (np.concatenate(one) for one in zip(*days, strict=True))
    return cells[(times >= case.job[0]) & (times < case.job[1])]


def _compare_job(case: Case, theirs: dict[str, Any], found: Comparison) -> None:
    start, end = (datetime.fromtimestamp(at, ZONE).isoformat() for at in case.job)
    ours = _printed(
        "job", "--system", "fs", "--start", start, "--end", end, "--path", f"{case.directory}/%Y-%m-%d.hdf5", "--timezone", str(ZONE)
    )
    ours = {key: value for key, value in ours.items() if key.startswith("fs_") and not key.startswith("fs_sys_")}
    theirs = {key: value for key, value in theirs.items() if key.startswith("fs_")}
    if ours.keys() != theirs.keys():
        found.errors.append(f"job: keys {sorted(ours.keys() ^ theirs.keys())}")
    for key in ours.keys() & theirs.keys():
        found.check(f"job {key}", ours[key], theirs[key], _rules_of_job(case, key, ours[key]))


def _rules_of_job(case: Case, key: str, ours: Any) -> dict[str, Any]:
    """Return pytokio's number by its own rule, where the documents give a reason for another one."""
    rules: dict[str, Any] = {ALL_MISSING_NAN: math.nan, ALL_MISSING: 0.0} if ours is None else {}
    for dataset, how in zip(BYTES, ("read", "written"), strict=True):
        if key.endswith(f"_{how}_per_sec"):
            rows = np.nansum(_of_job(case, dataset), axis=1) / case.step
            rules[NO_ROW] = float({"ave": np.mean, "max": np.max, "min": np.min}[key[3:6]](rows)) / (2**30 if "gibs" in key else 1)
    absent = sum(not _has_file(case, BYTES[0], at) for at in range(_first_row(case), case.job[1], case.step))
    if absent and key.startswith(("fs_frac",)) and ours is not None:
        cells = _of_job(case, BYTES[1] if key.endswith("written") else BYTES[0] if key.endswith("read") else LOADS[0])
        rules[ABSENT] = float((np.isnan(cells) if key == "fs_frac_missing" else cells == 0).mean())
    return rules


def _first_row(case: Case) -> int:
    return midnight(0) - (midnight(0) - case.job[0]) // case.step * case.step


def _compare_bins(case: Case, ours: Any, theirs: Any, found: Comparison) -> None:
    rows = DAY // case.step
    if rows % case.bins:
        last = max(one["indexf"] for one in ours["bins"].values())
        found.check("bins: all rows are in one", last, rows)
        found.counts[REST] += len(theirs["bins"])
        return
    _check_keys("bins", ours["bins"], theirs["bins"], found)
    for at, one in theirs["bins"].items():
        own = ours["bins"].get(at, {})
        _check_keys(f"bin {at}", own, one, found)
        for key in one.keys() & own.keys():
            found.check(f"bin {at} {key}", own[key], one[key], _rule_of_bin(case, key, own))
    own, other = ours["summary"], theirs["summary"]
    _check_keys("summary", own, other, found)
    for key in own.keys() & other.keys():
        rules: dict[str, Any] = {ALL_MISSING: 0.0} if own[key] is None else {}
        if "ave_tibs" in key and own[key] is not None:
            rules[TEBIBYTES] = own[key] * 1024
        if key in {"oss_ave", "mds_ave"}:
            rules[AS_ZERO] = float(np.nansum(_of_day(case, key[:3]))) / _of_day(case, key[:3]).size
        found.check(f"summary {key}", own[key], other[key], rules)


def _check_keys(place: str, ours: dict[str, Any], theirs: dict[str, Any], found: Comparison) -> None:
    if ours.keys() != theirs.keys():
        found.errors.append(f"{place}: keys {sorted(ours.keys() ^ theirs.keys())}")


def _of_day(case: Case, server: str) -> np.ndarray:
    found = case.cells[LOADS[server == "mds"]][case.day]
    if found is None:
        raise ValueError("the day of a case always has a file")
    return found


def _rule_of_bin(case: Case, key: str, own: dict[str, Any]) -> dict[str, Any]:
    """Return pytokio's number if missing cells count as zero."""
    how, _, rest = key.partition("_")
    names = {"ost_read": BYTES[0], "ost_write": BYTES[1], "oss_cpu": LOADS[0], "mds_cpu": LOADS[1]}
    name = next((name for name in names if rest.startswith(name)), None)
    if how not in {"max", "min", "sum", "ave"} or name is None or not own[f"missing_{name}"]:
        return {}
    whole = case.cells[names[name]][case.day]
    if whole is None:
        raise ValueError("the day of a case always has a file")
    cells = np.nan_to_num(whole[own["index0"] : own["indexf"]])
    size = {"kibs": 2.0**10, "mibs": 2.0**20, "gibs": 2.0**30, "tibs": 2.0**40}.get(rest.removeprefix(name).strip("_"), 1.0)
    value = {"max": cells.max, "min": cells.min, "sum": cells.sum, "ave": cells.mean}[how]()
    return {AS_ZERO: float(value) / size}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pytokio", required=True)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=None)
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(10**6)
    begun, rng, found = time.monotonic(), random.Random(f"summaries {seed}"), Comparison()
    with tempfile.TemporaryDirectory(prefix="fidelity-") as name:
        cases = [made(rng, Path(name) / str(number)) for number in range(arguments.cases)]
        lines = [json.dumps([what, str(case.directory), words]) for case in cases for what, words in case.questions()]
        answers = [json.loads(line) for line in _asked(arguments.pytokio, lines)]
        for number, case in enumerate(cases):
            before = len(found.errors)
            compare(case, answers[4 * number : 4 * number + 4], found)
            found.errors[before:] = [f"case {number}, step {case.step}: {error}" for error in found.errors[before:]]
    for error in found.errors[:SHOWN]:
        print(error, file=sys.stderr)
    equal = found.counts.pop("equal", 0)
    reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(found.counts.items()))
    print(
        f"summaries cases {arguments.cases} equal {equal} explained {found.counts.total()} ({reasons}) unexplained {len(found.errors)}",
        end=" ",
    )
    print(f"seconds {time.monotonic() - begun:.0f} seed {seed}")
    return int(bool(found.errors))


def _asked(python: str, lines: list[str]) -> list[str]:
    program = str(Path(__file__).with_name("pytokio_summaries.py"))
    environment = {**os.environ, "TZ": str(ZONE), "PYTHONPATH": ""}
    done = subprocess.run([python, program], input="\n".join(lines), text=True, check=True, env=environment, stdout=subprocess.PIPE)
    return done.stdout.splitlines()


if __name__ == "__main__":
    sys.exit(main())
