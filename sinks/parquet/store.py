"""Where the Parquet files are: a directory, or a bucket of an S3-compatible server by pyarrow's file systems.

A file is written under a temporary name and then renamed. In a bucket the rename is a copy, which the server makes in one step, and a
deletion. Readers never see a part of a file: names that begin with a dot are no data for Spark, DuckDB, polars and pyarrow.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from sinks.parquet.config import S3
from tokiod.errors import Fatal, Transient
from tokiod.tts.live.files import REAL, replacing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sinks.parquet.config import Config

CONNECT_SECONDS, REQUEST_SECONDS = 10, 60
_NO_RIGHT = (
    "ACCESS_DENIED",
    "AccessDenied",
    "INVALID_ACCESS_KEY_ID",
    "InvalidAccessKeyId",
    "SIGNATURE_DOES_NOT_MATCH",
    "SignatureDoesNotMatch",
)
_NO_BUCKET = ("NO_SUCH_BUCKET", "NoSuchBucket")


class Store(Protocol):
    """Files by relative names with slashes. The methods block, and raise Transient and Fatal."""

    def write(self, name: str, write: Callable[[Any], int]) -> int:
        """Replace a file, whole and durably, by what `write` writes to the binary file that it gets; return what `write` returns."""
        ...

    def read(self, name: str) -> bytes | None:
        """Return the content of a small file, None without one."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file, if it exists."""
        ...


def store_of(config: Config, secret: Callable[[str], str]) -> Store:
    """Return the store of a section. Raises Fatal without pyarrow, ConfigError for a missing secret."""
    return Bucket(config, secret) if config.is_s3 else Directory(Path(config.path))


class Directory:
    """A directory of this machine."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def write(self, name: str, write: Callable[[Any], int]) -> int:
        """Replace a file."""
        path = self._root / name
        with self._described(path):
            REAL.make_directory(path.parent)
            with replacing(path) as temporary, temporary.open("wb") as file:
                written = write(file)
                file.flush()
                os.fsync(file.fileno())
        return written

    def read(self, name: str) -> bytes | None:
        """Return the content of a file."""
        with self._described(self._root / name):
            try:
                return (self._root / name).read_bytes()
            except FileNotFoundError:
                return None

    def remove(self, name: str) -> None:
        """Remove a file."""
        with self._described(self._root / name):
            (self._root / name).unlink(missing_ok=True)

    @contextmanager
    def _described(self, path: Path) -> Iterator[None]:
        try:
            yield
        except PermissionError as error:
            raise Fatal(f"no permission to write {error.filename or path}: give {self._root} to the user of tokiod-sink") from None
        except OSError as error:
            raise Transient(f"{path} can't be written: {error.strerror or error}") from error


class Bucket:
    """A bucket, with a prefix."""

    def __init__(self, config: Config, secret: Callable[[str], str]) -> None:
        from pyarrow import fs  # noqa: PLC0415 - optional

        self._url, self._root = config.path, config.path.removeprefix(S3).rstrip("/")
        options: dict[str, Any] = {"region": config.region, "connect_timeout": CONNECT_SECONDS, "request_timeout": REQUEST_SECONDS}
        for key in ("access_key", "secret_key"):
            way = next((way for way in ("file", "env") if getattr(config, f"{key}_{way}") is not None), None)
            options[key] = None if way is None else str(secret(f"{way}:{getattr(config, f'{key}_{way}')}"))
        if config.endpoint is not None:
            options["scheme"], _, options["endpoint_override"] = config.endpoint.partition("://")
            options["region"] = config.region or "us-east-1"
        if config.tls_ca is not None:
            options["tls_ca_file_path"] = config.tls_ca
        with self._described():
            self._files = fs.S3FileSystem(**options)

    def write(self, name: str, write: Callable[[Any], int]) -> int:
        """Replace an object."""
        directory, _, last = f"{self._root}/{name}".rpartition("/")
        temporary = f"{directory}/.{last}.tmp"
        with self._described():
            try:
                with self._files.open_output_stream(temporary) as file:
                    written = write(file)
                self._files.move(temporary, f"{directory}/{last}")
            except BaseException:
                # pyarrow completes an upload whatever has happened, so a part may have the temporary name.
                with suppress(OSError):
                    self._files.delete_file(temporary)
                raise
        return written

    def read(self, name: str) -> bytes | None:
        """Return the content of an object."""
        with self._described():
            try:
                with self._files.open_input_stream(f"{self._root}/{name}") as file:
                    return bytes(file.read())
            except FileNotFoundError:
                return None

    def remove(self, name: str) -> None:
        """Remove an object."""
        with self._described(), suppress(FileNotFoundError):
            self._files.delete_file(f"{self._root}/{name}")

    @contextmanager
    def _described(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:
            text = " ".join(str(error).split())
            if any(word in text for word in _NO_BUCKET):
                raise Fatal(f"{self._url}: the bucket does not exist: create it, or correct path") from None
            if isinstance(error, PermissionError) or any(word in text for word in _NO_RIGHT):
                raise Fatal(
                    f"{self._url}: no permission; its key needs s3:GetObject, s3:PutObject and s3:DeleteObject there: {text}"
                ) from None
            raise Transient(f"{self._url}: {text}") from error
