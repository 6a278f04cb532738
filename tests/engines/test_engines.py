"""dask and DuckDB answer as tokiod.open does; Spark too, in its own environment: make engines."""

import os
from pathlib import Path

from tests.engines.answers import answers, made

SPARK = Path(__file__).parents[2] / ".venv-engines" / "bin" / "python"


def test_all_engines_have_one_answer(tmp_path):
    made(tmp_path, 2)
    found = answers(tmp_path, 2, SPARK if os.access(SPARK, os.X_OK) else None)
    right = found["tokiod"].sums
    assert len(right) == 48
    assert len(right[min(right)]) == 248
    for name, answer in found.items():
        assert answer.sums == right, name
