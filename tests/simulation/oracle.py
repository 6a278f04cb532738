"""What must be true of an archive: the sources' dictionaries, the windows that were acknowledged, and the files, cell by cell."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

from sinks.tts.day_files import DayFiles
from sinks.tts.sink import TtsSink
from tests.simulation.sources import COUNTER
from tokiod.archive.layout import daily
from tokiod.simulator import oracle
from tokiod.testing.clock import FakeClock
from tokiod.tts.hdf5_input import attribute, whole
from tokiod.tts.layout import OWN, column_names, form_of
from tokiod.tts.schema import ABSENT, missing
from tokiod.window import Calendar, Window, iso
from tokiod.window_data import Collected, WindowMeta
from tokiod.writer.sink_options import max_rates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from tests.simulation.sources import Source
    from tokiod.batch import Extent
    from tokiod.config.schema import Config
    from tokiod.ledger.ledger import Ledger
    from tokiod.ranges import Ranges
    from tokiod.window import Day


FOREVER = 1e12
"""Epoch seconds by which all late data and corrections can be had."""
MAX_OPEN = 64
"""Files of an undisturbed run that stay open: all of most sites."""
REFERENCES = {"DIMENSION_LIST", "REFERENCE_LIST"}
"""Attributes that point at objects of their own file."""


class Wrong(AssertionError):  # noqa: N818 - what is the case
    """The archive is not what it must be."""


@dataclass
class Held:
    """A file's content: cells by dataset and component, {epoch second: value}; raw samples of a live one in the same form."""

    form: str
    cells: dict[tuple[str, str], dict[int, float]]
    raw: dict[tuple[str, str], dict[int, int]]


DAMAGED = Held("damaged", {}, {})
"""Of a file that another program damaged: nothing is expected of it."""


@dataclass
class Acknowledged:
    """What the writer acknowledged: {source: {(dataset, component, time): value}}, and what else may be there instead.

    gone: what was destroyed since, and is not acknowledged again: the ledger must not call it stored while another file has its name.
    """

    samples: defaultdict[str, dict[tuple[str, str, int], int]] = field(default_factory=lambda: defaultdict(dict))
    sent: defaultdict[tuple[str, str, str, int], set[int]] = field(default_factory=lambda: defaultdict(set))
    gone: defaultdict[str, set[tuple[str, str, int]]] = field(default_factory=lambda: defaultdict(set))
    windows: int = 0
    on_sent: Callable[[Collected], object] = lambda _collected: None
    on_rows: Callable[[Collected], object] = lambda _collected: None

    def note_sent(self, collected: Collected) -> None:
        """Note what is on its way."""
        self.on_sent(collected)
        for key, value in _samples(collected):
            self.sent[collected.meta.source, *key].add(value)

    def note(self, collected: Collected) -> None:
        """Note what is acknowledged; a seam is for its neighbours, and may be in no file of its own day."""
        self.windows += 1
        if collected.tables:
            self.on_rows(collected)
        if collected.meta.extent == "seam":
            return
        for key, value in _samples(collected):
            self.samples[collected.meta.source][key] = value
            self.gone[collected.meta.source].discard(key)
            self.sent.pop((collected.meta.source, *key), None)

    def strays(self, source: str) -> Iterable[tuple[str, str, int]]:
        """Yield the samples of a source that are not acknowledged, and that its files may have or not."""
        yield from self.gone[source]
        yield from (key for name, *key in self.sent if name == source)

    def forget(self, sources: Iterable[str], window: Window) -> None:
        """Expect nothing of a window any more: an operator took its file away."""
        for source in sources:
            known = self.samples[source]
            for key in [key for key in known if window.start <= key[2] < window.end]:
                del known[key]
                self.gone[source].add(key)


class _Files:
    """The files as they are now, each read once."""

    def __init__(self, config: Config, is_damaged: Callable[[Path], bool]) -> None:
        self.calendar = Calendar(config.timezone)
        self.day = cache(self.calendar.day)
        self.path = config.archive.file
        self.of = cache(lambda day, system: DAMAGED if is_damaged(path := self.path(day, system)) else read(path))

    def there(self, source: Source, dataset: str, name: str, time: int) -> Mapping[int, float] | None:
        """Return the samples in a file, None where it can't be said what it has: a damaged file, and sealed counters."""
        file, is_raw = self.of(self.day(time), source.system), dataset == COUNTER
        if file is DAMAGED or (is_raw and file is not None and file.form == "sealed"):
            return None
        return {} if file is None else (file.raw if is_raw else file.cells).get((dataset, name), {})

    def sound(self, source: Source) -> list[tuple[Day, Held]]:
        """Return the days of a source that have a file which is not damaged."""
        found = [(day, self.of(day, source.system)) for day in days(self.calendar, source.origin, source.end)]
        return [(day, file) for day, file in found if file is not None and file is not DAMAGED]


