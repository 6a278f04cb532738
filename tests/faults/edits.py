"""Ten old faults that edits of the syntax tree restore: each names a function and an expression in it, wherever that stands.

A patch would fail as soon as a neighbouring line changes; an edit fails only when what it replaces does. All other faults have their tests.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class EditError(Exception):
    """An edit that today's code does not fit."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One expression of a function, and what replaces it. function: its name, with that of its class, as in `Sums.take`."""

    module: str
    function: str
    old: str
    new: str

    def applied(self, source: str) -> str:
        """Return the source of the module with the expression replaced. Raises EditError unless it is there once."""
        tree = ast.parse(source)
        replacing = _Replacing(self)
        replacing.visit(tree)
        if replacing.found != 1:
            raise EditError(f"{self.module}: {self.function} has {self.old!r} {replacing.found} times")
        return ast.unparse(ast.fix_missing_locations(tree))


@dataclass(frozen=True, slots=True)
class Proof:
    """A test, by its pytest id, and a part of the message with which it fails where the fault is restored.

    A test with parameters that are not named fails if it does so with any of them.
    """

    test: str
    fails: str


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a review, all edits that restore it together, and tests that find it."""

    name: str
    title: str
    edits: tuple[Edit, ...]
    proofs: tuple[Proof, ...]

    def apply(self, tree: Path) -> None:
        """Edit a copy of the tree. Raises EditError."""
        for edit in self.edits:
            path = tree / edit.module
            try:
                source = path.read_text("utf-8")
            except OSError as error:
                raise EditError(f"{edit.module}: {error.strerror}") from error
            path.write_text(edit.applied(source), "utf-8")


class _Replacing(ast.NodeTransformer):
    """Replaces an expression in a function, and counts how often it was there."""

    def __init__(self, edit: Edit) -> None:
        self.found = 0
        self._edit = edit
        self._old = ast.dump(ast.parse(edit.old, mode="eval").body)
        self._inside: list[str] = []

    def visit(self, node: ast.AST) -> ast.AST:
        """Visit a node."""
        named = isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        self._inside += [node.name] if named else []  # type: ignore[attr-defined]
        is_inside = f"{self._edit.function}." in f"{'.'.join(self._inside)}."
        if is_inside and isinstance(node, ast.expr) and ast.dump(node) == self._old:
            self.found += 1
            return ast.parse(self._edit.new, mode="eval").body
        found: ast.AST = self.generic_visit(node)
        del self._inside[len(self._inside) - named :]
        return found


_LINE = "tests/test_increases.py::test_each_line_of_the_document_is_right"

_ALL_BEGIN_AGAIN = (
    Edit(
        "tokiod/increases.py",
        "_again",
        "steps.follows[1:] & ((found.begin[1:] < 0) | (found.begin[1:] != found.begin[:-1]))",
        "steps.follows[1:]",
    ),
    Edit(
        "tokiod/increases.py",
        "_again",
        "is_later | is_blind & (commonly[at] | all_fell | _were_gone(found, steps, at))",
        "is_later | has_fallen | is_blind & _were_gone(found, steps, at)",
    ),
)
"""A count that falls makes all counts begin again, though their begin is the same."""

FAULTS = (
    Fault(
        "a1",
        "A1: a day's file that is missing is not noticed where a window creates a new one first",
        (
            Edit(
                "tokiod/writer/maintenance.py",
                "Maintenance.forget_missing_files",
                "self._known_files.missing(functools.cache(self._held_since), present)",
                "[] if self._is_scanning or not any(self._scan.names) else "
                "self._known_files.missing(functools.cache(self._held_since), present)",
            ),
            Edit("tokiod/writer/maintenance.py", "Maintenance.before_create", "self._known_files.at(slot.path)", "None"),
        ),
        (
            Proof(
                "tests/writer/test_maintenance.py::test_in_an_archive_of_many_files_a_missing_one_is_reported_at_the_start_before_any_window",
                "assert [] == [('file.gone'",
            ),
            Proof(
                "tests/writer/test_maintenance.py::test_a_missing_file_is_forgotten_before_another_is_created_under_its_name",
                "assert [(False, [(15",
            ),
        ),
    ),
    Fault(
        "a2",
        "A2: a sealed day is not reopened for the samples of the next day's first row",
        (
            Edit(
                "sinks/tts/seams.py",
                "Seams.close_last_row",
                "((samples != before.counters[dataset].after) & (samples != ABSENT)).any()",
                "False",
            ),
        ),
        (
            Proof(
                "tests/sinks/tts/test_seams.py::test_a_day_that_was_sealed_before_the_next_ones_first_window_gets_its_last_row",
                "assert {'OST0000': N",
            ),
        ),
    ),
    Fault(
        "a3",
        "A3: a sealed day is not reopened where the state before it changes",
        (Edit("sinks/tts/seams.py", "Seams._correct_after", "self.reopen(day.slot, +1) if differs else None", "None"),),
        (
            Proof(
                "tests/sinks/tts/test_seams.py::test_a_day_that_was_sealed_before_the_day_before_was_complete_takes_no_stale_sample",
                "1500.0} == {'OST0000': 3",
            ),
        ),
    ),
    Fault(
        "a9",
        "A9: the received files of a lost day are not collected again",
        (
            Edit("tokiod/ledger/ledger.py", "Ledger", "received_files.forget_window(sql, name, window)", "None"),
            Edit("tokiod/polling/watch/intake.py", "Intake", "self._reloads != reloads", "False"),
        ),
        (
            Proof(
                "tests/polling/watch/test_intake.py::test_the_files_of_a_lost_day_are_collected_again_and_no_others",
                "2, rejected=0) == Totals(collec",
            ),
            Proof(
                "tests/polling/watch/test_intake.py::test_a_file_that_was_being_collected_when_a_day_was_lost_is_collected_again",
                "assert ['one'] == ['one', 'one']",
            ),
        ),
    ),
    Fault(
        "a13",
        "A13: large windows are sent whole, and windows beyond the limit are refused and retried for ever",
        (
            Edit("tokiod/crossing/parts.py", "cut", "range(0, len(piece), size)", "range(0, len(piece), MAX_WINDOW_BYTES)"),
            Edit("tokiod/crossing/parts.py", "cut", "memoryview(piece)[start : start + size]", "memoryview(piece)"),
            Edit("tokiod/crossing/parts.py", "cut", "len(frame) > room", "False"),
            Edit("tokiod/crossing/parts.py", "check_size", "'never'", "'retry'"),
        ),
        (
            Proof("tests/crossing/test_parts.py::test_pieces_are_cut_into_parts_of_a_size_and_not_where_they_fit", "assert False"),
            Proof(
                "tests/bus/test_large_windows.py::test_a_window_that_can_not_cross_is_refused_for_good_with_the_remedy_and_holds_up_no_other",
                "assert ('retry', 'so",
            ),
        ),
    ),
    Fault(
        "j1",
        "J1: one count of a job that falls, as where a disk is detached, makes all of its counts begin again",
        (
            *_ALL_BEGIN_AGAIN,
            Edit(
                "tokiod/agent/job_cgroup.py",
                "_by_disk",
                "sums.take(parts)",
                "{metric: sum(counts.get(metric, 0) for counts in parts.values()) for metric in nothing}",
            ),
        ),
        (Proof(f"{_LINE}[a device went away: its count falls alone, and goes on from the new value]", "assert [160, 0] == [60, 0]"),),
    ),
    Fault(
        "j2",
        "J2: rows by a clock that was ahead are taken in the order of their polls, and what seems to fall counts again",
        (
            *_ALL_BEGIN_AGAIN,
            Edit("tokiod/increases.py", "_refused", "_older(samples, steps)", "np.zeros(len(samples), bool)"),
            Edit("tokiod/increases.py", "_refused", "_older(plausible, _steps(plausible))", "False"),
        ),
        (Proof(f"{_LINE}[the third poll is by a clock that is right again after it was ahead]", "assert (False, False) == (True, False)"),),
    ),
    Fault(
        "j4",
        "J4: the first row of a job that begins in the last second of a minute has an earlier begin than the others",
        (
            Edit(
                "tokiod/hub/to_rows.py",
                "job_rows",
                "np.where(begun // BILLION > time, time * BILLION, begun)",
                "np.where(begun < 0, -1, np.minimum(begun, time * BILLION))",
            ),
            Edit(
                "tokiod/increases.py",
                "_again",
                "np.where(before >= 0, has_fallen | (begin // BILLION > before // BILLION), begin > found.last[at - 1])",
                "True",
            ),
        ),
        (Proof(f"{_LINE}[a begin within the same second is the same one]", "assert [10, 7] == [1, 0]"),),
    ),
    Fault(
        "j5",
        "J5: rows of earlier attempts at a window are dropped where they can't be read for a moment",
        (Edit("tokiod/jobs/table.py", "with_rows_of", "isinstance(reason := unreadable(path, error), OSError)", "False"),),
        (
            Proof(
                "tests/jobs/test_table.py::test_rows_of_an_earlier_attempt_that_cannot_be_read_now_are_not_dropped", "DID NOT RAISE Refusal"
            ),
        ),
    ),
    Fault(
        "n5",
        "N5: a job that two hierarchies lead to is met twice",
        (
            Edit(
                "tokiod/agent/hierarchies.py",
                "hierarchies",
                '[Hierarchy(1, controllers[name], name == "cpuacct") for name in _CONTROLLERS if name in controllers]',
                '[Hierarchy(1, root, True) for name, root in _mounted(tree) if name == "cpuacct"]',
            ),
            Edit("tokiod/agent/hierarchies.py", "hierarchies", "_identity(tree, one.root)", "one.root"),
            Edit("tokiod/agent/sensors/jobs.py", "Jobs._meet_job", "job in self._named", "False"),
            Edit("tokiod/increases.py", "_were_gone", "bool(found.common)", "True"),
            Edit("tokiod/increases.py", "_were_gone", "~found.gone[at] | changed", "True"),
        ),
        (
            Proof(f"{_LINE}[it says so a second time]", "assert [9, 7] == [0, 0]"),
            Proof(
                "tests/agent/test_jobs_of_trees.py::test_a_job_that_is_in_no_cgroup_with_cpu_time_is_reported_without_it_and_counted[slurm/uid_1/job_5]",
                "assert {} == {'slurm:5'",
            ),
        ),
    ),
)
