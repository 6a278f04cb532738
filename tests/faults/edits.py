"""Old faults that edits of the syntax tree restore: each names a function and an expression in it, wherever that stands.

A patch (tests.faults.restored) fails as soon as a neighbouring line changes; an edit only when what it replaces does.
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
class EditedFault:
    """A fault of the review, and all edits that restore it together."""

    name: str
    title: str
    edits: tuple[Edit, ...]

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

EDITS = (
    EditedFault(
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
    ),
    EditedFault(
        "j2",
        "J2: rows by a clock that was ahead are taken in the order of their polls, and what seems to fall counts again",
        (
            *_ALL_BEGIN_AGAIN,
            Edit("tokiod/increases.py", "_refused", "_older(samples, steps)", "np.zeros(len(samples), bool)"),
            Edit("tokiod/increases.py", "_refused", "_older(plausible, _steps(plausible))", "False"),
        ),
    ),
    EditedFault(
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
    ),
    EditedFault(
        "j5",
        "J5: rows of earlier attempts at a window are dropped where they can't be read for a moment",
        (Edit("tokiod/jobs/table.py", "with_rows_of", "isinstance(reason := unreadable(path, error), OSError)", "False"),),
    ),
    EditedFault(
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
    ),
)
