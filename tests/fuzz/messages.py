"""`make fuzz`: damaged bytes of windows as they cross from a process to another, and of the messages around them.

    python -m tests.fuzz.messages [--inputs N] [--seed X]

A window's header is changed where it is decoded, so that its fields come to be wrong and not only its bytes; the bytes are changed too, cut
into frames anywhere, and decoded. What is decoded must be refused as malformed, or be a window that can be encoded again; no input may make
the process larger. Prints one line: fuzz messages N crashes 0 hangs 0 larger by B MiB refused R seconds S seed X; exits 1 if one is wrong.
"""

from __future__ import annotations

import argparse
import random
import resource
import signal
import sys
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from copy import deepcopy
from typing import Any

import msgspec
import numpy as np

from tests.fuzz.mutate import WILD, behead, cut, junk, junk_between, junk_run
from tokiod.batch import Batch
from tokiod.crossing import dialogue
from tokiod.crossing.codec import _LENGTH, decode, encode
from tokiod.dropped import Why
from tokiod.errors import Malformed
from tokiod.polling.hosts import host_protocol
from tokiod.window_data import TableRows, WindowData

CHUNK_INPUTS = 20_000
INPUT_SECONDS = 10
MAX_LARGER_MIB = 256
"""Of the process: the caches of names, and what Python keeps. A header may claim the memory of a window, 512 MiB, only with its bytes."""
NUMBERS = (0, 1, -1, 2, 5, 255, 2**16, 2**31 - 1, 2**31, 2**32, 2**53 - 1, 2**53, 2**63 - 1, -(2**63), 2**64 - 1)
VALUES = (None, True, "", "a", "a/b", "x" * 500, b"", b"\xff" * 9, [], {}, [[]], {"a": 1}, 1.5, float("nan"), [0] * 1001)
BYTES = (*WILD, behead, cut, junk, junk_between, junk_run)


def seeds() -> list[bytes]:
    """Return the bytes of windows: whole rows, scattered cells that batches share, a table, and one without anything."""
    time, column = np.repeat(np.arange(3) * 5, 2), np.tile(np.arange(2, dtype=np.uint32), 3)
    rows = [Batch(f"g/{name}", "gauge", 5, ("OST0000", "OST0001"), time, column, np.arange(6.0)) for name in "ab"]
    some = np.array([5, 0, 10]), np.array([1, 0, 1], np.uint32)
    cells = [Batch(f"g/{name}", "counter", 5, ("x", "y"), *some, np.array([2**62, 1, 0])) for name in "cd"]
    table = TableRows("jobs/operations", ("time", "target", "n"), (np.array([1, 2]), np.array([b"a", b"bc"]), np.array([3, 4])), (b"a",))
    windows = [
        WindowData(rows, 6),
        WindowData(cells, None, {"late": 2}, (), "one is silent", {"late": Why("x")}),
        WindowData([*rows, *cells], 9, {}, [table]),
        WindowData([], 0, {}, [table]),
        WindowData([]),
    ]
    return [b"".join(encode(one)) for one in windows]


def messages() -> list[bytes]:
    """Return one message of each type."""
    asked = [dialogue.Collect(1, "s", 0, 0, 60, 5.0, "kind", "system"), dialogue.Cancel(1), dialogue.Close("s", 0)]
    answers = [dialogue.Data(1, 0, 2), dialogue.Counted(1, 5), dialogue.Failed(1, "transient", "down")]
    hosts = [
        host_protocol.Hello("h", "s", 3, "0.2.0", ("s",)),
        host_protocol.Alive(1.0, 2.0),
        host_protocol.Goodbye(),
        host_protocol.Beat(1.0),
    ]
    return [msgspec.json.encode(one) for one in (*asked, *answers, *hosts)]


def changed(chance: random.Random, content: bytes) -> bytes:
    """Return a window's bytes with some fields of its header changed."""
    (length,) = _LENGTH.unpack_from(content)
    header = msgspec.msgpack.decode(content[_LENGTH.size : _LENGTH.size + length])
    for _ in range(chance.choice([1, 1, 2, 4])):
        _change(chance, header)
    encoded = msgspec.msgpack.encode(header)
    return _LENGTH.pack(len(encoded)) + encoded + content[_LENGTH.size + length :]


