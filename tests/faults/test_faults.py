"""Each old fault can be restored in today's code, so `make faults` proves what it states."""

import pytest

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
