"""`make proofs`: the short form of each proof in docs/proofs.md that no test module runs; a line for each, and one for all.

python -m tests.proofs              run them
python -m tests.proofs --release    name the proofs without a whole run since the last release (tag v*); exits 1 if there are any
"""

from __future__ import annotations

import subprocess
import sys
import time

from tests.proofs.table import ROOT, Proof, proofs

APART = {"simulate-ci"}
"""Targets that .ci/run starts by themselves."""


def main() -> int:
    return refused() if sys.argv[1:] == ["--release"] else shortly()


def shortly() -> int:
    """Run the short forms one after the other."""
    commands = {" ".join(proof.command): proof.command for proof in proofs() if proof.command and proof.command[1] not in APART}
    failed = 0
    for name, command in commands.items():
        begun = time.monotonic()
        done = subprocess.run([*command, "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, check=False)
        failed += bool(done.returncode)
        last = (done.stdout.strip().splitlines() or ["no output"])[-1]
        print(f"{name}: {last} ({time.monotonic() - begun:.0f} s)", flush=True)
        if done.returncode:
            print(done.stderr, file=sys.stderr, flush=True)
    print(f"proofs in short form {len(commands)} failed {failed}")
    return int(bool(failed))


def refused() -> int:
    """Name the proofs without a whole run since the last release."""
    tag = _git("describe", "--tags", "--match", "v*", "--abbrev=0").stdout.strip()
    missing = [proof for proof in proofs() if not proof.commit or not _is_since(tag, proof)]
    for proof in missing:
        print(f"make {proof.target}: last whole run {proof.day or 'not recorded'} {proof.commit}".rstrip())
    print(f"proofs {len(proofs())} without a whole run since {tag or 'the table began'} {len(missing)}")
    return int(bool(missing))


def _is_since(tag: str, proof: Proof) -> bool:
    # A commit that is not in this history was not run on this code.
    return _git("merge-base", "--is-ancestor", tag or proof.commit, proof.commit).returncode == 0


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)


if __name__ == "__main__":
    sys.exit(main())
