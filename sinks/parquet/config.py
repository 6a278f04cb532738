"""The configuration of a sink of Parquet files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from tokiod.change_sink import SinkConfig
from tokiod.option import option
from tokiod.units import Duration

if TYPE_CHECKING:
    from collections.abc import Iterator

S3 = "s3://"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[^/\s]+)*/?")
_CLEAR = re.compile(r"http://(?!127\.|localhost\b|\[::1\])")
_ENDPOINT = re.compile(r"https?://[^/@\s]+")
_ONLY_S3 = ("endpoint", "region", "access_key_file", "access_key_env", "secret_key_file", "secret_key_env", "tls_ca")


class Config(SinkConfig, frozen=True, kw_only=True):
    """Where the files of days go."""

    takes: ClassVar[Literal["rows", "days"]] = "days"
    needs: ClassVar[tuple[str, str] | None] = ("pyarrow", "parquet")

    path: Annotated[
        str,
        option(
            "Where the files are: a directory of this machine, or a bucket with a prefix. Each is "
            "system=S/group=G/dataset=D/date=YYYY-MM-DD/part.parquet below it.",
            '"s3://telemetry/tokiod"',
            values="an absolute path, or s3://BUCKET/PREFIX",
        ),
    ]
    endpoint: Annotated[
        str | None,
        option(
            "The address of an S3-compatible server; default: that of AWS.", '"https://s3.example.org:9000"', values="http(s)://HOST:PORT"
        ),
    ] = None
    region: Annotated[str | None, option("The region of the bucket.", '"us-west-2"')] = None
    access_key_file: Annotated[str | None, option("A file of secrets, or systemd credential, with the access key.", '"s3-access-key"')] = (
        None
    )
    access_key_env: Annotated[str | None, option("An environment variable with the access key, instead of a file.", '"S3_ACCESS_KEY"')] = (
        None
    )
    secret_key_file: Annotated[str | None, option("A file of secrets, or systemd credential, with the secret key.", '"s3-secret-key"')] = (
        None
    )
    secret_key_env: Annotated[str | None, option("An environment variable with the secret key, instead of a file.", '"S3_SECRET_KEY"')] = (
        None
    )
    tls_ca: Annotated[
        str | None, option("The authorities of the server's certificate; default: those of the system.", '"/etc/tokiod/s3-ca.pem"')
    ] = None
    timeout: Annotated[Duration, option("Time limit for one day of a system to be stored.", values="greater than zero")] = Duration(1800)

    @property
    def is_s3(self) -> bool:
        """Whether the files go to a bucket."""
        return self.path.startswith(S3)

    def faults(self) -> list[str]:
        """Return the errors of the path and of options that contradict each other."""
        return list(self._faults())

    def _faults(self) -> Iterator[str]:
        if not self.is_s3 and not self.path.startswith("/"):
            yield f"path: expected an absolute path, or s3://BUCKET/PREFIX, got {self.path!r}"
        if self.is_s3 and not _BUCKET.fullmatch(self.path.removeprefix(S3)):
            yield f"path: expected s3://BUCKET/PREFIX, got {self.path!r}"
        for name in (one for one in _ONLY_S3 if getattr(self, one) is not None and not self.is_s3):
            yield f"{name}: it is of a bucket, and path is a directory"
        if self.endpoint is not None and not _ENDPOINT.fullmatch(self.endpoint):
            yield f'endpoint: expected "https://HOST:PORT", got {self.endpoint!r}'
        given = []
        for key in ("access_key", "secret_key"):
            names = [f"{key}_{way}" for way in ("file", "env") if getattr(self, f"{key}_{way}") is not None]
            if len(names) > 1:
                yield f"{names[1]}: {names[0]} is set already"
            given.append(bool(names))
        if given[0] != given[1]:
            yield "access_key_file: the access key and the secret key are needed together"

    def warnings(self) -> list[str]:
        """Warn where keys cross a network in the clear."""
        if self.endpoint is not None and _CLEAR.match(self.endpoint):
            return ["endpoint: without https, everyone on the path can read and change the data"]
        return []
