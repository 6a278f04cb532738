"""How much memory this process has now, and how a process with connections is kept from too much."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import structlog

from tokiod.runtime.process_setup import spare_descriptors

if TYPE_CHECKING:
    from collections.abc import Callable

log = structlog.get_logger()

OVERLOADED_EXIT_CODE = 1
"""The supervisor starts a process again that ended with it."""


class ResidentMemory:
    """The resident memory of this process. The file stays open: the process may have no descriptor left when it matters."""

    def __init__(self) -> None:
        self._fd = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")

    def nbytes(self) -> int:
        """Return how many bytes are resident now."""
        return int(os.pread(self._fd, 200, 0).split()[1]) * self._page_bytes

    def limit(self, most: int, relieve: Callable[[], None], free: Callable[[str], None], process: str) -> None:
        """Free memory where the process has more than `most` bytes; end it where that is not enough.

        relieve: ends the connections that cost more than they should, from half of `most` on. free: ends all connections, for a reason
        that it reports. process: its name.
        """
        if (used := self.nbytes()) > most // 2:
            relieve()
        if used <= most:
            return
        with spare_descriptors():
            free(f"{used >> 20} MiB of memory are used, the limit is {most >> 20} MiB")
        if (still := self.nbytes()) > most:
            event = f"{process}.ended"
            log.critical(event, reason=f"{still >> 20} MiB of memory are still used; the {process} is started again")
            raise SystemExit(OVERLOADED_EXIT_CODE)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)
