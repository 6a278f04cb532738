"""Whether the path of a Unix socket is that of a running process, or was left by one that ended."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def is_served(path: Path) -> bool:
    """Return whether a process accepts connections at a path. Raises PermissionError where this user may not connect."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as client:
        try:
            client.connect(str(path))
        except BlockingIOError:
            # So many wait to be accepted that one more would have to wait.
            return True
        except PermissionError:
            raise
        except OSError:
            return False
    return True
