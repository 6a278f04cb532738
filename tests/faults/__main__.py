"""`make faults`: restore each old fault in a copy of the tree, and see its tests fail.

    python -m tests.faults [NAME...] [--jobs N]

NAME: of a fault in tests/faults/edits.py, such as a1; all without. Prints one line for each test, and a closing line. Exits 1 if an edit no
longer fits, or a test passes with it, fails for another reason than is stated, or fails without it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.faults.edits import FAULTS, EditError, Fault, Proof
from tests.faults.restored import NotRun, copy_tree, run_tests


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--jobs", type=int, default=2, help="how many faults at a time")
    arguments = parser.parse_args()
    known = {fault.name: fault for fault in FAULTS}
    if unknown := set(arguments.names) - set(known):
        parser.error(f"unknown fault {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    chosen = [known[name] for name in arguments.names] or list(known.values())
    with tempfile.TemporaryDirectory(prefix="tokiod-faults-") as name, ThreadPoolExecutor(arguments.jobs) as pool:
        directory = Path(name)
        directory.chmod(0o755)  # other users of the tests read the tree
        sound = pool.submit(errors_without_fault, chosen, directory)
        wrong = 0
        for lines, errors in pool.map(lambda fault: restore(fault, directory), chosen):
            wrong += bool(errors)
            for line in lines + errors:
                print(line, flush=True)
        broken = sound.result()
    for line in broken:
        print(line)
    found = f"{len(chosen)} faults, each found by its test" if not wrong else f"{len(chosen)} faults, {wrong} of them not found"
    print(f"{found}; without them {'every test passes' if not broken else f'{len(broken)} tests fail'}")
    return int(bool(wrong or broken))


def restore(fault: Fault, directory: Path) -> tuple[list[str], list[str]]:
    """Restore a fault and run its tests; return a line for each that fails as it should, and one for each error."""
    try:
        tree = copy_tree(directory / fault.name)
        fault.apply(tree)
        outcomes = run_tests(tree, [proof.test for proof in fault.proofs], directory / f"{fault.name}.xml")
    except (EditError, NotRun) as error:
        return [], [f"{fault.name} ERROR {error}"]
    named = fault.name.upper()
    errors = [f"{named} ERROR {error}" for proof in fault.proofs if (error := error_of(proof, outcomes[proof.test]))]
    right = [proof for proof in fault.proofs if not error_of(proof, outcomes[proof.test])]
    return [f"{named} {proof.test} fails as it should: {line_of(proof, outcomes[proof.test])}" for proof in right], errors


def error_of(proof: Proof, outcome: str) -> str:
    if not outcome:
        return f"{proof.test} passes with the fault restored"
    if proof.fails not in outcome:
        return f"{proof.test} fails for another reason than `{proof.fails}`: {outcome.splitlines()[0]}"
    return ""


def line_of(proof: Proof, outcome: str) -> str:
    return next(line for line in outcome.splitlines() if proof.fails.splitlines()[0] in line)


def errors_without_fault(chosen: list[Fault], directory: Path) -> list[str]:
    """Run all tests in a copy without a fault; return a line for each that fails."""
    tests = list(dict.fromkeys(proof.test for fault in chosen for proof in fault.proofs))
    try:
        outcomes = run_tests(copy_tree(directory / "sound"), tests, directory / "sound.xml")
    except NotRun as error:
        return [f"without a fault: {error}"]
    return [f"without a fault: {test} fails: {outcome.splitlines()[0]}" for test, outcome in outcomes.items() if outcome]


if __name__ == "__main__":
    sys.exit(main())
