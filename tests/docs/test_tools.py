"""The examples for other programs: make tools runs all, the suite those that need nothing more than the tests do."""

import shutil
import sys

import pytest

from tests.tools.__main__ import WANTED, examples, make_files, run

PROGRAMS = {title: (language, program) for title, language, program in examples()}


def test_the_page_has_an_example_for_each_program():
    assert list(PROGRAMS) == ["pandas", "xarray", "pytokio", "h5dump", "R", "Octave"]


@pytest.mark.parametrize("title", ["pandas", "h5dump"])
def test_an_example_counts_what_is_missing_and_keeps_the_measured_zero(tmp_path, title):
    if title == "h5dump" and shutil.which("h5dump") is None:
        pytest.skip("h5dump (hdf5-tools) is not installed")
    for file in make_files(tmp_path):
        shutil.copy(file, tmp_path / "day.hdf5")
        language, program = PROGRAMS[title]
        assert run(program, language, sys.executable, tmp_path).removesuffix(".0") == WANTED
