"""Saved outputs of `lctl get_param obdfilter.*.job_stats mdt.*.job_stats`: plain ones, and files of many, each after a line BEGIN TIME."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from collectors.lustre_jobstats.changes import JobCounts
from collectors.lustre_jobstats.parse import TARGET_LINE, TARGET_NAME, has_target, without_prefix
from collectors.lustre_jobstats.targets import Targets, filesystem_fault, filesystem_of, newest, texts
from collectors.lustre_jobstats.to_rows import OTHER_FILESYSTEM, SAME_TIME, TOO_EARLY, JobKeys, TargetCounts, rows
from tokiod.errors import Fatal, TokiodError, Transient
from tokiod.sample_spans import spans_of
from tokiod.toolkit.saved_files import Loading, content, readable
from tokiod.window import Window
from tokiod.window_data import WindowData

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from collectors.lustre_jobstats.config import Saved
    from tokiod.collector import SavedCollector, Site

# A job id may hold a line BEGIN, but no such line is followed by all of the line that begins a target. Errors of lctl may come in between:
# a server of OSTs has no mdt.*, and one of MDTs no obdfilter.*.
_BEGIN = re.compile(rb"^BEGIN[ \t]+(\d{1,11})(?:[ \t][ -~]*)?\r?\n(?=(?:error: [^\n]*\n)*+" + TARGET_LINE + rb")", re.MULTILINE)
_ANY_BEGIN = re.compile(rb"^BEGIN[ \t]+\d{1,11}\b", re.MULTILINE)
CLOCK_SECONDS = 3600
"""A server's clock may be ahead of the one that wrote an output's time by this."""
_HEADLESS = re.compile(rb"^job_stats:(?=[ \t\r]*$)", re.MULTILINE)


def opened(inputs: Sequence[str | Path], options: Saved, site: Site) -> SavedCollector:
    """Return the collector of saved outputs. Raises TokiodError for a file that cannot be read, and for invalid options."""
    for fault in options.faults():
        raise TokiodError(f"--{fault.replace('_', '-', 1)}")
    return SavedOutputs(readable(inputs), options, site)


class SavedOutputs:
    """The collector of saved outputs. All are read at the first call, oldest first: each adds what changed since the one before."""

    replayable: ClassVar[bool] = True
    needs_sample_at_end: ClassVar[bool] = False

    def __init__(self, paths: Sequence[Path], options: Saved, site: Site) -> None:
        self.step = options.step
        self._paths = paths
        self._options = options
        self._keys = JobKeys(options.jobid_name, site)
        self._files = Loading(self._load)

    async def collect(self, window: Window) -> WindowData:
        """Return one table. Raises Fatal for a file without job_stats."""
        found = await self._within(window)
        dropped = self._keys.dropped(found)
        table = rows(found, self._keys, window.start)
        return WindowData([], sum(len(one.changes.jobs) for one in found), dropped.counts, [table], why=dropped.why)

    async def count(self, window: Window) -> int | None:
        """Return how many jobs changed in a window."""
        return sum(len(one.changes.jobs) for one in await self._within(window))

    async def spans(self) -> list[Window]:
        """Return the spans with outputs, also of those that list no job."""
        times = [one.time for one in await self._files.loaded()]
        return spans_of(np.array(times, np.int64), 1)

    async def close(self) -> None:
        """Wait until a read that has begun ends."""
        await self._files.close()

    async def _within(self, window: Window) -> list[TargetCounts]:
        loaded = await self._files.loaded()
        first, last = (bisect_left(loaded, edge, key=lambda one: one.time) for edge in (window.start, window.end))
        return loaded[first:last]

    def _load(self) -> list[TargetCounts]:
        """Read all outputs, oldest first."""
        targets = Targets(self._options.cleanup_interval)
        outputs = sorted((one for path in self._paths for one in _outputs(path, self._options)), key=lambda one: one[0])
        found: list[TargetCounts] = []
        polled: dict[str, int] = {}
        others: set[str] = set()
        nothing = JobCounts().rows((), 0)
        for time, path, output in outputs:
            dropped: Counter[str] = Counter()
            examples: dict[str, bytes] = {}
            for target, (_, text) in texts({path: output}, dropped, examples, until=time)[0].items():
                is_other = self._options.filesystem not in {None, filesystem_of(target)}
                is_early = newest(text) > time + CLOCK_SECONDS
                if is_other or is_early or time <= polled.get(target, -1):
                    reason = OTHER_FILESYSTEM if is_other else TOO_EARLY if is_early else SAME_TIME
                    dropped[reason] += 1
                    examples.setdefault(
                        reason, target.encode() + (b" at %d, its last operation at %d" % (time, newest(text)) if is_early else b"")
                    )
                    others |= {target} if is_other else set()
                    continue
                polled[target] = time
                window = Window(time, time + 1)
                try:
                    counted = [one for one in targets.update(target, text, window, time) if one.changes.jobs or one.changes.dropped]
                except Transient as error:  # a file is the same at the next attempt
                    raise Fatal(f"{path}: {error}") from None
                found += counted or [TargetCounts(target, time, nothing)]
                targets.note_stored(window)
            if dropped:
                found.append(TargetCounts("", time, replace(nothing, dropped=dropped, examples=examples), answered=False))
        if fault := filesystem_fault((*polled, *others), self._options.filesystem):
            raise Fatal(f"the outputs have {fault}")
        return found


def _outputs(path: Path, options: Saved) -> Iterator[tuple[int, str, bytes]]:
    """Yield each output in a file with its time, epoch seconds. Raises Fatal for a file without job_stats."""
    try:
        text, time = without_prefix(content(path)), int(path.stat().st_mtime) if options.time is None else options.time
    except OSError as error:
        raise Fatal(f"{path} cannot be read: {error.strerror}") from None
    text = text if has_target(text) else _with_target(text, path, options.target)
    begins = list(_BEGIN.finditer(text))
    ends = [*(begin.start() for begin in begins[1:]), len(text)]
    parts = [(int(begin[1]), text[begin.end() : end]) for begin, end in zip(begins, ends, strict=True)] if begins else [(time, text)]
    yield from ((time, str(path), part) for time, part in parts)


def _with_target(text: bytes, path: Path, given: str | None) -> bytes:
    """Return outputs of one target with the line that names it: by its option, or the name of the file or directory. Raises Fatal."""
    found = len(_HEADLESS.findall(text))
    if not found:
        raise Fatal(f"{path} holds no output of lctl get_param obdfilter.*.job_stats mdt.*.job_stats")
    if found > max(1, len(_ANY_BEGIN.findall(text))):
        raise Fatal(
            f"{path} holds {found} job_stats without the names of their targets, as `lctl get_param -n` prints them: save it without -n"
        )
    target = given or next((names[0] for part in (path.name, path.parent.name) if len(names := TARGET_NAME.findall(part)) == 1), None)
    if target is None:
        advice = "name it by --target, or the file by it (fs-OST0000.job_stats)"
        raise Fatal(f"{path} holds job_stats without the name of its target, as a file of /proc: {advice}")
    kind = b"mdt" if "-MDT" in target else b"obdfilter"
    return _HEADLESS.sub(b"%s.%s.job_stats=\njob_stats:" % (kind, target.encode()), text)