def _change(chance: random.Random, part: list[Any]) -> None:
    """Change one place at any depth: another value, one more, or one less."""
    at = chance.randrange(len(part))
    inner = list(part[at].values()) if isinstance(part[at], dict) else part[at]
    if isinstance(inner, list) and inner and chance.random() < 0.8:
        if inner is part[at]:
            _change(chance, inner)
        else:
            key = chance.choice(list(part[at]))
            part[at][chance.choice([key, "", "x/y", "\n"])] = deepcopy(chance.choice((*NUMBERS, *VALUES)))
        return
    match chance.randrange(6):
        case 0 if len(part) > 1:
            del part[at]
        case 1:
            part.insert(at, deepcopy(chance.choice(part)))
        case 2 | 3 if isinstance(part[at], int):
            part[at] = max(-(2**63), min(2**64 - 1, part[at] + chance.choice([-1, 1, 8])))
        case _:
            part[at] = deepcopy(chance.choice((*NUMBERS, *VALUES)))


def frames_of(chance: random.Random, content: bytes) -> list[bytes]:
    """Return some bytes in frames cut anywhere."""
    places = sorted(chance.randrange(len(content) + 1) for _ in range(chance.choice([0, 0, 1, 3])))
    return [content[start:end] for start, end in zip([0, *places], [*places, len(content)], strict=True)]


def tried(chance: random.Random, windows: list[bytes], others: list[bytes]) -> bool:
    """Try one input; return whether it was refused. Raises what must not be."""
    if chance.random() < 0.2:
        message = chance.choice(BYTES)(chance, chance.choice(others))
        refused = 0
        for read in (host_protocol.decode_from_host, host_protocol.decode_to_host):
            try:
                read(message)
            except Malformed:
                refused += 1
        return refused > 0
    content = chance.choice(windows)
    if chance.random() < 0.7:
        content = changed(chance, content)
    if chance.random() < 0.5:
        content = chance.choice(BYTES)(chance, content)
    try:
        data = decode(frames_of(chance, content))
    except Malformed:
        return True
    encode(data)
    return False


def chunk(seed: str) -> tuple[Counter[str], int]:
    """Try CHUNK_INPUTS inputs; return how many were what, and the most that the process had, in KiB."""
    chance, found = random.Random(seed), Counter[str]()
    windows, others = seeds(), messages()
    signal.signal(signal.SIGALRM, _ring)
    for number in range(CHUNK_INPUTS):
        signal.setitimer(signal.ITIMER_REAL, INPUT_SECONDS)
        try:
            found["refused"] += tried(chance, windows, others)
        except TimeoutError:
            found["hangs"] += 1
        except Exception:  # noqa: BLE001 - the fault that this program looks for
            traceback.print_exc()
            print(f"input {number} of chunk {seed}", file=sys.stderr)
            found["crashes"] += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    return found, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _ring(*_: object) -> None:
    raise TimeoutError


def main() -> int:
    """Run the script."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--inputs", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    options = parser.parse_args()
    begun, found, most = time.monotonic(), Counter[str](), 0
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    chunks = -(-options.inputs // CHUNK_INPUTS)
    with ProcessPoolExecutor(2) as pool:
        for counts, resident in pool.map(chunk, [f"{options.seed} {number}" for number in range(chunks)]):
            found.update(counts)
            most = max(most, resident)
    larger = max(0, most - before) >> 10
    print(
        f"fuzz messages {chunks * CHUNK_INPUTS} crashes {found['crashes']} hangs {found['hangs']} larger by {larger} MiB "
        f"refused {found['refused']} seconds {int(time.monotonic() - begun)} seed {options.seed}"
    )
    return int(bool(found["crashes"] or found["hangs"] or larger > MAX_LARGER_MIB))


if __name__ == "__main__":
    sys.exit(main())
