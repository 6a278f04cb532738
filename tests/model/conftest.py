"""The model test takes minutes of one core: beside a whole run it has a process of its own, without coverage, and is asked last."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ALONE = "MODEL_ALONE"
MANY = 100
"""Other tests beside which a process of its own is worth while."""

_process = pytest.StashKey[subprocess.Popen[bytes]]()
_output = pytest.StashKey[Path]()


def _is_own(item: pytest.Item) -> bool:
    return item.path.parent == HERE


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=_is_own)
    if ALONE in os.environ or len(items) < MANY or not any(map(_is_own, items)) or config.option.collectonly:
        return
    with tempfile.NamedTemporaryFile(prefix="model-", suffix=".out", delete=False) as output:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE)]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")} | {ALONE: "1"}
        config.stash[_process] = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment, cwd=config.rootpath)
        config.stash[_output] = Path(output.name)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Wait for the other process instead of doing the same again."""
    process = pyfuncitem.config.stash.get(_process, None)
    if process is None or not _is_own(pyfuncitem):
        return None
    if process.wait() != 0:
        pytest.fail(pyfuncitem.config.stash[_output].read_text(), pytrace=False)
    return True


def pytest_unconfigure(config: pytest.Config) -> None:
    if (process := config.stash.get(_process, None)) is not None:
        process.kill()
        process.wait()
        config.stash[_output].unlink()
