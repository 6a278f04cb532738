"""Each old fault can be restored in today's code, so `make faults` proves what it states."""

import pytest

from tests.faults.edits import EDITS, Edit, EditError
from tests.faults.restored import ROOT, apply, faults

FAULTS = faults()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_patch_of_a_fault_applies_to_todays_code(fault):
    apply(fault, ROOT, check=True)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_tests_of_a_fault_exist(fault):
    for proof in fault.proofs:
        module, *_, name = proof.test.split("::")
        assert f"def {name.partition('[')[0]}(" in (ROOT / module).read_text("utf-8"), proof.test


@pytest.mark.parametrize("edit", [pytest.param(edit, id=f"{fault.name}-{edit.function}") for fault in EDITS for edit in fault.edits])
def test_an_edit_fits_todays_code_in_one_place(edit):
    assert edit.applied((ROOT / edit.module).read_text("utf-8"))


def test_an_edit_replaces_one_expression_of_one_function_however_it_is_laid_out():
    source = "class A:\n    def f(x):\n        return (x  +\n            1)\n\n\ndef f(x):\n    return x + 1\n"
    changed = "class A:\n\n    def f(x):\n        return x\n\ndef f(x):\n    return x + 1"
    assert Edit("a.py", "A.f", "x + 1", "x").applied(source) == changed
    with pytest.raises(EditError, match="'x - 1' 0 times"):
        Edit("a.py", "A.f", "x - 1", "x").applied(source)