def check_now(
    config: Config, sources: Mapping[str, Source], acknowledged: Acknowledged, ledger: Ledger | None, is_damaged: Callable[[Path], bool]
) -> None:
    """Each acknowledged sample is in its file, and so is each that the ledger calls stored; cells are those that follow. Raises Wrong."""
    files = _Files(config, is_damaged)
    for source in sources.values():
        stored = None if ledger is None else ledger.stored(source.name)
        _check_acknowledged(source, acknowledged, stored, files)
        _check_cells(source, acknowledged, files)
        for key in sorted(acknowledged.gone[source.name]) if stored is not None else ():
            _check_gone(source, key, stored, files)


def _check_acknowledged(source: Source, acknowledged: Acknowledged, stored: Ranges | None, files: _Files) -> None:
    for (dataset, name, time), value in acknowledged.samples[source.name].items():
        if (found := files.there(source, dataset, name, time)) is None:
            continue
        may = acknowledged.sent.get((source.name, dataset, name, time), ())
        if found.get(time) == value or found.get(time) in may:
            continue
        path = files.path(day := files.day(time), source.system)
        claim = "stored" if stored is not None and stored.covers(Window(time, time + source.step)) else "not stored"
        place = f"{path.name} of {day.date}: {dataset} {name} {iso(time)}"
        raise Wrong(f"acknowledged, but not in {place}: {found.get(time)}, not {value}; the ledger calls it {claim}")


def _check_cells(source: Source, acknowledged: Acknowledged, files: _Files) -> None:
    """Each cell is the one that follows from what was acknowledged, unless other samples that may be there count for it. Raises Wrong."""
    known: defaultdict[tuple[str, str], dict[int, int]] = defaultdict(dict)
    for (dataset, name, time), value in acknowledged.samples[source.name].items():
        known[dataset, name][source.row(time)] = value
    strays: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for dataset, name, time in acknowledged.strays(source.name):
        strays[dataset, name].add(source.row(time))
    held = files.sound(source)
    for column in product(source.datasets, source.born):
        right, unsure = _follows(source, column[0], known[column], strays[column])
        for day, file in held:
            got = {source.row(time): cell for time, cell in file.cells.get(column, {}).items()}
            want = {row: right[row] for row in range(source.row(day.start), source.row(day.end)) if row in right}
            if got != want and (wrong := sorted({row for row, _ in got.items() ^ want.items()} - unsure)):
                place = f"{source.system} of {day.date}: {' '.join(column)} {iso(source.origin + wrong[0] * source.step)}"
                cells = f"{got.get(wrong[0])}, and {want.get(wrong[0])} follows from what is acknowledged"
                raise Wrong(f"in {file.form} {place} is {cells}")


def _follows(source: Source, dataset: str, samples: dict[int, int], strays: set[int]) -> tuple[dict[int, float], set[int]]:
    """Return the cells that follow from samples, by row, and the rows whose cells may be others because of strays.

    A sample in row r closes the cell before it. All cells up to the first anchor after it may depend on it: up to that of a nonzero
    sample that is not below its nonzero predecessor, if no row between the two strays.
    """
    if dataset != COUNTER:
        return {row: float(value) for row, value in samples.items()}, strays
    cells: dict[int, float] = {}
    for is_old in (True, False):
        cells |= _cells(source, dataset, {row: value for row, value in samples.items() if (row <= source.last_old_row) == is_old})
    unsure: set[int] = set()
    for stray in strays:
        predecessor: int | None = None
        for row in range(stray, max([*samples, *strays]) + 1):
            unsure.add(row - 1)
            value = samples.get(row, 0)
            if row in strays:
                predecessor = None
            elif value:
                if predecessor is not None and value >= predecessor:
                    break
                predecessor = value
    return cells, unsure


def _check_gone(source: Source, key: tuple[str, str, int], stored: Ranges, files: _Files) -> None:
    """What was destroyed is not called stored once another file has the name. Raises Wrong."""
    dataset, name, time = key
    if files.of(files.day(time), source.system) is None or (there := files.there(source, dataset, name, time)) is None:
        return
    if time not in there and stored.covers(Window(time, time + source.step)):
        raise Wrong(f"the ledger calls stored what was destroyed: {source.name} {dataset} {name} {iso(time)}")


