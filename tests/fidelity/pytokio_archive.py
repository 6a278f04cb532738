"""Run in pytokio's own environment: archive databases of LMT. One line of JSON per case on stdin: the arguments of its program."""

import contextlib
import io
import json
import sys
import warnings
from functools import partialmethod

import h5py
import tokio.cli.archive_lmtdb

warnings.simplefilter("ignore")
# It was written for h5py 2, which opened files for writing by default.
h5py.File.__init__ = partialmethod(h5py.File.__init__, mode="a")
for line in sys.stdin:
    with contextlib.redirect_stdout(io.StringIO()):
        tokio.cli.archive_lmtdb.main(json.loads(line))
