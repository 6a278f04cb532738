"""A scene whose archive sinks send on: its processes beside those of the daemon, and what the files hold."""

from __future__ import annotations

import subprocess
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import h5py
import msgspec
import numpy as np
from numpy.typing import NDArray

from tests.support.faulty_scene import FaultyScene
from tokiod.published.sinks import SinkState
from tokiod.runtime.process_setup import python_command
from tokiod.simulator.sources import LMT
from tokiod.tts.schema import missing

if TYPE_CHECKING:
    from pathlib import Path

Cells = dict[tuple[str, str, str], tuple[list[int], list[float]]]
"""The cells that are not missing: epoch seconds and values, by system, dataset and column."""
Rows = tuple[NDArray[np.int64], tuple[str, ...], NDArray[np.float64]]
"""Epoch seconds i8[rows], columns, and values f8[rows, columns], NaN where missing."""


@dataclass(slots=True)
class SinkScene(FaultyScene):
    """sections: the part of [[sink]] after its name, by name."""

    sections: dict[str, str] = field(default_factory=dict)
    _sinks: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def prepare(self) -> None:
        """Write the configuration with the sinks, and the site."""
        super(SinkScene, self).prepare()
        sinks = "".join(f'\n[[sink]]\nname = "{name}"\n{section}' for name, section in self.sections.items())
        self.config_path.write_text(f'sink_state = "{self.directory}/sinks"\n{self.config_path.read_text()}{sinks}')
        self._config = None

    def sink_log(self, name: str) -> Path:
        """Return the log of a sink's processes."""
        return self.directory / f"{name}-log"

    def start_sink(self, name: str) -> None:
        """Start `tokiod sink`."""
        command = python_command("tokiod.cli.tokiod", "sink", name, "--config", str(self.config_path), "--clock", str(self.clock))
        with self.sink_log(name).open("ab") as log:
            self._sinks[name] = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)

    def kill_sink(self, name: str) -> None:
        """SIGKILL a sink, if it runs."""
        if name in self._sinks:
            self._sinks[name].kill()
            self._sinks[name].wait()

    def stop_sink(self, name: str) -> int:
        """Stop a sink; return its exit code."""
        self._sinks[name].terminate()
        return self._sinks[name].wait(60)

    def sink_pid(self, name: str) -> int:
        """Return the process id of a sink."""
        return self._sinks[name].pid

    def sink_state(self, name: str) -> SinkState:
        """Return what `tokioctl sinks` reports of a sink."""
        states = msgspec.json.decode(self.tokioctl("sinks", "--json", codes=(0, 1)), type=list[SinkState])
        return next(one for one in states if one.name == name)

    def close(self) -> None:
        """Stop everything."""
        for name in self._sinks:
            self.kill_sink(name)
        super(SinkScene, self).close()

    def tokioctl(self, *arguments: str, codes: tuple[int, ...] = (0,)) -> str:
        """Return what a command prints that exits with one of some codes."""
        command = python_command("tokiod.cli.tokioctl", *arguments, "--config", str(self.config_path), "--clock", str(self.clock))
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode in codes, done.stdout + done.stderr
        return done.stdout

    def held(self) -> Cells:
        """Return all cells of the files, read with h5py alone."""
        found: dict[tuple[str, str], list[Rows]] = defaultdict(list)
        for path in self.files(LMT):
            with suppress(FileNotFoundError), h5py.File(path, "r", locking=False) as file:
                for group in (group for name, group in file.items() if not name.startswith("_")):
                    times = group["timestamps"][...]
                    for dataset in (one for one in group.values() if "columns" in one.attrs):
                        values, names = dataset[...], tuple(name.decode() for name in dataset.attrs["columns"])
                        found[LMT.system, dataset.name.strip("/")].append((times, names, np.where(missing(values), np.nan, values)))
        return cells_of(found)


def cells_of(found: dict[tuple[str, str], list[Rows]]) -> Cells:
    """Return the cells of some rows of datasets, each row once."""
    cells: Cells = {}
    for (system, dataset), some in found.items():
        alike: dict[tuple[str, ...], list[Rows]] = defaultdict(list)
        for rows in sorted(some, key=lambda rows: int(rows[0][0])):
            alike[rows[1]].append(rows)
        for columns, parts in alike.items():
            times, values = np.concatenate([part[0] for part in parts]), np.concatenate([part[2] for part in parts])
            for index, name in enumerate(columns):
                held = ~np.isnan(values[:, index])
                before = cells.get((system, dataset, name), ([], []))
                both = sorted(zip(before[0] + times[held].tolist(), before[1] + values[held, index].tolist(), strict=True))
                if both:
                    cells[system, dataset, name] = [time for time, _ in both], [value for _, value in both]
    return cells