def check_end(config: Config, sources: Mapping[str, Source]) -> None:
    """Each cell is what follows from all that the sources ever held. Raises Wrong."""
    calendar, files = Calendar(config.timezone), {}
    for source in sources.values():
        for dataset, columns in source.samples.items():
            for name in columns:
                want = right_cells(source, dataset, name)
                got: dict[int, float] = {}
                for day in days(calendar, source.origin, source.end):
                    path = config.archive.file(day, source.system)
                    if path not in files:
                        files[path] = read(path)
                    if (file := files[path]) is not None:
                        got |= file.cells.get((dataset, name), {})
                if got != want:
                    wrong = {
                        time: (got.get(time), want.get(time))
                        for time in sorted(got.keys() | want.keys())
                        if got.get(time) != want.get(time)
                    }
                    first = dict(list(wrong.items())[:5])
                    raise Wrong(f"in the end: {source.name} {dataset} {name}: {len(wrong)} cells (got, right), the first {first}")


def right_cells(source: Source, dataset: str, name: str) -> dict[int, float]:
    """Return a component's cells by their time, those of the old day only if it was asked for."""
    samples = source.final(dataset, name)
    live = {row: value for row, value in samples.items() if row > source.last_old_row}
    old = {row: value for row, value in samples.items() if row <= source.last_old_row and source.is_old_wanted}
    cells = _cells(source, dataset, live) | {r: cell for r, cell in _cells(source, dataset, old).items() if r < source.last_old_row}
    return {source.origin + row * source.step: cell for row, cell in cells.items()}


