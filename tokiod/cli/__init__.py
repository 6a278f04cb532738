"""The command lines: `tokiod` and `tokioctl`."""

import os

# numpy brings OpenBLAS, which starts a thread per core. Such a thread spins for 75 ms before it sleeps, nothing here uses it, and a process
# with one thread ends sooner (tokiod.cli.common.fast_exit). It must be set before numpy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
