"""Each old fault can be restored in today's code, so `make faults` proves what it states."""

import pytest

from tests.faults.edits import FAULTS, Edit, EditError
from tests.faults.restored import ROOT


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_tests_of_a_fault_exist(fault):
    assert fault.proofs
    for proof in fault.proofs:
        module, *_, name = proof.test.split("::")
        assert f"def {name.partition('[')[0]}(" in (ROOT / module).read_text("utf-8"), proof.test


@pytest.mark.parametrize("edit", [pytest.param(edit, id=f"{fault.name}-{edit.function}") for fault in FAULTS for edit in fault.edits])
def test_an_edit_fits_todays_code_in_one_place(edit):
    assert edit.applied((ROOT / edit.module).read_text("utf-8"))


def test_an_edit_replaces_one_expression_of_one_function_however_it_is_laid_out():
    source = "class A:\n    def f(x):\n        return (x  +\n            1)\n\n\ndef f(x):\n    return x + 1\n"
    changed = "class A:\n\n    def f(x):\n        return x\n\ndef f(x):\n    return x + 1"
    assert Edit("a.py", "A.f", "x + 1", "x").applied(source) == changed
    with pytest.raises(EditError, match="'x - 1' 0 times"):
        Edit("a.py", "A.f", "x - 1", "x").applied(source)
