"""A program in a terminal of its own, and its keyboard."""

import os
import pty
import signal
import struct
import subprocess
import termios
import time
from contextlib import suppress
from fcntl import ioctl
from multiprocessing import connection

# setsid --ctty makes it the terminal's own session, so that Ctrl-C reaches what runs in it, without a fork by Python.
SETSID = ("setsid", "--ctty")


class Terminal:
    """Run a command in a terminal of `columns` columns; whatever it prints, stderr too, is in `said`."""

    def __init__(self, command, env, columns=80, cwd=None):
        self._ours, theirs = pty.openpty()
        ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.said = ""
        self._process = subprocess.Popen([*SETSID, *map(str, command)], stdin=theirs, stdout=theirs, stderr=theirs, env=env, cwd=cwd)
        os.close(theirs)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(100)
        os.close(self._ours)

    def type(self, keys, until, seconds=60):
        """Press keys and wait until `until` is printed; return what was printed meanwhile."""
        begun = len(self.said)
        os.write(self._ours, keys.encode())
        self._read(seconds, lambda: until in self.said[begun:])
        assert until in self.said[begun:], self.said
        return self.said[begun:]

    def end(self, seconds=60):
        """Wait until it ends; return its exit code."""
        self._read(seconds, lambda: False)
        return self._process.wait(seconds)

    def _read(self, seconds, is_enough):
        limit = time.monotonic() + seconds
        while not is_enough() and time.monotonic() < limit:
            if connection.wait([self._ours], 0.2):
                try:
                    self.said += os.read(self._ours, 65536).decode(errors="replace")
                except OSError:  # no process has the terminal open any more
                    return
