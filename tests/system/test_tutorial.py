"""docs/tutorial.md, every shell block as printed, in one shell, from a directory that has the environment in .venv."""

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tokiod.simulator.sources import free_port

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.system

BLOCK = re.compile(r"^```sh( once)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_tutorial_ends_with_a_picture(tmp_path):
    pytest.importorskip("matplotlib") if os.environ.get("CI") != "true" else None
    blocks = BLOCK.findall((ROOT / "docs" / "tutorial.md").read_text("utf-8"))
    once = [text for mark, text in blocks if mark]
    assert [text.split("#")[0].strip() for text in once] == ["make install"], "what CI has done already, and nothing else"
    (tmp_path / ".venv").symlink_to(sys.prefix)
    (page,) = set(re.findall(r"127\.0\.0\.1:(\d+)", "".join(text for _, text in blocks)))
    script = "set -eux -o pipefail\n" + "".join(text for mark, text in blocks if not mark)
    kept = script.replace("rm -r play\n", "").replace(f"127.0.0.1:{page}", f"127.0.0.1:{free_port()}")
    assert kept != script
    with subprocess.Popen(
        ["bash", "-c", kept], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as shell:
        try:
            said = shell.communicate(timeout=800)[0]
        finally:
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
    log = (tmp_path / "play" / "log").read_text()
    assert shell.returncode == 0, f"{said[-4000:]}\n{log[-2000:]}"
    assert "Traceback" not in said + log
    assert (tmp_path / "play" / "reads.png").read_bytes().startswith(b"\x89PNG")
    assert said.count("no gaps in any source") == 2
    assert "GiB read" in said
    assert re.search(r"(?m)^  web: running: alive, 0 viewers, ", said)
    assert '"event": "web.stopped"' in (tmp_path / "play" / "web.log").read_text()
