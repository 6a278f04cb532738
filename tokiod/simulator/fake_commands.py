"""Commands of a simulated site: programs in a directory that request their output from the simulator's process.

Starting Python with all that a site needs takes a second, so a program is a few lines, and knows nothing but a socket:

    asked     its name and arguments, each ended by a zero byte, and the end of the stream
    answered  exit code and the length of stderr, two integers, then stderr and stdout
"""

from __future__ import annotations

import asyncio
import struct
import sys
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokiod.simulator.drawn import draw

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tokiod.clock import Clock
    from tokiod.simulator.site import Site

PROGRAM = """\
#!{python} -IS
import sys
from _socket import AF_UNIX, SHUT_WR, socket  # the module socket takes as long to import as Python to start
client = socket(AF_UNIX)
client.connect({address!r})
client.sendall(b"".join(part.encode() + b"\\0" for part in ({name!r}, *sys.argv[1:])))
client.shutdown(SHUT_WR)
answer = b"".join(iter(lambda: client.recv(1 << 16), b""))
code, length = int.from_bytes(answer[:4], "big"), int.from_bytes(answer[4:8], "big")
sys.stderr.buffer.write(answer[8 : 8 + length])
sys.stdout.buffer.write(answer[8 + length :])
sys.exit(code)
"""

HANGS = 600.0
"""Real seconds that a hanging command lasts, unless it is killed."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The behaviour of a command: print and exit with a code, or hang."""

    code: int = 0
    stdout: str = ""
    stderr: str = ""
    hangs: bool = False


def failing(site: Site, who: str, now: float, states: Sequence[str], seldom: int = 12) -> str | None:
    """Return the fault of a command at the current moment, None in all but one of so many moments."""
    happens, which = draw(site, f"{who} fails", int(now) // site.moment, 2).tolist()
    return states[int(which * len(states))] if site.failing and happens < site.trouble / seldom else None


def install(names: Sequence[str], directory: Path, place: Path) -> None:
    """Write programs of these names that use a socket. Existing ones are replaced, because a running program can't be written to."""
    for name in names:
        program = directory / f".{name}"
        program.write_text(PROGRAM.format(python=sys.executable, address=str(place), name=name))
        program.chmod(0o755)
        program.replace(directory / name)


def _said(answer: Callable[[list[str], float], Reply], argv: list[str], now: float) -> Reply:
    try:
        return answer(argv, now)
    except ValueError as error:
        return Reply(2, stderr=f"the simulator can't read {' '.join(argv)}: {error}")


def address(directory: Path, name: str) -> Path:
    """Return the socket that the programs of a directory use, named after the first program."""
    return directory / f"{name}.socket"


def _made_free(place: Path) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    return place


async def serve(answer: Callable[[list[str], float], Reply], clock: Clock, names: Sequence[str], directory: Path) -> None:
    """Serve the calls of programs forever. The programs are written when the socket is ready."""

    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # asyncio's streams log the cancellation of a handler as an error, and the simulator's end cancels hanging handlers.
        with closing(writer), suppress(asyncio.CancelledError):
            said = _said(answer, (await reader.read()).decode().split("\0")[:-1], clock.time())
            if said.hangs:
                await asyncio.sleep(HANGS)
            complaint = f"{said.stderr}\n".encode() if said.stderr else b""
            writer.write(struct.pack("!ii", said.code, len(complaint)) + complaint + said.stdout.encode())

    place = _made_free(address(directory, names[0]))
    async with await asyncio.start_unix_server(reply, place) as server:
        install(names, directory, place)
        await server.serve_forever()
