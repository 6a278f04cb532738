"""What others may do to the ledger of a tortured archive: it is gone, corrupt or an older copy; the files tell what is stored."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from tortured import BELIEVED

from tokiod.ledger.integrity import GENERATION_SECONDS

if TYPE_CHECKING:
    from tortured import Tortured

PAGE = 4096
PARTS = ("", "-wal", "-shm")
SAID, READY = "ledger.lost", "writer.ready"
OLD = 2 * GENERATION_SECONDS + 600
"""Simulated seconds after which a copy is known for one: two numbers later, and what it takes to write them."""


def deleted(ledger: Path, _: Tortured) -> None:
    for part in PARTS:
        Path(f"{ledger}{part}").unlink(missing_ok=True)


def corrupted(ledger: Path, tortured: Tortured) -> None:
    """Pages are garbage, of the database or of what was not put into it yet."""
    if not tortured.is_doubtful:
        tortured.is_doubtful, tortured.believed = True, tortured.said(*BELIEVED)
    paths = [path for part in PARTS[:2] if (path := Path(f"{ledger}{part}")).exists() and path.stat().st_size >= PAGE]
    for path in tortured.rng.sample(paths, min(1, len(paths))):
        pages = path.stat().st_size // PAGE
        with path.open("r+b") as file:
            for _ in range(1 + pages // 8):
                file.seek(tortured.rng.randrange(pages) * PAGE)
                file.write(os.urandom(PAGE))


def older(ledger: Path, tortured: Tortured) -> None:
    """A copy made before is put back, as one does who knows that a database is three files; one that can be told from the last."""
    copy = copy_of(tortured)
    if not copy.exists() or tortured.scene.clock.time() - tortured.copied < OLD:
        keep_copy(tortured)
    for part in PARTS[1:]:
        Path(f"{ledger}{part}").unlink(missing_ok=True)
    put_back = ledger.with_name("put-back")
    put_back.write_bytes(copy.read_bytes())
    put_back.replace(ledger)


KINDS = (deleted, corrupted, older)


def harm_ledger(tortured: Tortured) -> None:
    """The ledger is harmed while the daemon runs: it notices that, but for garbage where it does not look before the next start.

    Not before the writer is ready: else its own line would pass for that of the one that takes over.
    """
    ledger = tortured.scene.config.archive.ledger
    tortured.wait(lambda: tortured.has_open(ledger) and tortured.is_ready("writer"), f"the writer does not open {ledger}")
    known, ready, writer, kind = tortured.said(SAID), tortured.said(READY), tortured.scene.pid("writer"), tortured.rng.choice(KINDS)
    kind(ledger, tortured)
    if kind is corrupted:
        tortured.pause(0, 5)
        tortured.scene.kill("writer")
    else:
        # One that was just opening it may die of that, which is as good.
        tortured.wait(
            lambda: tortured.said(SAID) > known or tortured.scene.pid("writer") not in {None, writer},
            f"it is not noticed that {ledger} was {kind.__name__}",
        )
    readable(tortured, ready)


def harm_ledger_while_down(tortured: Tortured) -> None:
    """The ledger is harmed while the daemon is down."""
    tortured.wait(tortured.has_ledger, "no ledger")
    tortured.down()
    tortured.rng.choice(KINDS)(tortured.scene.config.archive.ledger, tortured)
    ready = tortured.said(READY)
    tortured.scene.start_daemon()
    readable(tortured, ready)


def keep_copy(tortured: Tortured) -> None:
    """A copy of the ledger is made, which may be put back some day."""
    tortured.wait(tortured.has_ledger, "no ledger")
    with closing(sqlite3.connect(tortured.scene.config.archive.ledger)) as ledger, closing(sqlite3.connect(copy_of(tortured))) as copy:
        ledger.backup(copy)
    tortured.copied = tortured.scene.clock.time()


FAULTS = (harm_ledger, harm_ledger_while_down, keep_copy)


def copy_of(tortured: Tortured) -> Path:
    return tortured.scene.directory / "ledger-copy.sqlite3"


def readable(tortured: Tortured, ready: int) -> None:
    """Wait until what is stored can be asked for; ready: how often a writer was before.

    A ledger is set aside at a start, and its successor knows the sources a moment later; an older copy tells of files that are no more,
    until the writer has looked at those there are. One that was just getting ready when the copy came has not: it says that it lost it.
    """
    tortured.wait(
        lambda: tortured.said(READY) > ready and tortured.said_last(READY, SAID) == READY,
        "no writer took over the ledger",
    )
    tortured.wait(tortured.has_ledger, "no ledger again")
