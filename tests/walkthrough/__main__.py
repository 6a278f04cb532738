"""`make walkthrough`: what a newcomer types, in a clean clone and a terminal of 80 columns, recorded with its output.

    python -m tests.walkthrough RECORD

Types the lines of commands.txt into one bash. Writes each with its output and exit code to RECORD, and prints one line. Exit 1 where an
exit code is another than commands.txt names, or where a traceback was printed.
"""

from __future__ import annotations

import os
import pty
import re
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from fcntl import ioctl
from pathlib import Path

ROOT = Path(__file__).parents[2]
COLUMNS, ROWS = 80, 40
LIMIT_SECONDS = 600
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
BACK = re.compile(r"[^\n]*\r(?!\n)")
"""What a progress bar has overwritten."""


class Terminal:
    """A bash of its own in a terminal."""

    def __init__(self, directory: Path) -> None:
        pid, self._fd = pty.fork()
        if pid == 0:
            os.chdir(directory)
            environment = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
            os.execve("/bin/bash", ["bash", "--norc", "--noprofile"], {**environment, "TERM": "xterm", "PS1": "", "PS2": ""})
        ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.type("stty -echo; bind 'set enable-bracketed-paste off'; PS1=; PS2=")

    def type(self, line: str) -> tuple[str, int]:
        """Return what a line prints, and its exit code."""
        end = f"end{time.monotonic_ns()}:"
        # bash puts the marker together, so that the terminal's echo of this line does not hold it.
        os.write(self._fd, f"{line}\necho {end[:3]}''{end[3:]}$?\n".encode())
        text, limit = "", time.monotonic() + LIMIT_SECONDS
        while (found := re.search(rf"{end}(\d+)\r\n", text)) is None:
            if time.monotonic() > limit or not select.select([self._fd], [], [], LIMIT_SECONDS)[0]:
                raise TimeoutError(f"{line}: no end after {LIMIT_SECONDS} s: {text[-500:]}")
            text += os.read(self._fd, 65536).decode(errors="replace")
        output = BACK.sub("", ESCAPES.sub("", text[: found.start()]).replace("\r\n", "\n"))
        return output.strip("\n"), int(found[1])


def main(record: Path) -> int:
    """Type all commands."""
    lines = [line.split(" ", 1) for line in Path(__file__).with_name("commands.txt").read_text().splitlines() if not line.startswith("#")]
    written, wrong = [], []
    with tempfile.TemporaryDirectory(prefix="walkthrough-") as name:
        subprocess.run(["git", "clone", "--quiet", str(ROOT), f"{name}/tokiod"], check=True)
        terminal = Terminal(Path(name) / "tokiod")
        for codes, command in lines:
            output, code = terminal.type(command)
            written.append(f"$ {command}\n{output}\n[exit {code}]\n".replace("\n\n[exit", "\n[exit"))
            if str(code) not in codes.split("|") or "Traceback (most recent call last)" in output:
                wrong.append(f"{command}: exit {code} instead of {codes}: {output[-300:]}")
            record.parent.mkdir(exist_ok=True)
            record.write_text("\n".join(written))
    print("\n".join([*wrong, f"{len(lines)} commands, {len(wrong)} wrong, recorded in {record}"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
