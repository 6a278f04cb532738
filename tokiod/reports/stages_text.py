"""Draw where the time of windows and files went in characters: a line for each, a letter for each stage, in any width."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from tokiod.reports.stages import ORDER
from tokiod.window import iso

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokiod.reports.stages import StagedWork

LETTERS = dict(zip(ORDER, "dafpubwslkemgrzc", strict=True))
"""Of each stage. Letters rather than colours: they are the same in a pipe, in print and for colour-blind users."""
OPEN, CUT = ">", "<"
MIN_BAR = 24
"""A bar that would be narrower stands below its name."""


def draw_stages(works: list[StagedWork], width: int) -> Iterator[str]:
    """Yield the lines of the chart, at most so wide: bars on one scale, oldest first, and what the letters mean.

    The bar of a window that was healed begins with a sign: of its waiting, as much is drawn as the window is long.
    """
    labels = [f"{work.name} {iso(work.start)}" for work in works]
    ends = [f"{format_seconds(work.seconds)}{'' if work.state in {'stored', 'done'} else f' {work.state}'}" for work in works]
    beside, after = max(map(len, labels)) + 1, max(map(len, ends)) + 1
    is_narrow = width - beside - after < MIN_BAR
    room = width - after - (1 if is_narrow else beside)
    scale = room / (max(work.seconds - work.healing for work in works) or 1.0)
    for work, label, end in zip(works, labels, ends, strict=True):
        bar = _bar(work, scale)
        if is_narrow:
            yield label
            yield f" {bar:{room}} {end}".rstrip()
        else:
            yield f"{label:{beside}}{bar:{room}} {end}"
    yield from _legend({span.stage for work in works for span in work.stages}, width)
    if any(work.healing for work in works):
        yield f"{CUT} waited longer: healed"


def format_seconds(seconds: float) -> str:
    """Return a time with three digits: 0.12 ms, 1.23 s, 123 s."""
    amount, unit = (seconds, "s") if seconds >= 1 else (seconds * 1000, "ms")
    digits = 2 if amount < 10 else 1 if amount < 100 else 0  # noqa: PLR2004 - of three
    return f"{amount:.{digits}f} {unit}"


def _bar(work: StagedWork, scale: float) -> str:
    ends = [round((seconds - work.healing) * scale) for seconds in accumulate(span.seconds for span in work.stages)]
    bar = "".join(LETTERS[span.stage] * (end - begin) for span, begin, end in zip(work.stages, [0, *ends], ends, strict=False))
    bar = CUT + bar[1:] if work.healing else bar
    return bar[:-1] + OPEN if work.stages[-1].open else bar


def _legend(stages: set[str], width: int) -> Iterator[str]:
    line = ""
    for entry in (f"{LETTERS[stage]} {stage}" for stage in ORDER if stage in stages):
        if line and len(line) + 2 + len(entry) > width:
            yield line
            line = ""
        line += ("  " if line else "") + entry
    yield line
