"""The same days once more, by an undisturbed daemon: its sealed files must be those of the tortured one, byte for byte."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

from tests.support.waiting import PATIENCE, wait_for
from tokiod.clock import SimulatedClock
from tokiod.simulator.scene import Scene
from tokiod.tts.layout import form_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

SEALING_SECONDS = 120
"""Real seconds that a sealed file may take, one after the other."""
RATE = 2
"""Simulated seconds in a real one, at most: the days are over, and what the sources' first row is asked for comes last."""


def unequal(scene: Scene) -> list[str]:
    """Return what is wrong with the sealed days of sources that can be asked again, over the same sources; the scene's daemon is down."""
    clock = SimulatedClock(scene.clock.time(), time.time(), min(RATE, scene.clock.rate))
    over = [path for path in _sealed(scene) if scene.site.epoch < _end(path) <= clock.epoch - scene.window]
    limit = SEALING_SECONDS * (1 + len(over))
    # However slow the machine is, within the time limit nothing becomes older than the retention.
    with _again(scene, clock, int(clock.epoch - scene.site.epoch + PATIENCE * (limit + SEALING_SECONDS) * clock.rate)) as other:
        other.start_daemon()
        wanted = {path.relative_to(scene.directory): path for path in over}
        wait_for(
            lambda: wanted.keys() <= {path.relative_to(other.directory) for path in _sealed(other)},
            limit,
            f"not all of {sorted(map(str, wanted))} are sealed again; see {other.log}",
        )
        other.stop_daemon()
        return [
            f"{path} is not byte for byte that of an undisturbed run: {', '.join(_differences(path, other.directory / name))}"
            for name, path in wanted.items()
            if not _same(path, other.directory / name)
        ]


@contextmanager
def _again(scene: Scene, clock: SimulatedClock, retention: int) -> Iterator[Scene]:
    """Another daemon's scene over the sources of this one, in a directory below it."""
    directory = scene.directory / "again"
    directory.mkdir()
    text = scene.config_path.read_text().replace(f"{scene.directory}/tts/", f"{directory}/tts/")
    text = text.replace(f"ipc://{scene.directory}/", f"ipc://{directory}/").replace(
        f'retention = "{scene.retention}s"', f'retention = "{retention}s"'
    )
    (directory / "tokiod.toml").write_text(text)
    other = Scene(directory, scene.site, clock, scene.window, retention, scene.sources, scene.log_level)
    try:
        yield other
    finally:
        other.stop_daemon()


def _sealed(scene: Scene) -> list[Path]:
    names = {source.system for source in scene.sources if source.replayable}
    return [path for path in scene.files() if path.stem in names and _is_sealed(path)]


def _is_sealed(path: Path) -> bool:
    with h5py.File(path, "r", locking=False) as file:
        return form_of(file) == "sealed"


def _end(path: Path) -> int:
    with h5py.File(path, "r", locking=False) as file:
        return int(file.attrs["end"])


def _same(one: Path, two: Path) -> bool:
    """Whether two files are the same but for when they were sealed."""
    for path in (one, two):
        with h5py.File(path, "r+", locking=False) as file:
            file.visititems(_without_time)
    return one.read_bytes() == two.read_bytes()


def _differences(one: Path, two: Path) -> list[str]:
    """Say where two files that are not the same differ, and how much in each of their datasets."""
    with h5py.File(one, "r", locking=False) as ours, h5py.File(two, "r", locking=False) as theirs:
        forms = form_of(ours), form_of(theirs)
        parts = [dict(_parts(file)) for file in (ours, theirs)]
    found = [] if forms[0] == forms[1] else [f"one is {forms[0]}, the other {forms[1]}"]
    for name in sorted(parts[0].keys() | parts[1].keys()):
        here, there = (part.get(name) for part in parts)
        if here is None or there is None or here.shape != there.shape:
            found.append(f"{name} is {here if here is None else here.shape} and {there if there is None else there.shape}")
        elif here.tobytes() != there.tobytes():
            rows = np.flatnonzero((here != there).reshape(len(here), -1).any(axis=1))
            found.append(f"{name} differs in {len(rows)} rows from {rows[:1]} on")
    return found or ["in nothing that can be read"]


def _parts(file: h5py.File) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield all datasets, and all attributes but references."""
    names: list[str] = []
    file.visit(names.append)
    for name in ["/", *names]:
        attributes = ((f"{name} {key}", np.atleast_1d(value)) for key, value in file[name].attrs.items())
        yield from ((key, value) for key, value in attributes if not value.dtype.hasobject)
        if isinstance(file[name], h5py.Dataset):
            yield name, np.atleast_1d(file[name][...])


def _without_time(_name: str, item: h5py.Dataset | h5py.Group) -> None:
    if "updated" in item.attrs:
        item.attrs.modify("updated", 0)