def _cells(source: Source, dataset: str, samples: dict[int, int]) -> dict[int, float]:
    if dataset != COUNTER:
        return {row: float(value) for row, value in samples.items()}
    return oracle.cells(samples, source.max_step or float("inf"), oracle.REACH_SECONDS // source.step)


def check_sealed(config: Config, sources: Mapping[str, Source], ledger: Ledger, directory: Path) -> int:
    """Each sealed file has the bytes of one that an undisturbed run makes of the same samples; return how many there are. Raises Wrong.

    A day without any sample makes a dataset if a window of it is stored: it may be recorded as empty instead. Then a counter has a
    dataset, for the state in which its day begins, if the day before was collected after the file was made, or if the file was made of
    that of the day before: with the columns that are recent there.
    """
    calendar, clock = Calendar(config.timezone), FakeClock(0.0)

    def path_of(day: Day, system: str) -> Path:
        return directory / str(day.date) / f"{system}.hdf5"

    sink = TtsSink(DayFiles(daily(calendar, path_of), clock, max_rates=max_rates(config), max_open=MAX_OPEN))
    span = Window(min(one.origin for one in sources.values()), max(one.end for one in sources.values()))
    for day in days(calendar, span.start, span.end):
        for source in sources.values():
            window = Window(day.start, day.end)
            collected = _collected(source, window)
            if collected.is_empty and not ledger.stored(source.name).within(day.start, day.end):
                collected = _joined_only(collected, config.archive.file(day, source.system))
            if collected.batches and any(wanted.start < day.end and day.start < wanted.end for wanted in source.wanted):
                sink.apply(collected)
            if window == source.old and source.is_old_wanted:
                sink.apply(_collected(source, Window(day.end, day.end + source.step), "seam"))
        sink.commit()
    compared = 0
    for system in sorted({source.system for source in sources.values()}):
        for day in days(calendar, span.start, span.end):
            made = config.archive.file(day, system)
            is_wanted = any(
                one.start < day.end and day.start < one.end for of in sources.values() if of.system == system for one in of.wanted
            )
            if is_wanted and made.exists() and (updated := _sealed_at(made)) is not None:
                clock.jump(updated - clock.time())
                _compare_sealed(sink, system, day, made, path_of(day, system))
                compared += 1
    sink.close()
    return compared


def _collected(source: Source, window: Window, extent: Extent = "whole") -> Collected:
    batches = [batch for batch in source.data(window, FOREVER).batches if extent == "whole" or batch.form == "counter"]
    return Collected(WindowMeta(source.name, "simulated", source.system, window, extent=extent), batches)


def _joined_only(collected: Collected, made: Path) -> Collected:
    """Return a window without samples with only the counters, and their columns, that a made file has."""
    try:
        with h5py.File(made, "r", locking=False) as file:
            counters = [batch for batch in collected.batches if batch.form == "counter" and batch.dataset in file]
            names = {batch.dataset: set(column_names(file[batch.dataset])) for batch in counters}
            batches = [replace(one, columns=tuple(name for name in one.columns if name in names[one.dataset])) for one in counters]
            return replace(collected, batches=batches)
    except FileNotFoundError:
        return replace(collected, batches=[])


def _compare_sealed(sink: TtsSink, system: str, day: Day, made: Path, right: Path) -> None:
    if not sink.seal(system, day.start):
        raise Wrong(f"{made.name} of {day.date}: there is no undisturbed file")
    if failed := [done for done in sink.run_maintenance() if done.error]:
        raise Wrong(f"the undisturbed file of {day.date} can't be sealed: {failed[0].error}")
    if made.read_bytes() != right.read_bytes():
        raise Wrong(f"sealed {made.name} of {day.date}: {_difference(made, right)}")


def read(path: Path) -> Held | None:
    """Read a file; None for a missing one."""
    try:
        file = h5py.File(path, "r", locking=False)
    except FileNotFoundError:
        return None
    with file:
        held = Held(form_of(file), {}, {})
        for group in file:
            if not group.startswith("_"):
                stamps = whole(file[group]["timestamps"].id)
                for name in file[group]:
                    _read_dataset(held, file, f"{group}/{name}", stamps)
    return held


def _read_dataset(held: Held, file: Any, name: str, stamps: Any) -> None:
    node = h5py.h5o.open(file.id, name.encode())
    if (names := attribute(node, "columns", None)) is None:
        return
    columns, values = [column.decode() for column in names], whole(node)
    for i, column in enumerate(columns):
        rows = np.flatnonzero(~missing(values[:, i]))
        held.cells[name, column] = dict(zip(stamps[rows].tolist(), values[rows, i].tolist(), strict=True))
    raw = f"{OWN}/raw/{name}"
    if held.form == "live" and raw in file:
        samples = whole(file[raw].id)[: len(stamps)]
        for i, column in enumerate(columns):
            rows = np.flatnonzero(samples[:, i] != ABSENT)
            held.raw[name, column] = dict(zip(stamps[rows].tolist(), samples[rows, i].tolist(), strict=True))


def days(calendar: Calendar, start: int, end: int) -> Iterable[Day]:
    """Yield the days of a span."""
    day = calendar.day(start)
    while day.start < end:
        yield day
        day = calendar.day(day.end)


def _sealed_at(path: Path) -> int | None:
    with h5py.File(path, "r", locking=False) as file:
        if form_of(file) != "sealed":
            return None
        found: list[int] = []
        file.visititems(
            lambda name, node: found.append(int(node.attrs["updated"])) if not name.startswith("_") and "updated" in node.attrs else None
        )
        return found[0]


def _difference(made: Path, right: Path) -> str:
    with h5py.File(made, "r", locking=False) as one, h5py.File(right, "r", locking=False) as other:
        names: set[str] = set()
        one.visit(names.add)
        other.visit(names.add)
        for name in sorted(names):
            if name not in one or name not in other:
                return f"{name} is in one only"
            if isinstance(one[name], h5py.Dataset):
                a, b = one[name][...], other[name][...]
                if a.shape != b.shape:
                    return f"{name}: shape {a.shape}, not {b.shape}"
                if a.tobytes() != b.tobytes():
                    place = np.argwhere(a.view(np.int64) != b.view(np.int64))[:4].tolist() if a.dtype.itemsize == 8 else ""
                    return f"{name} at {place}: {[a[tuple(p)] for p in place]}, not {[b[tuple(p)] for p in place]}"
            for key in {*one[name].attrs, *other[name].attrs} - REFERENCES:
                if not np.array_equal(one[name].attrs.get(key), other[name].attrs.get(key)):
                    return f"{name}: attribute {key}: {one[name].attrs.get(key)}, not {other[name].attrs.get(key)}"
    return "other bytes with the same content"


def _samples(collected: Collected) -> list[tuple[tuple[str, str, int], int]]:
    found = []
    for batch in collected.batches:
        cells = zip(batch.time.tolist(), batch.column.tolist(), batch.value.tolist(), strict=True)
        found += [((batch.dataset, batch.columns[column], time), int(value)) for time, column, value in cells]
    return found
