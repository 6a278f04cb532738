"""The command lines: `tokiod` and `tokioctl`."""

import gc
import os
import sys

# numpy brings OpenBLAS, which starts a thread per core. Such a thread spins for 75 ms before it sleeps, nothing here uses it, and a process
# with one thread ends sooner (tokiod.cli.common.fast_exit). It must be set before numpy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# msgspec takes from typing_extensions, if that can be imported, what typing has since Python 3.11. It takes 2 to 3 ms of every start.
if "typing_extensions" not in sys.modules:
    sys.modules["typing_extensions"] = None  # type: ignore[assignment] # an import of it fails
    import msgspec as _  # noqa: F401

    del sys.modules["typing_extensions"]

DEFAULT_THRESHOLD = gc.get_threshold()
START_OBJECTS = 200_000
"""New objects before the first garbage collection: more than a start makes. Almost all of those stay, and with Python's default of 700 a
hundred collections find nothing among them in 8 to 18 ms."""
gc.set_threshold(START_OBJECTS)


def freeze_imports() -> None:
    """Collect garbage by default again, from now on, and never look at the objects that there are: for a process that runs long."""
    gc.freeze()
    gc.set_threshold(*DEFAULT_THRESHOLD)
