"""The edits of a small module, and which of them its tests notice."""

import ast
import shutil
import sys
from pathlib import Path

import pytest

from tests.mutants import recording
from tests.mutants.__main__ import EQUIVALENT, PACKAGES, Copy, Recorded, all_edits, drawn, main, modules_for, reasons, run
from tests.mutants.edits import Edit, edits

MODULE = '''"""A module: 1 + 1."""
from typing import TYPE_CHECKING
import structlog
log = structlog.get_logger()
if TYPE_CHECKING:
    LIMIT = 1 + 1
__all__ = ["half"[0:]]


def half(values: "list[1 + 1]", is_whole: bool = True) -> "1 + 1":
    log.info("half.done", count=1 + 1)
    if len(values) > 7 and is_whole:
        raise ValueError(f"{1 + 1} is ä too many")
    return [value for value, _ in zip(values[:len(values) // 2], values, strict=False)]
'''
TEST = """from pathlib import Path
import pytest
from tokiod.small.half import half
def test_that_executes_nothing():
    Path("all").touch()
class TestHalf:
    @pytest.mark.parametrize("values", ["abcdef", "ABCDEF"], ids=["a b::c[d]/e.py", "ä"])
    def test_half(self, values):
        assert half(list(values)) == list(values[:3])
    def test_a_whole(self):
        assert half(list("abcdefghi"), False) == ["a", "b", "c", "d"]
def test_too_many():
    pytest.raises(ValueError, half, list("abcdefghi"))
"""
HALF, WHOLE, MANY = (f"tests/small/test_half.py::{name}" for name in ("TestHalf::test_half", "TestHalf::test_a_whole", "test_too_many"))


@pytest.fixture
def tree(tmp_path):
    """A package with its tests, which miss the length of eight."""
    root = tmp_path / "root"
    (root / "tokiod/small").mkdir(parents=True)
    (root / "tests/small").mkdir(parents=True)
    (root / "tokiod/__init__.py").touch()
    (root / "tokiod/small/half.py").write_text(MODULE)
    (root / "tests/small/test_half.py").write_text(TEST)
    (root / "tests/small/test_another.py").write_text("def test_another():\n    pass\n")
    (root / "tests/mutants").mkdir()
    shutil.copy(recording.__file__, root / "tests/mutants")
    (root / "pytest.ini").write_text("[pytest]\naddopts = -p no:zarr -p no:anyio -p no:xdist\n")
    (root / "conftest.py").write_text("from hypothesis import settings\nsettings.register_profile('unshrunk')\n")
    return root


def test_what_only_describes_is_not_edited(tree):
    changes = [(edit.line, edit.change) for edit in edits(tree, "tokiod/small/half.py")]
    assert {line for line, _ in changes} == {10, 12, 14}
    assert changes[0] == (10, "True -> False")
    assert (12, "len(values) > 7 and is_whole -> (len(values) > 7 or is_whole)") in changes
    assert (14, "len(values) // 2 -> (len(values) // 2 + 1)") in changes


