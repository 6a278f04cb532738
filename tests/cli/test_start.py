"""What a process imports before its work begins: numpy, HDF5, aiohttp, ZeroMQ and rich make a start up to five times as long.

structlog imports rich, which no daemon's process uses. None of them may start a thread: those of numpy's OpenBLAS spin. A Ctrl-C during
the imports ends the programs without a traceback.
"""

import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

HEAVY = {"aiohttp", "asyncmy", "elasticsearch", "h5py", "numpy", "rich", "zmq"}


@pytest.mark.parametrize(
    ("modules", "used"),
    [
        ("tokiod.cli.tokiod, tokiod.supervisor.supervisor", {"rich"}),
        ("tokiod.cli.tokiod, tokiod.polling.process", {"numpy", "rich", "zmq"}),
        ("tokiod.cli.tokiod, tokiod.writer.process", {"h5py", "numpy", "rich", "zmq"}),
        ("tokiod.cli.tokiod, tokiod.polling.process, collectors.lmt.collector", {"numpy", "rich", "zmq"}),
        ("tokiod.cli.tokiod, tokiod.feed_proxy.process", {"rich", "zmq"}),
        ("tokiod.cli.tokioctl, tokiod.config.load", set()),
        ("tokiod.simulator.__main__, tokiod.simulator.lmt.database", {"numpy"}),
    ],
)
def test_a_process_imports_only_what_it_uses(modules, used):
    script = f"import os, sys, {modules}; print(*{HEAVY} & sys.modules.keys()); print(len(os.listdir('/proc/self/task')))"
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    imported, threads = done.stdout.splitlines()
    assert (set(imported.split()), threads) == (used, "1")


INTERRUPTED_IMPORT = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.{action})
sys.meta_path.insert(0, Interrupting())
sys.argv = [{program!r}, "--version"]
from tokiod.cli import start
start.{program}()
"""


def interrupted(program, module, action="default_int_handler"):
    """Interrupt a program when it imports a module; return its exit code and what it printed."""
    code = INTERRUPTED_IMPORT.format(program=program, module=module, action=action)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=100)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("program", ["tokiod", "tokioctl"])
@pytest.mark.parametrize("module", ["click", "click.core", "tokiod.cli.common.base", "tokiod.cli.common.examples"])
def test_a_ctrl_c_during_the_imports_ends_a_program_without_a_word(program, module):
    assert interrupted(program, module) == (-signal.SIGINT, "", "")


@pytest.mark.parametrize("program", ["tokiod", "tokioctl"])
def test_an_ignored_interrupt_stays_ignored_during_the_imports(program):
    code, stdout, stderr = interrupted(program, "click", "SIG_IGN")
    assert (code, stdout.split()[0], stderr) == (0, f"{program},", "")


@pytest.mark.parametrize("program", ["tokiod", "tokioctl"])
def test_after_the_imports_a_program_handles_an_interrupt_itself(program):
    check = (
        "import signal; from tokiod.cli import start; from tokiod.cli.common import base\n"
        "base.PlainGroup.main = lambda *_: print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)\n"
    )
    done = subprocess.run([sys.executable, "-c", f"{check}start.{program}()"], capture_output=True, text=True, check=True, timeout=100)
    assert done.stdout == "True\n"


def test_the_installed_programs_begin_there():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {program: f"tokiod.cli.start:{program}" for program in ("tokiod", "tokioctl")}
