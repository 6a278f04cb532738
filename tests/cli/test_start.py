"""What a process imports before its work begins: numpy, HDF5, aiohttp, ZeroMQ and rich make a start up to five times as long.

None of them may start a thread: those of numpy's OpenBLAS spin.
"""

import os
import subprocess
import sys

import pytest

HEAVY = {"aiohttp", "asyncmy", "elasticsearch", "h5py", "numpy", "rich", "zmq"}


@pytest.mark.parametrize(
    ("modules", "used"),
    [
        ("tokiod.cli.tokiod, tokiod.supervisor.supervisor", set()),
        ("tokiod.cli.tokiod, tokiod.polling.process", {"numpy", "zmq"}),
        ("tokiod.cli.tokiod, tokiod.writer.process", {"h5py", "numpy", "zmq"}),
        ("tokiod.cli.tokiod, tokiod.polling.process, collectors.lmt.collector", {"numpy", "zmq"}),
        ("tokiod.cli.tokiod, tokiod.feed_proxy.process", {"zmq"}),
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


def test_rich_can_be_imported_after_structlog():
    script = "import tokiod.runtime.log, sys, rich.table; import structlog.dev; assert structlog.dev.rich is None"
    subprocess.run([sys.executable, "-c", script], check=True)
