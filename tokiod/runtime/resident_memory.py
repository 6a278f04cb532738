"""How much memory this process has now."""

from __future__ import annotations

import os


class ResidentMemory:
    """The resident memory of this process. The file stays open: the process may have no descriptor left when it matters."""

    def __init__(self) -> None:
        self._fd = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")

    def nbytes(self) -> int:
        """Return how many bytes are resident now."""
        return int(os.pread(self._fd, 200, 0).split()[1]) * self._page_bytes

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)
