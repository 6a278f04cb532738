"""Run the examples of docs/tools.md on a live and a sealed file: `python -m tests.tools PYTHON PYTOKIO`.

PYTHON: one that has xarray; PYTOKIO: one that has pytokio 0.13.0. Prints one line, after one for each example with a wrong result.
Exit 0 if each one printed what it should, 1 if not.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from tokiod.tts.live.create import create
from tokiod.tts.live.live_file import LiveFile
from tokiod.tts.sealed.seal import seal
from tokiod.tts.spec import FileSpec, GroupSpec, MatrixSpec

PAGE = Path(__file__).parents[2] / "docs" / "tools.md"
START, HOUR = 1_517_212_800, 3600
NAMES = ("OST0000", "OST0001", "OST0002")
WANTED = "3 missing, mean 6"
SUFFIXES = {"python": ".py", "sh": ".sh", "r": ".R", "octave": ".m"}
UNTESTED = {"matlab", "julia"}
BLOCK = re.compile(r"^## ([^\n]+)\n(?:(?!^## ).)*?```(\w+)\n(.*?)```", re.MULTILINE | re.DOTALL)


def examples() -> list[tuple[str, str, str]]:
    """Return the sections of the page: title, language, program."""
    return [(title, language, text) for title, language, text in BLOCK.findall(PAGE.read_text("utf-8")) if language not in UNTESTED]


def make_files(directory: Path) -> list[Path]:
    """Create the same day live and sealed: of OST0001 three cells are missing, one is zero and the mean is six."""
    spec = FileSpec(
        START, START + 24 * HOUR, {"datatargets": GroupSpec(HOUR, "lmt")}, {"datatargets/readbytes": MatrixSpec(NAMES, counter=True)}
    )
    live, sealed = directory / "live.hdf5", directory / "sealed.hdf5"
    create(live, spec, created=START)
    values = np.full((24, 3), 1.5)
    values[:, 1] = [-0.0] * 3 + [0.0] + [6.0] * 18 + [12.0, 6.0]
    file = LiveFile.open(live)
    file.cells["datatargets/readbytes"].write_rows(0, values)
    file.commit()
    seal(file, sealed, updated=START + 24 * HOUR)
    file.close()
    return [live, sealed]


def run(program: str, language: str, python: str, directory: Path) -> str:
    """Return what a program prints in a directory with day.hdf5, or its error."""
    script = directory / f"example{SUFFIXES[language]}"
    script.write_text(program)
    commands = {"python": [python], "sh": ["sh"], "r": ["Rscript"], "octave": ["octave-cli", "--quiet", "--no-init-file"]}
    try:
        done = subprocess.run([*commands[language], str(script)], cwd=directory, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        return f"{error.filename} is not installed"
    return " ".join(done.stdout.split()) or done.stderr.strip()


def main(python: str, pytokio: str) -> int:
    """Run all examples."""
    pages, wrong = examples(), []
    # The examples run in another directory. resolve() would leave the environment.
    python, pytokio = (str(Path(one).absolute()) for one in (python, pytokio))
    with tempfile.TemporaryDirectory(prefix="tools") as name:
        directory = Path(name)
        for file in make_files(directory):
            shutil.copy(file, directory / "day.hdf5")
            for title, language, program in pages:
                found = run(program, language, pytokio if title == "pytokio" else python, directory)
                if re.fullmatch(rf"{WANTED}(\.0+)?", found) is None:
                    wrong.append(f"{title}, {file.stem} file: {found!r} instead of {WANTED!r}")
    print("\n".join([*wrong, f"{len(pages)} programs ({', '.join(title for title, _, _ in pages)}), live and sealed: {len(wrong)} wrong"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
