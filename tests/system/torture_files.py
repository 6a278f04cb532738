"""What others may do to the files of a tortured archive; each is noticed, said, and the day collected again where it can be."""

from __future__ import annotations

import io
import os
import shutil
import time
from typing import TYPE_CHECKING

import h5py

from tokiod.tts.layout import form_of
from tokiod.window import Calendar

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tortured import Tortured

    from tokiod.simulator.sources import Source

SAID = ("file.set_aside", "file.gone")
HEAD = 8192
"""Bytes at the beginning of a file that still open it."""


def truncated(path: Path, tortured: Tortured) -> None:
    os.truncate(path, 4096 + tortured.rng.randrange(path.stat().st_size - 4096))


def emptied(path: Path, _: Tortured) -> None:
    os.truncate(path, 0)


def unlinked(path: Path, _: Tortured) -> None:
    path.unlink()


def replaced(path: Path, _: Tortured) -> None:
    other = path.with_name("other")
    shutil.copy(path, other)
    other.replace(path)


def of_another_schema(path: Path, _: Tortured) -> None:
    content = io.BytesIO()
    with h5py.File(content, "w") as file:
        file["measurements"] = [1.0, 2.0]
    path.write_bytes(content.getvalue())  # at once: HDF5 looks at its path again, which the writer may have set aside


def without_raw(path: Path, _: Tortured) -> None:
    with h5py.File(path, "r+") as file:
        del file["_tokiod/raw"]


def without_span(path: Path, _: Tortured) -> None:
    with h5py.File(path, "r+") as file:
        del file["_tokiod/span"]


