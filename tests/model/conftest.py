"""The model test takes minutes of one core: beside a whole run it has a process of its own, without coverage, and is asked last."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ALONE = "MODEL_ALONE"
MANY = 100
"""Other tests beside which a process of its own is worth while."""

# Not our child: there are tests that look for what their code leaves behind.
_START = """setsid sh -c '"$@" > "$0/out" 2>&1; echo $? > "$0/code"' "$@" < /dev/null > /dev/null 2>&1 & echo $!"""

_group = pytest.StashKey[int]()
_place = pytest.StashKey[Path]()


def _is_own(item: pytest.Item) -> bool:
    return item.path.parent == HERE


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=_is_own)
    if ALONE in os.environ or len(items) < MANY or not any(map(_is_own, items)) or config.option.collectonly:
        return
    place = config.stash[_place] = Path(tempfile.mkdtemp(prefix="model-"))
    command = ["sh", "-c", _START, "sh", str(place), sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")} | {ALONE: "1"}
    started = subprocess.run(command, env=environment, cwd=config.rootpath, stdout=subprocess.PIPE, check=True)
    config.stash[_group] = int(started.stdout)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Wait for the other process instead of doing the same again."""
    place = pyfuncitem.config.stash.get(_place, None)
    if place is None or not _is_own(pyfuncitem):
        return None
    while not (place / "code").exists() or not (code := (place / "code").read_text().strip()):
        time.sleep(0.2)
    if code != "0":
        pytest.fail((place / "out").read_text(), pytrace=False)
    return True


def pytest_unconfigure(config: pytest.Config) -> None:
    if (group := config.stash.get(_group, None)) is not None:
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
        shutil.rmtree(config.stash[_place])
