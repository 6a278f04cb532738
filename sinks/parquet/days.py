"""Days to Parquet files. The manifest of a day is written last: it states which files are of which revision, and whether the day changes.

system=S/group=G/dataset=D/date=YYYY-MM-DD/part.parquet      a dataset of a day, see tokiod.tts.parquet
_tokiod/system=S/date=YYYY-MM-DD.json                        {"revision", "epoch", "state": "stored" or "changing", "datasets"}
"""

from __future__ import annotations

import asyncio
import threading
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from sinks.parquet.store import store_of
from tokiod.change_sink import Acknowledged
from tokiod.errors import Transient
from tokiod.tts.parquet import ROWS_OF_GROUP, Rows, encode, part_path

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterator

    from sinks.parquet.config import Config
    from sinks.parquet.store import Store
    from tokiod.change_sink import Block, SealedDay, SinkSite

CHECK_NAME = "_tokiod/.written"
ROWS_AT_ONCE = ROWS_OF_GROUP

# A call that was cancelled may still write in its thread. The next sink waits for it, and it renames nothing any more.
_WRITING = threading.Lock()


class PartEntry(msgspec.Struct, frozen=True):
    """A file of a day: how many rows and columns it has, and its bytes."""

    rows: int
    columns: int
    bytes: int


class Manifest(msgspec.Struct, frozen=True):
    """A day. state: changing while its files are older than the archive, which has it open again."""

    revision: int
    epoch: int
    state: Literal["stored", "changing"]
    datasets: dict[str, PartEntry]


class ParquetSink:
    """See tokiod.change_sink.DaySink."""

    def __init__(self, config: Config, site: SinkSite) -> None:
        self._config, self._secret = config, site.secret
        self._store: Store | None = None
        self._is_closed = threading.Event()

    async def open(self) -> None:
        """Connect, and write a file to see whether that is allowed."""
        await self._in_thread(self._open)

    async def store(self, day: SealedDay) -> Acknowledged:
        """Store all datasets of a day, then its manifest."""
        return Acknowledged(records=await self._in_thread(lambda: self._stored(day)))

    async def reopened(self, system: str, date: dt.date, revision: int) -> None:
        """Mark the manifest of a day."""
        await self._in_thread(lambda: self._mark(system, date, revision))

    async def close(self) -> None:
        """Let a call that was cancelled end before its next rename."""
        self._is_closed.set()

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        def alone() -> Any:
            with _WRITING:
                self._raise_if_closed()
                return work()

        return await asyncio.to_thread(alone)

    def _raise_if_closed(self) -> None:
        if self._is_closed.is_set():
            raise Transient("the sink was closed")

    def _open(self) -> None:
        self._store = store_of(self._config, self._secret)
        self._write(CHECK_NAME, b"tokiod may write here\n")

    def _files(self) -> Store:
        if self._store is None:
            raise RuntimeError("the sink is not open")
        return self._store

    def _stored(self, day: SealedDay) -> int:
        before = self._manifest(day.system, day.date)
        datasets = {name: self._part(day, name) for name in day.datasets}
        for name in (before.datasets.keys() - datasets.keys()) if before is not None else ():
            self._files().remove(_path(day.system, name, day.date))
        self._write_manifest(day.system, day.date, Manifest(day.revision, day.epoch, "stored", datasets))
        return len(datasets)

    def _part(self, day: SealedDay, name: str) -> PartEntry:
        counted = [0, 0]

        def write(file: Any) -> int:
            blocks = day.blocks(name, ROWS_AT_ONCE)
            first = next(blocks)
            attributes = {
                "system": day.system, "dataset": name, "units": first.units, "step": str(first.step), "revision": str(day.revision),
            }  # fmt: skip
            counted[1] = len(first.columns)
            encode(file, first.columns, self._rows(first, blocks, counted), attributes)
            self._raise_if_closed()
            return int(file.tell())

        size = self._files().write(_path(day.system, name, day.date), write)
        return PartEntry(counted[0], counted[1], size)

    def _rows(self, first: Block, blocks: Iterator[Block], counted: list[int]) -> Iterator[Rows]:
        block: Block | None = first
        while block is not None:
            self._raise_if_closed()
            counted[0] += block.rows
            yield block.times, block.values
            block = next(blocks, None)

    def _mark(self, system: str, date: dt.date, revision: int) -> None:
        found = self._manifest(system, date)
        if found is not None:
            self._write_manifest(system, date, msgspec.structs.replace(found, state="changing", revision=max(revision, found.revision)))

    def _manifest(self, system: str, date: dt.date) -> Manifest | None:
        text = self._files().read(_manifest_name(system, date))
        try:
            return None if text is None else msgspec.json.decode(text, type=Manifest)
        except (msgspec.DecodeError, ValueError):
            return None

    def _write_manifest(self, system: str, date: dt.date, manifest: Manifest) -> None:
        self._write(_manifest_name(system, date), msgspec.json.encode(manifest) + b"\n")

    def _write(self, name: str, content: bytes) -> None:
        self._files().write(name, lambda file: int(file.write(content) or 0))


def _path(system: str, dataset: str, date: dt.date) -> str:
    return str(part_path(PurePosixPath(), system, dataset, date))


def _manifest_name(system: str, date: dt.date) -> str:
    return f"_tokiod/system={system}/date={date}.json"
