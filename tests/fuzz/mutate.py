"""What becomes of a text or a file on its way: cut, torn, doubled, mixed up, or filled with what belongs to nothing.

Two sorts. What is *lossy* takes something away, or puts junk in its place that no number and no name can be made of: no value may come
of it that was not there before. What is *wild* may make any other value, and must only not crash or hang.
"""

from __future__ import annotations

import random
from collections.abc import Callable

JUNK = b"\x00\x01\x07\x1b\x7f\xff\xfe\xc0\x80"
INTERESTING = (
    b"",
    b"0",
    b"-0.0",
    b"-1",
    b"nan",
    b"NaN",
    b"inf",
    b"1e999",
    b"9" * 40,
    b"null",
    b"\n",
    b"\r\n",
    b" ",
    b"\t",
    b"|",
    b"{",
    b"]",
    b'"',
)

Mutator = Callable[[random.Random, bytes], bytes]


def cut(chance: random.Random, data: bytes) -> bytes:
    """Lose the end."""
    return data[: chance.randrange(len(data) + 1)]


def behead(chance: random.Random, data: bytes) -> bytes:
    """Lose the beginning."""
    return data[chance.randrange(len(data) + 1) :]


def lose_lines(chance: random.Random, data: bytes) -> bytes:
    """Lose some lines."""
    lines = data.splitlines(keepends=True)
    share = chance.choice([1, 1, 5, 40]) / 100
    return b"".join(line for line in lines if chance.random() > share)


def double_line(chance: random.Random, data: bytes) -> bytes:
    """Say some lines again, whole ones."""
    lines = [line for line in data.splitlines(keepends=True) if line.endswith(b"\n")]
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(lines) + 1)
        lines[at:at] = lines[at : at + chance.randrange(1, 4)]
    return b"".join(lines)


def junk(chance: random.Random, data: bytes) -> bytes:
    """Have junk in place of bytes."""
    out = bytearray(data)
    for _ in range(chance.choice([1, 1, 2, 8])):
        if out:
            out[chance.randrange(len(out))] = chance.choice(JUNK)
    return bytes(out)


def junk_between(chance: random.Random, data: bytes) -> bytes:
    """Have junk between bytes."""
    at = chance.randrange(len(data) + 1)
    return data[:at] + bytes(chance.choices(JUNK, k=chance.choice([1, 3, 600]))) + data[at:]


def junk_run(chance: random.Random, data: bytes) -> bytes:
    """Have a run of junk in place of as many bytes, as of a disk's lost block."""
    at = chance.randrange(len(data) + 1)
    length = min(chance.choice([4, 64, 512]), len(data) - at)
    return data[:at] + b"\0" * length + data[at + length :]


def flip(chance: random.Random, data: bytes) -> bytes:
    """Flip some bits."""
    out = bytearray(data)
    for _ in range(chance.choice([1, 1, 3, 20])):
        if out:
            out[chance.randrange(len(out))] ^= 1 << chance.randrange(8)
    return bytes(out)


def splice(chance: random.Random, data: bytes) -> bytes:
    """Put one part of it into another."""
    first, last = sorted(chance.randrange(len(data) + 1) for _ in range(2))
    at = chance.randrange(len(data) + 1)
    return data[:at] + data[first : first + min(last - first, 300)] + data[at:]


def lose_bytes(chance: random.Random, data: bytes) -> bytes:
    """Lose some bytes in the middle."""
    at = chance.randrange(len(data) + 1)
    return data[:at] + data[at + chance.choice([1, 2, 7, 80]) :]


def interesting(chance: random.Random, data: bytes) -> bytes:
    """Have something troublesome in place of some bytes."""
    at = chance.randrange(len(data) + 1)
    return data[:at] + chance.choice(INTERESTING) + data[at + chance.choice([0, 1, 4]) :]


def mix(chance: random.Random, data: bytes) -> bytes:
    """Mix some lines up."""
    lines = data.splitlines(keepends=True)
    at = chance.randrange(len(lines) + 1)
    part = lines[at : at + 6]
    chance.shuffle(part)
    lines[at : at + 6] = part
    return b"".join(lines)


LOSSY: tuple[Mutator, ...] = (cut, behead, lose_lines, double_line, junk, junk_between, junk_run)
WILD: tuple[Mutator, ...] = (flip, splice, lose_bytes, interesting, mix)
