"""What a [[sink]] of this kind takes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

from tokiod.change_sink import SinkConfig
from tokiod.collector import LOCAL_HOSTS
from tokiod.option import option
from tokiod.units import Duration

if TYPE_CHECKING:
    from collections.abc import Iterator

_is_prefix = re.compile(r"[a-z0-9][a-z0-9_-]*").fullmatch
_SECRETS = ("password_file", "password_env", "api_key_file", "api_key_env")


class Config(SinkConfig, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """A cluster. It is written to with a user and a password, with an API key, or with neither."""

    url: Annotated[
        str, option("The address of the server.", '"https://elastic1:9200"', values="http:// or https://, without a user and a password")
    ]
    prefix: Annotated[
        str,
        option(
            "How the names of indices begin: PREFIX-SYSTEM-YYYY.MM, by the month in UTC, and PREFIX.rejected.",
            values="lower-case letters, digits, `_` and `-`",
        ),
    ] = "tokiod"
    request_timeout: Annotated[Duration, option("Time limit of one answer.", values="greater than zero")] = Duration(30)
    timeout: Annotated[
        Duration,
        option("Time limit for all documents of a piece, some megabytes of cells, to be acknowledged.", values="greater than zero"),
    ] = Duration(600)
    user: Annotated[
        str | None,
        option(
            'The user of the server; with a password. It needs the privileges "manage_index_templates", and "create_index", "index" and '
            '"delete" on the indices.',
            '"tokiod"',
        ),
    ] = None
    password_file: Annotated[
        str | None, option("A file of secrets, or systemd credential, with the user's password.", '"elastic-password"')
    ] = None
    password_env: Annotated[
        str | None, option("An environment variable with the user's password, instead of a file.", '"ELASTIC_PASSWORD"')
    ] = None
    api_key_file: Annotated[
        str | None, option("A file of secrets, or systemd credential, with an API key, instead of a user.", '"elastic-api-key"')
    ] = None
    api_key_env: Annotated[str | None, option("An environment variable with an API key, instead of a file.", '"ELASTIC_API_KEY"')] = None
    tls_ca: Annotated[
        str | None, option("The authorities of the server's certificate; default: those of the system.", '"/etc/tokiod/elastic-ca.pem"')
    ] = None

    def faults(self) -> list[str]:
        """Return the errors of the address and of options that contradict each other."""
        return list(self._faults())

    def _faults(self) -> Iterator[str]:
        url = urlsplit(self.url)
        if url.username is not None or url.password is not None:
            yield "url: must not contain a user or a password: set user and password_file"
        elif url.scheme not in {"http", "https"} or not url.hostname or url.query or url.fragment:
            yield 'url: expected "https://host:9200"'
        if not _is_prefix(self.prefix):
            yield f"prefix: expected lower-case letters, digits, '_' and '-', got {self.prefix!r}"
        if not self.request_timeout:
            yield "request_timeout: must be greater than zero"
        given = [name for name in _SECRETS if getattr(self, name)]
        if len(given) > 1:
            yield f"{given[1]}: {given[0]} is set already"
        if bool(self.user) != any(name.startswith("password") for name in given):
            yield "user: requires password_file or password_env, and these require user"
        if self.tls_ca and not self.url.startswith("https:"):
            yield "url: must begin with https:// if tls_ca is set"

    def warnings(self) -> list[str]:
        """Return a warning if a secret crosses a network without TLS."""
        url, given = urlsplit(self.url), [name for name in _SECRETS if getattr(self, name)]
        is_open = url.scheme == "http" and url.hostname not in LOCAL_HOSTS
        return [f"url: the secret of {given[0]} goes to {url.hostname} without TLS"] if given and is_open else []
