"""The edits of one place that a module can have, found in its syntax tree.

What only describes is not edited: annotations, docstrings, log events, messages, decorators, keywords of classes, blocks of TYPE_CHECKING.
Nor are checks of the programmer: assertions, and the strict of zip().
"""

from __future__ import annotations

import ast
import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OTHERS: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
    ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
NAMES = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum"}


@dataclass(frozen=True)
class Edit:
    """A piece of a module, [begin, end) bytes, and what replaces it. path: relative to the tree; text: the whole first line."""

    path: str
    line: int
    last_line: int
    text: str
    begin: int
    end: int
    old: str
    new: str

    @property
    def change(self) -> str:
        """The edit in one line."""
        return f"{self.old} -> {self.new}"

    @property
    def key(self) -> str:
        """Its name in equivalent.txt: line numbers change too often."""
        return f"{self.path} | {self.text} | {self.change}"

    def applied(self, source: bytes) -> bytes:
        """Return the edited module."""
        return source[: self.begin] + self.new.encode() + source[self.end :]


def edits(tree: Path, path: str) -> list[Edit]:
    """Return all edits of a module."""
    source = (tree / path).read_bytes()
    lines = source.splitlines(keepends=True)
    begins = [0]
    for line in lines:
        begins.append(begins[-1] + len(line))
    found = dict[Edit, None]()
    for node, new in _changes(ast.parse(source)):
        begin, end = begins[node.lineno - 1] + node.col_offset, begins[node.end_lineno - 1] + node.end_col_offset
        edit = Edit(path, node.lineno, node.end_lineno, lines[node.lineno - 1].decode().strip(), begin, end, ast.unparse(node), new)
        found[edit] = None
    return list(found)


def _changes(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Yield the nodes below one that can be edited, and their new text."""
    if _only_describes(node):
        return
    for own in (_of_operators, _of_values, _of_statements):
        yield from own(node)
    for name, value in ast.iter_fields(node):
        is_described = name in {"annotation", "returns", "decorator_list"} or (isinstance(node, ast.ClassDef) and name == "keywords")
        for child in () if is_described else value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _changes(child)


def _only_describes(node: ast.AST) -> bool:
    match node.value if isinstance(node, ast.Expr) else node:
        case ast.If(test=ast.Name(id="TYPE_CHECKING")) | ast.JoinedStr() | ast.Assert() | ast.Import() | ast.ImportFrom():
            return True
        case (
            ast.Assign(targets=[ast.Name(id="__all__")])
            | ast.keyword(arg="strict")
            | ast.Call(func=ast.Attribute(value=ast.Name(id="log")))
        ):
            return True
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _of_operators(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    match node:
        case ast.Compare(ops=ops):
            for number, operator in enumerate(ops):
                yield node, _with(node, "ops", [*ops[:number], OTHERS[type(operator)](), *ops[number + 1 :]])
        case ast.BinOp(op=operator) | ast.BoolOp(op=operator) if type(operator) in OTHERS:
            yield node, f"({_with(node, 'op', OTHERS[type(operator)]())})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield node, f"({ast.unparse(operand)})"


def _of_values(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    match node:
        case ast.Constant(value=bool(value)):
            yield node, repr(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield node, f"({value + 1})"
            yield node, f"({value - 1})"
        case ast.Name(id=name) if name in NAMES:
            yield node, NAMES[name]
        case ast.Attribute(attr=name) if name in NAMES:
            yield node, _with(node, "attr", NAMES[name])
        case ast.Slice(lower=lower, upper=upper):
            yield from ((one, f"({ast.unparse(one)} + 1)") for one in (lower, upper) if one and not isinstance(one, ast.Constant))


def _of_statements(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    match node:
        case ast.AugAssign() | ast.Expr(value=ast.Call() | ast.Await()):
            yield node, "pass"
        case ast.Return(value=value) if value is not None and not (isinstance(value, ast.Constant) and not value.value):
            yield node, "return None"
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            yield test, f"(not ({ast.unparse(test)}))"
        case ast.comprehension(ifs=tests):
            yield from ((test, f"(not ({ast.unparse(test)}))") for test in tests)


def _with(node: ast.AST, field: str, value: object) -> str:
    new = copy.copy(node)
    setattr(new, field, value)
    return ast.unparse(new)
