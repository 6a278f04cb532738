"""Commands of a simulated site: programs in a directory that ask the process which simulates what they would print.

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

from tokiod.simulator.faults import draw

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tokiod.clock import Clock
    from tokiod.simulator.site import Site

PROGRAM = """\
#!{python} -IS
import socket, struct, sys
client = socket.socket(socket.AF_UNIX)
client.connect({address!r})
client.sendall(b"".join(part.encode() + b"\\0" for part in ({name!r}, *sys.argv[1:])))
client.shutdown(socket.SHUT_WR)
with client.makefile("rb") as answer:
    code, length = struct.unpack("!ii", answer.read(8))
    sys.stderr.buffer.write(answer.read(length))
    sys.stdout.buffer.write(answer.read())
sys.exit(code)
"""

HANGS = 600.0
"""Real seconds, unless whoever waits is killed before."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a command does: exits with a code after it has printed, or hangs."""

    code: int = 0
    stdout: str = ""
    stderr: str = ""
    hangs: bool = False


def failing(site: Site, who: str, now: float, states: Sequence[str], seldom: int = 12) -> str | None:
    """Return what is wrong with a command for the moment that is now, None in all but one of so many moments."""
    happens, which = draw(site, f"{who} fails", int(now) // site.moment, 2).tolist()
    return states[int(which * len(states))] if site.failing and happens < site.trouble / seldom else None


def install(names: Sequence[str], directory: Path, place: Path) -> None:
    """Write programs of these names that ask at a socket; those that are there may just be run, and then can't be written to."""
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
    """Return the socket that the programs of a directory ask at, by the name of the first of them."""
    return directory / f"{name}.socket"


def _made_free(place: Path) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    return place


async def serve(answer: Callable[[list[str], float], Reply], clock: Clock, names: Sequence[str], directory: Path) -> None:
    """Answer for programs, which are written into a directory as soon as they can be run, for ever."""

    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # asyncio's streams log the cancellation of a handler as an error, and the simulator's end cancels those that hang.
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
