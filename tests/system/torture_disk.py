"""A disk of its own for a tortured archive, and what may happen to it: full, without inodes, read-only, failing for want of a store.

An ext4 file system in an image, looped back, which becomes read-only at its first error as most that hold archives do. The image is
thin, in a memory file system that can be filled: then writes fail that the file system had promised room for.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tortured import Tortured

SIZE = 2**30
STORE = 3 * 2**29
INODES = 4096
SLICE = 2**22
CLONE_NEWNS = 0x20000
RELEASE_SECONDS = 60
"""Real seconds until a disk that was taken away is no longer in use."""


@dataclass(frozen=True, slots=True)
class Disk:
    """Where it is mounted, and the directory of its image, which has a file system of its own."""

    directory: Path
    store: Path

    @property
    def image(self) -> Path:
        """The file that is looped back."""
        return self.store / "image"

    @property
    def junk(self) -> Path:
        """Where all its inodes are used up."""
        return self.directory / "junk"

    def make(self) -> None:
        """Make and mount it."""
        run("mount", "-t", "tmpfs", "-o", f"size={STORE}", "tmpfs", str(self.store))
        with self.image.open("wb") as file:
            os.truncate(file.fileno(), SIZE)
        run("mkfs.ext4", "-q", "-F", "-N", str(INODES), str(self.image))
        self.mount()

    def mount(self) -> None:
        """Put it in its place."""
        run("mount", "-o", "loop,errors=remount-ro", str(self.image), str(self.directory))

    def repair(self) -> None:
        """Take it away, check it, and put it in its place again; no process may use it. Raises TokiodError while one does."""
        run("umount", str(self.directory))
        # As long as it is mounted anywhere, the next mount is the same file system, with the error that made it read-only.
        wait_for(lambda: not self._is_in_use(), RELEASE_SECONDS, f"{self.image} is still mounted: a process has a copy of the mounts")
        subprocess.run(["fsck.ext4", "-y", "-f", str(self.image)], check=False, capture_output=True, timeout=300)
        self.mount()
        # That these were taken away may be among what a failing disk has lost.
        for path in (self.directory / "ballast", self.directory / "ballast-too"):
            path.unlink(missing_ok=True)
        shutil.rmtree(self.junk, ignore_errors=True)

    def _is_in_use(self) -> bool:
        found = subprocess.run(["losetup", "-j", str(self.image)], capture_output=True, text=True, check=True, timeout=30)
        return bool(found.stdout.strip())

    def is_broken(self) -> bool:
        """Whether no process can write to it: what failed to be written shows at a sync."""
        probe = self.directory / "probe"
        try:
            with probe.open("wb") as file:
                file.write(b"x")
                file.flush()
                os.fsync(file.fileno())
            probe.unlink()
        except OSError:
            return True
        return False

    def fail(self) -> None:
        """Let it have the error that makes it read-only."""
        found = subprocess.run(["findmnt", "-no", "SOURCE", str(self.directory)], capture_output=True, text=True, check=True, timeout=150)
        Path("/sys/fs/ext4", Path(found.stdout.strip()).name, "trigger_fs_error").write_text("1")


@contextmanager
def disk(directory: Path, store: Path) -> Iterator[Disk | None]:
    """Mount a disk; None where that may not be done. What is on it at the end is in the directory afterwards."""
    made: Disk | None = Disk(directory, store)
    directory.mkdir(parents=True)
    store.mkdir()
    try:
        own_mounts()
        made.make()
    except (OSError, subprocess.SubprocessError):
        made = None
    try:
        yield made
    finally:
        left = store.with_name("left")
        shutil.copytree(directory, left)
        for path in (directory, store):
            subprocess.run(["umount", "-l", str(path)], check=False, capture_output=True, timeout=150)
        shutil.copytree(left, directory, dirs_exist_ok=True)
        shutil.rmtree(left)


def own_mounts() -> None:
    """Give this process and its children mounts that no other process copies, such as a container that starts meanwhile. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), "no mounts of its own")
    run("mount", "--make-rprivate", "/")


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=300)


# ---- what may happen to it


def full_disk(tortured: Tortured) -> None:
    """There is no room for seconds; the writer may die meanwhile."""
    with ballast(tortured.disk.directory / "ballast"):
        passes(tortured)


def no_inodes(tortured: Tortured) -> None:
    """No file can be made for seconds."""
    junk = tortured.disk.junk
    junk.mkdir()
    with suppress(OSError):
        for number in range(INODES):
            (junk / str(number)).touch()
    passes(tortured)
    shutil.rmtree(junk)


def read_only(tortured: Tortured) -> None:
    """It becomes read-only under the daemon, as at any error of a disk, and is repaired while the daemon is down."""
    tortured.disk.fail()
    passes(tortured)
    repair(tortured)


def read_only_at_start(tortured: Tortured) -> None:
    """The daemon is started while the file system is mounted read-only; it may say that it needs a person, and end."""
    tortured.down()
    run("mount", "-o", "remount,ro", str(tortured.disk.directory))
    tortured.scene.start_daemon()
    tortured.pause(1, 5)
    run("mount", "-o", "remount,rw", str(tortured.disk.directory))


def full_store(tortured: Tortured) -> None:
    """What is below the file system is full for seconds: writes and syncs fail, and perhaps the file system with them."""
    with ballast(tortured.disk.store / "ballast"):
        passes(tortured)
    if tortured.disk.is_broken():
        repair(tortured)


FAULTS = (full_disk, no_inodes, read_only, read_only_at_start, full_store)


def passes(tortured: Tortured) -> None:
    """Let seconds pass; the writer may die in them."""
    tortured.pause(1, 4)
    if tortured.rng.random() < 1 / 3 and not tortured.scene.has_ended:
        tortured.scene.kill("writer")
        tortured.pause(1, 3)


def repair(tortured: Tortured) -> None:
    tortured.down()
    tortured.disk.repair()
    tortured.scene.start_daemon()


@contextmanager
def ballast(path: Path) -> Iterator[None]:
    """Fill a file system to the last byte."""
    try:
        with path.open("wb") as file, suppress(OSError):
            for size in range(SLICE, 2 * SIZE, SLICE):
                os.posix_fallocate(file.fileno(), size - SLICE, SLICE)
        with path.with_name("ballast-too").open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(4096))
        yield
    finally:
        path.unlink(missing_ok=True)
        path.with_name("ballast-too").unlink(missing_ok=True)
