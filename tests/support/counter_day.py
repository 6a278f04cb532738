"""A day of one counter dataset in a file in memory: what tests of the counters store in and look at."""

import os

import numpy as np

from tokiod.tts.counters.counter import Counter
from tokiod.tts.live.files import REAL
from tokiod.tts.live.matrix import Matrix, OpenFile
from tokiod.tts.schema import ABSENT, MISSING, NO_ROW


class Day:
    """The three matrices of a counter in a real file, as a live file has them."""

    def __init__(self, rows, width, files=REAL):
        self.fd = os.memfd_create("day")
        file, names = OpenFile(self.fd, files, dirty=False), tuple(map(str, range(width)))
        self.cells = Matrix(file, 0, rows, names, np.float64)
        self.raw = Matrix(file, 8 * rows * width, rows + 2, names, np.int64)
        self.span = Matrix(file, 8 * (2 * rows + 2) * width, 2, names, np.int64)
        self.put(np.full((rows, width), MISSING), np.full((rows + 2, width), ABSENT), np.full((2, width), NO_ROW))
        self.reopen()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.fd)

    def put(self, *arrays):
        for matrix, array in zip((self.cells, self.raw, self.span), arrays, strict=True):
            matrix.write_rows(0, array)

    def get(self):
        return [matrix.read(0, matrix.rows) for matrix in (self.cells, self.raw, self.span)]

    def bits(self):
        return [array.view(np.int64).tolist() for array in self.get()]

    def reopen(self, *, keep=False):
        self.counter = Counter(self.cells, self.raw, self.span, keep=keep)

    def seal(self):
        """Forget raw but for what a sealed file keeps of it: the guards, each column's first, first nonzero and last sample."""
        cells, raw, span = self.get()
        rows = np.arange(len(raw))[:, None]
        first = np.where((raw >= 0) & (rows > 0), rows, len(raw)).min(axis=0)
        kept = (rows == 0) | (rows == len(raw) - 1) | (rows == first) | (rows == span[0]) | (rows == span[1])
        self.put(cells, np.where(kept, raw, ABSENT), span)
        self.reopen(keep=True)

    def store(self, batch, **options):
        row, column, value = (np.array(part, dtype) for part, dtype in zip(batch.T, (np.int64, np.intp, np.int64), strict=True))
        return self.counter.store(row, column, value, **options)
