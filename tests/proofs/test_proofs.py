"""Each make target that a document names is a row of docs/proofs.md, or builds something; each proof starts."""

import os
import re
import subprocess
import sys

import pytest

from tests.proofs.table import ROOT, STARTS, TABLE, programs, proofs

BUILDING = {
    "agent", "clean", "constraints", "deb", "demo", "docs", "install", "lint", "proofs", "rpm", "sbom", "screenshots", "servers",
    "simulate-ci", "simulate-coverage", "test", "wheel",
}  # fmt: skip
TARGETS = set(re.findall(r"(?m)^([a-z-]+)(?: [a-z-]+)?:(?!=)", (ROOT / "Makefile").read_text())) | {"rpm"}


def test_each_target_that_a_document_names_is_in_the_table():
    texts = [path.read_text() for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]]
    named = {target for text in texts for target in re.findall(r"`make ([a-z-]+)", text)} & TARGETS
    assert named - BUILDING <= {proof.target for proof in proofs()}
    assert TARGETS - BUILDING - {"help"} == {proof.target for proof in proofs()}


def test_each_row_of_the_table_is_read_and_names_a_short_form():
    found = proofs()
    assert len(found) == TABLE.read_text().count("\n| `make ")
    for proof in found:
        assert proof.short == STARTS or proof.command or (ROOT / proof.short).is_file(), proof.target
        assert not proof.commit or re.fullmatch(r"\d{4}-\d\d-\d\d", proof.day), proof.target


@pytest.mark.parametrize("proof", proofs(), ids=lambda proof: proof.target)
def test_each_program_of_a_proof_can_start(proof):
    """All that it imports is there."""
    started = programs(proof.target)
    assert started or proof.target == "read-while-writing"
    for module in started:
        environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": f"{ROOT}:{ROOT / 'tests/support'}:{ROOT / 'tests/system'}"}
        done = subprocess.run(
            [sys.executable, "-c", f"import {module}"], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
