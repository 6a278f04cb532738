"""A simulated site: real sources over synthetic load, for which every correct cell is known."""

import os

# As in tokiod.cli: before numpy.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
