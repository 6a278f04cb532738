"""`make fuzz`: damaged files of every kind, a million of them, and what they must never cause.

    python -m tests.fuzz --bombs
    python -m tests.fuzz [--inputs N] [--seconds S] [--seed X] [--only KIND] [--processes P]

crash      an exception other than an error with a message, or a batch that must not be sent
hang       an input that takes longer than ten seconds
invented   a cell that the undamaged file does not have, of a file from which bytes were only removed

Prints one line: fuzz inputs N crashes 0 hangs 0 invented 0 seconds S seed X; exits 1 if one of them isn't 0. What failed is kept in
.fuzz/, one file each. --bombs reads the files of bombs.py instead.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from tests.fuzz.bombs import BOMBS, failures
from tests.fuzz.kinds import Kind, kinds, read, zipped
from tests.fuzz.mutate import LOSSY, WILD

INPUT_SECONDS = 10
CHUNK_INPUTS = 200
FAILED_INPUTS = Path(".fuzz")


class Hang(BaseException):
    """An input took too long."""


def main() -> int:
    arguments = _arguments()
    if arguments.bombs:
        return _bombs()
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(2**32)
    names = [arguments.only] if arguments.only else sorted({kind.name for kind in kinds()})
    begun, found, inputs = time.monotonic(), Counter(), 0
    with ProcessPoolExecutor(arguments.processes) as pool:
        chunks = -(-arguments.inputs // CHUNK_INPUTS)
        for number, (done, failures) in enumerate(pool.map(_chunk, *_tasks(names, seed, chunks, begun + arguments.seconds))):
            inputs += done
            found.update(failures)
            if number % (10 if sys.stderr.isatty() else 250) == 0:
                end = "\r" if sys.stderr.isatty() else "\n"
                print(f"{inputs} inputs, {found.total()} failures, {time.monotonic() - begun:.0f} s", end=end, file=sys.stderr)
    seconds = int(time.monotonic() - begun)
    figures = " ".join(f"{what} {found[what]}" for what in ("crashes", "hangs", "invented"))
    print(f"fuzz inputs {inputs} {figures} seconds {seconds} seed {seed}")
    return 1 if found else 0


def _bombs() -> int:
    found = {name: failures(name, 1.0) for name in BOMBS}
    for name, failure in found.items():
        print(f"{name}: {failure or 'within the limits'}")
    return 1 if any(found.values()) else 0


def _tasks(names: list[str], seed: int, chunks: int, deadline: float) -> tuple[list, ...]:
    return [names[n % len(names)] for n in range(chunks)], [f"{seed} {n}" for n in range(chunks)], [deadline] * chunks


def _chunk(name: str, seed: str, deadline: float) -> tuple[int, Counter[str]]:
    """Try CHUNK_INPUTS inputs of a kind; fewer when the time is up."""
    chance, failures = random.Random(seed), Counter()
    sorts = [kind for kind in kinds() if kind.name == name]
    sorts += [zipped(kind) for kind in sorts if kind.text]
    signal.signal(signal.SIGALRM, _ring)
    with tempfile.TemporaryDirectory(prefix="tokiod-fuzz-", dir=_memory()) as place:
        for number in range(CHUNK_INPUTS):
            if time.monotonic() > deadline:
                return number, failures
            kind = chance.choice(sorts)
            original = chance.choice(kind.seeds)
            lossy = chance.random() < 0.5
            data = original
            for mutate in chance.choices(LOSSY if lossy else (*LOSSY, *WILD), k=chance.choice([1, 1, 2, 4])):
                data = mutate(chance, data)
            if failure := _failure(kind, original, data, Path(place), lossy=lossy):
                failures[failure] += 1
                _keep(kind, data, f"{seed} {number}")
    return CHUNK_INPUTS, failures


def _failure(kind: Kind, original: bytes, data: bytes, place: Path, *, lossy: bool) -> str:
    signal.setitimer(signal.ITIMER_REAL, INPUT_SECONDS)
    try:
        outcome = read(kind, data, place)
    except Hang:
        print(f"{kind.name}: a hang", file=sys.stderr)
        return "hangs"
    except Exception:  # noqa: BLE001 - the fault that this program looks for
        traceback.print_exc()
        return "crashes"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    if not (lossy and kind.text):
        return ""
    new = {cell for cell in outcome.cells - _cells(kind, original, place) if cell[0] not in kind.rewritten}
    if new:
        print(f"{kind.name}: {min(new)} was never there, and {len(new) - 1} more", file=sys.stderr)
    return "invented" if new else ""


_known: dict[tuple[str, bytes], frozenset] = {}


def _cells(kind: Kind, original: bytes, place: Path) -> frozenset:
    key = kind.name, original
    if key not in _known:
        outcome = read(kind, original, place)
        assert outcome.cells, f"the undamaged {kind.name} has no cells: {outcome}"
        _known[key] = outcome.cells
    return _known[key]


def _ring(*_: object) -> None:
    raise Hang


def _keep(kind: Kind, data: bytes, name: str) -> None:
    FAILED_INPUTS.mkdir(exist_ok=True)
    path = FAILED_INPUTS / f"{kind.name}-{name.replace(' ', '-')}{kind.suffix}"
    path.write_bytes(data)
    print(f"kept as {path}", file=sys.stderr)


def _memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bombs", action="store_true", help="read the bombs, each within its limits")
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after so long")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--only", choices=sorted({kind.name for kind in kinds()}))
    parser.add_argument("--processes", type=int, default=2)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