def reshaped(path: Path, _: Tortured) -> None:
    with h5py.File(path, "r+") as file:
        name = next(name for name in ("datatargets/readbytes", "datatargets/readrates", "fullness/bytes") if name in file)
        attributes, shape = dict(file[name].attrs), file[name].shape
        del file[name]
        file.create_dataset(name, (shape[0] // 2, shape[1]), "f8").attrs.update(attributes)


def with_foreign_datasets(path: Path, _: Tortured) -> None:
    with h5py.File(path, "r+") as file:
        file["datatargets/latency"] = [[1.0, 2.0]]
        file["datatargets/latency"].attrs["columns"] = [b"one", b"two"]


WHILE_UP = (truncated, emptied, unlinked, replaced, of_another_schema)
WHILE_DOWN = (emptied, of_another_schema, without_raw, without_span, reshaped, with_foreign_datasets)


def damage(tortured: Tortured) -> None:
    """A live file of today's is damaged while the daemon runs; the next commit notices, and says so.

    Not before the writer has the file open: a copy that took its place just before would be as good to it.
    """
    source, path = live(tortured)
    tortured.wait(lambda: tortured.has_open(path), f"the writer does not open {path}")
    happens(tortured, source, path, tortured.rng.choice(WHILE_UP))


def overwrite(tortured: Tortured) -> None:
    """A live file of today's is overwritten but for its head, so that it still opens.

    Noticed is what differs where the writer wrote last, when it writes again. While it is just writing, no process can tell: so this
    goes on until it is noticed, and does not begin before the writer has the file open, or it would begin with what it finds. A file
    that is just replaced by its grown or sealed form, made of what it was before, belongs to no process any more.
    """
    source, path = live(tortured)
    tortured.wait(lambda: tortured.has_open(path), f"the writer does not open {path}")
    with path.open("r+b") as file:
        status = os.fstat(file.fileno())
        size = status.st_size

        def is_over() -> bool:
            if not path.exists() or path.stat().st_ino != status.st_ino:
                return True
            file.seek(HEAD)
            file.write(os.urandom(size - HEAD))
            file.flush()
            time.sleep(0.5)
            return tortured.said_of(path, *SAID) > known

        known = tortured.said_of(path, *SAID)
        tortured.wait(is_over, f"it is not noticed that {path} was overwritten")
    time.sleep(1)
    if tortured.said_of(path, *SAID) > known:
        forgotten(tortured, source, path)


def damage_while_down(tortured: Tortured) -> None:
    """A live file of today's is damaged while the daemon is down."""
    source, path = live(tortured)
    tortured.down()
    kinds = [kind for kind in WHILE_DOWN if has_counters(path) or kind not in {without_raw, without_span}]
    kind = tortured.rng.choice(kinds)
    known = tortured.said_of(path, *SAID)
    kind(path, tortured)
    tortured.scene.start_daemon()
    noticed(tortured, path, known, f"it is not noticed that {path} was {kind.__name__} while the daemon was down")
    forgotten(tortured, source, path)


def damage_sealed(tortured: Tortured) -> None:
    """A sealed file that its source still has is taken away."""
    scene = tortured.scene
    reach = scene.clock.time() - scene.retention + 2 * 3600
    files = [(source, path) for source in scene.sources for path in scene.files(source) if is_sealed(path) and start_of(path) > reach]
    if files:
        happens(tortured, *tortured.rng.choice(files), unlinked)


FAULTS = (damage, overwrite, damage_while_down, damage_sealed)


def happens(tortured: Tortured, source: Source, path: Path, kind: Callable[[Path, Tortured], None]) -> None:
    """Damage a file while the daemon runs, and wait until it is noticed, or its grown or sealed form, made of what it was, has its name.

    A writer that was just opening the file refuses its window. Then it opens a copy that replaced the file, which is as good to it.
    """
    known, refused = tortured.said_of(path, *SAID), refusals(tortured, path)
    kind(path, tortured)
    damaged = inode(path)

    def is_over() -> bool:
        is_opened = kind is replaced and refusals(tortured, path) > refused
        return is_opened or tortured.said_of(path, *SAID) > known or inode(path) not in {None, damaged}

    tortured.wait(is_over, f"it is not noticed that {path} was {kind.__name__}")
    time.sleep(1)
    if tortured.said_of(path, *SAID) > known:
        forgotten(tortured, source, path)


def refusals(tortured: Tortured, path: Path) -> int:
    """Return how often a window was refused because another file replaced this one."""
    said = f"another file replaced it: '{path}'".encode()
    return sum(b'"event": "window.refused"' in line and said in line for line in tortured.scene.log.read_bytes().splitlines())


def inode(path: Path) -> int | None:
    """Return the number of a file, None without one."""
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None


def noticed(tortured: Tortured, path: Path, known: int, message: str) -> None:
    """Wait until it is noticed of this file: others may be reported meanwhile, and the ledger be believed too early."""
    tortured.wait(lambda: tortured.said_of(path, *SAID) > known, message)


def forgotten(tortured: Tortured, source: Source, path: Path) -> None:
    """Expect nothing of the file any more, once the ledger has been told, which is right after the log."""
    time.sleep(1)
    tortured.destroyed(source, path)


def live(tortured: Tortured) -> tuple[Source, Path]:
    """Return a source, and its live file of today's; waits for one if there is no such file."""
    scene, found = tortured.scene, []

    def there_are() -> bool:
        today = Calendar(scene.site.timezone).day(int(scene.clock.time()))
        found[:] = [
            (source, path)
            for source in scene.sources
            for path in scene.files(source)
            if path.parent.name == str(today.date) and not is_sealed(path)
        ]
        return bool(found)

    tortured.wait(there_are, "there is no live file")
    return tortured.rng.choice(found)


def is_sealed(path: Path) -> bool:
    with h5py.File(path, "r", locking=False) as file:
        return form_of(file) == "sealed"


def has_counters(path: Path) -> bool:
    with h5py.File(path, "r", locking=False) as file:
        return "_tokiod/raw" in file


def start_of(path: Path) -> int:
    with h5py.File(path, "r", locking=False) as file:
        return int(file.attrs["start"])
