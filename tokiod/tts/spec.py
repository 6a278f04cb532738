"""The shape of a TTS file of one system and day: its span, the time steps of its groups, the columns of its matrices. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tokiod.tts.counters.difference_rule import LARGEST, REACH_SECONDS, Rule
from tokiod.tts.schema import DATASETS, GROUPS, group_of, units

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """One group: seconds between its rows, and the kind of source in its `source` attribute."""

    step: int
    source: str


@dataclass(frozen=True, slots=True)
class MatrixSpec:
    """One dataset: its columns in the order of the file, and whether its cells are differences of a counter.

    own_units: units that differ from the standard ones, see tokiod.tts.schema; "" for the standard ones. max_step: of a counter, the
    largest plausible difference per row; LARGEST for any.
    """

    columns: tuple[str, ...]
    counter: bool
    own_units: str = ""
    max_step: int = LARGEST


@dataclass(frozen=True, slots=True)
class FileSpec:
    """A file for the rows of [start, end), UTC epoch seconds; matrices by logical dataset name.

    Raises ValueError for an unknown dataset or group, a step longer than the file, missing columns, or invalid column names.
    """

    start: int
    end: int
    groups: dict[str, GroupSpec]
    matrices: dict[str, MatrixSpec]

    def __post_init__(self) -> None:
        for name, group in self.groups.items():
            if name not in GROUPS:
                raise ValueError(f"unknown TTS group {name!r}")
            if not 0 < group.step <= self.end - self.start:
                raise ValueError(f"{name}: a step of {group.step} s in a file of {self.end - self.start} s")
        for dataset, matrix in self.matrices.items():
            units(dataset)
            if group_of(dataset) not in self.groups:
                raise ValueError(f"{dataset}: its group has no step")
            if not matrix.columns:
                raise ValueError(f"{dataset}: it has no columns")
            if len(set(matrix.columns)) != len(matrix.columns) or any(not c or "\0" in c for c in matrix.columns):
                raise ValueError(f"{dataset}: a column name is empty, duplicate or has a NUL")

    def rows(self, group: str) -> int:
        """Return the number of rows of a group's datasets."""
        return -(-(self.end - self.start) // self.groups[group].step)

    def step(self, dataset: str) -> int:
        """Return the seconds between the rows of a dataset."""
        return self.groups[group_of(dataset)].step

    def rule(self, dataset: str) -> Rule:
        """Return the rule of differences of a counter."""
        return Rule(self.matrices[dataset].max_step, REACH_SECONDS // self.step(dataset))

    def ordered(self) -> Iterator[tuple[str, MatrixSpec]]:
        """Yield (dataset, matrix) in the fixed order of files."""
        return ((dataset, self.matrices[dataset]) for dataset in DATASETS if dataset in self.matrices)

    def merged(self, other: FileSpec) -> FileSpec:
        """Return the spec with room for both: new groups, datasets and, after the old ones, new columns; self if nothing is new.

        A group keeps its source, a dataset its limit. Raises ValueError that names every dataset or group whose span, step or form differs.
        """
        faults = [*self._span_faults(other), *self._step_faults(other), *self._form_faults(other)]
        if faults:
            raise ValueError("; ".join(faults))
        groups = other.groups | self.groups
        matrices = self.matrices | {name: _widened(self.matrices.get(name), matrix) for name, matrix in other.matrices.items()}
        if groups == self.groups and matrices == self.matrices:
            return self
        return replace(self, groups=groups, matrices=matrices)

    def _span_faults(self, other: FileSpec) -> list[str]:
        if (self.start, self.end) == (other.start, other.end):
            return []
        return [f"the file spans [{self.start}, {self.end}), not [{other.start}, {other.end})"]

    def _step_faults(self, other: FileSpec) -> list[str]:
        both = self.groups.keys() & other.groups.keys()
        steps = [(name, self.groups[name].step, other.groups[name].step) for name in sorted(both)]
        return [f"{name}: rows are {old} s apart, not {new} s" for name, old, new in steps if old != new]

    def _form_faults(self, other: FileSpec) -> list[str]:
        both = sorted(self.matrices.keys() & other.matrices.keys())
        differing = [name for name in both if self.matrices[name].counter != other.matrices[name].counter]
        return [f"{name}: stored as {_form(self.matrices[name])}, not {_form(other.matrices[name])}" for name in differing]


def _form(matrix: MatrixSpec) -> str:
    return "counter" if matrix.counter else "gauge"


def _widened(old: MatrixSpec | None, new: MatrixSpec) -> MatrixSpec:
    if old is None:
        return new
    present = set(old.columns)
    return replace(old, columns=old.columns + tuple(c for c in new.columns if c not in present))
