"""Rows as lines of JSON, appended to a file: a line for each dataset of a span, with the revision of its rows."""

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import msgspec

from tokiod.change_sink import Acknowledged, SinkConfig
from tokiod.errors import Fatal, Transient
from tokiod.option import option


class Config(SinkConfig):
    path: Annotated[str, option("The file that lines are appended to.", '"/srv/rows.jsonl"', values="an absolute path")]

    def faults(self):
        return [] if self.path.startswith("/") else [f"path: expected an absolute path, got {self.path!r}"]


def sink(config, site):
    return JsonLines(Path(config.path))


class JsonLines:
    """Each line is {"system", "dataset", "start", "step", "columns", "units", "values", "revision"}; null is a missing cell."""

    def __init__(self, path):
        self._path = path

    async def open(self):
        await asyncio.to_thread(self._append, b"")

    async def send(self, blocks):
        lines = b"".join(map(line, blocks))
        await asyncio.to_thread(self._append, lines)
        return Acknowledged(records=len(blocks))

    async def close(self):
        pass

    def _append(self, lines):
        # A process that was killed may have left a part of a line. What is read as a line of its own is no row.
        try:
            with self._path.open("ab") as file:
                file.write(b"\n" + lines)
                file.flush()
                os.fsync(file.fileno())
        except PermissionError:
            raise Fatal(f"no permission to write {self._path}: give the file to the user of the process `tokiod sink`") from None
        except OSError as error:
            raise Transient(f"{self._path} can't be written: {error.strerror}") from error


def line(block):
    names = ("system", "dataset", "start", "step", "columns", "units", "revision")
    fields = {name: getattr(block, name) for name in names} | {"values": block.values.tolist()}
    return msgspec.json.encode(fields) + b"\n"


def read(path: Path) -> Iterable[dict]:
    """Yield the lines, in the order in which they were written. Of the rows of a dataset, those with the highest revision count."""
    for text in path.read_bytes().split(b"\n"):
        try:
            yield msgspec.json.decode(text)
        except msgspec.DecodeError:
            continue