def test_the_survivors_are_the_edits_that_the_tests_miss(tree, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("tests.mutants.__main__.RECORDED_EDITS", 2)
    planted = {"len(values) > 7 -> len(values) >= 7"}
    noticed = {"len(values) > 7 and is_whole -> (len(values) > 7 or is_whole)"}
    chosen = [edit for edit in edits(tree, "tokiod/small/half.py") if edit.change in planted | noticed]
    survivors = {edit.change for edit in run(chosen, tmp_path / "copies", root=tree)}
    assert survivors == planted
    printed = ("tokiod/small/half.py:12: len(values) > 7 -> len(values) >= 7\n", "tests/small: recorded 5 tests\n")
    assert capsys.readouterr() == printed
    assert (tree / "tokiod/small/half.py").read_text() == MODULE


def test_the_tests_of_an_edited_line_run_first_and_all_if_they_do_not_fail_or_are_gone(tree, tmp_path):
    copy, path = Copy(tmp_path / "copy", tree), "tokiod/small/half.py"
    have_all_run = copy.tree / "all"
    recorded = copy.record(Path("tests/small"), [path])
    assert {line: set(tests) for line, tests in recorded.lines[path].items()} == {
        11: {HALF, WHOLE, MANY},
        12: {HALF, WHOLE, MANY},
        13: {MANY},
        14: {HALF, WHOLE},
    }
    have_all_run.unlink()
    missed, noticed = (edit for edit in edits(tree, path) if edit.change in {"7 -> (8)", "2 -> (3)"})
    assert copy.is_noticed(noticed, recorded)
    assert not have_all_run.exists()
    gone = f"{MANY}_items"
    assert not copy.is_noticed(missed, Recorded({path: {12: [gone]}}, {gone: 1}))
    assert have_all_run.exists()


def test_the_cheapest_tests_of_a_line_run_first_module_by_module():
    edit = Edit("half.py", 2, 3, "", 0, 0, "", "")
    seconds = {"b.py::1": 1.0, "a.py::2": 2.0, "b.py::3": 3.0, "b.py::50": 50.0, "a.py::60": 60.0, "c.py::other": 0.0}
    lines = {1: ["c.py::other"], 2: ["b.py::50", "b.py::3", "a.py::60"], 3: ["b.py::3", "a.py::2", "b.py::1"]}
    assert Recorded({"half.py": lines}, seconds).tests_for(edit) == ["b.py::1", "b.py::3", "b.py::50", "a.py::2"]
    assert Recorded({"half.py": {1: lines[1]}}, seconds).tests_for(edit) == ["c.py::other"]
    many = {f"a.py::{number}": 0.0 for number in range(50)}
    assert len(Recorded({"half.py": {2: list(many)}}, many).tests_for(edit)) == 40
    assert Recorded().tests_for(edit) == []


def test_a_test_that_fails_without_an_edit_proves_nothing(tree, tmp_path):
    (tree / "tests/small/test_half.py").write_text("def test_half():\n    assert False\n")
    with pytest.raises(RuntimeError, match="test_half fails without an edit"):
        run(edits(tree, "tokiod/small/half.py")[:1], tmp_path / "copies", 1, tree)


def test_an_edit_is_a_program():
    for edit in drawn(all_edits(PACKAGES), 300, 1):
        ast.parse(edit.applied((EQUIVALENT.parents[2] / edit.path).read_bytes()))


def test_a_seed_draws_the_same_edits_and_one_of_a_line():
    known = all_edits(PACKAGES)
    chosen = drawn(known, 300, 1)
    assert chosen == drawn(known, 300, 1) != drawn(known, 300, 2)
    assert len({(edit.path, edit.line) for edit in chosen}) == 300


def test_the_modules_for_a_module_come_before_the_others_of_its_package():
    assert modules_for(EQUIVALENT.parents[2], "tokiod/jobs/span.py")[0] == "tests/jobs/test_span.py"
    found = modules_for(EQUIVALENT.parents[2], "tokiod/hub/classes.py")
    assert sorted(found) == [f"tests/hub/test_{name}.py" for name in ("hub", "process", "to_rows", "to_window")]


def test_each_equivalent_edit_exists_and_has_a_reason(monkeypatch, tmp_path, capsys):
    listed = reasons(EQUIVALENT)
    assert listed.keys() <= {edit.key for edit in all_edits(PACKAGES)}
    assert all(listed.values())
    other = tmp_path / "equivalent.txt"
    other.write_text("tokiod/jobs/span.py | gone | 1 -> (2) | it was\n")
    monkeypatch.setattr("tests.mutants.__main__.EQUIVALENT", other)
    monkeypatch.setattr(sys, "argv", ["mutants", "--edits", "0", "--seed", "1"])
    assert main() == 1
    assert "equivalent.txt: the code has no such line or edit: tokiod/jobs/span.py | gone | 1 -> (2)\n" in capsys.readouterr().out
