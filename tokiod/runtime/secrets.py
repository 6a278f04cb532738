"""Secrets: named in the configuration, stored elsewhere, never printed.

A client needs the text of a password, and libraries combine it with other text, so a type alone can't keep it out of logs. Two measures
instead: the repr of a Secret, which tracebacks, dataclasses and structs show, is "***"; and the process remembers every secret that it
read, so that mask() can remove it from what tokiod.runtime.log writes, in all spellings that occur in logs (JSON, repr, URL, base64).
"""

from __future__ import annotations

import json
import os
import stat
from binascii import b2a_base64
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus

from tokiod.errors import ConfigError
from tokiod.runtime.logger import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

log = get_logger()

MASK = "***"
CREDENTIALS = "credentials"
"""The directory next to the configuration whose files systemd passes to the units."""
MIN_MASKED_CHARS = 4
"""Shorter secrets are not masked in logs: removing every "a" would hide the log, not the secret."""
MIN_MASKED_BASE64_CHARS = 8
"""Shorter parts are not masked in base64, where other texts contain them too."""
_URL_SAFE = str.maketrans("+/", "-_")

_spellings: set[str] = set()


class Secret(str):
    """The text of a secret, whose repr does not contain it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(MASK)


def secret(reference: str, config_dir: Path) -> str:
    """Read the secret that "file:NAME" or "env:NAME" refers to, without the newline at its end.

    A file is looked for in systemd's $CREDENTIALS_DIRECTORY, then relative to config_dir and to its credentials/, where systemd reads
    the credentials of the units; an absolute path stands for itself.
    Raises ConfigError that names the paths it tried.
    """
    scheme, _, name = reference.partition(":")
    read: Callable[[str, Path], str] | None = {"file": _from_file, "env": _from_environment}.get(scheme)
    if read is None or not name:
        raise ConfigError(['a secret is named by "file:NAME" or "env:NAME"'])
    found = read(name, config_dir).removesuffix("\n").removesuffix("\r")
    if not found:
        raise ConfigError([f"secret {reference}: it is empty"])
    return remember(found)


def remember(plain: str) -> Secret:
    """Treat a text as a secret from now on."""
    if len(plain) >= MIN_MASKED_CHARS:
        plain = str(plain)
        _spellings.update((plain, json.dumps(plain)[1:-1], json.dumps(plain, ensure_ascii=False)[1:-1]))
        _spellings.update((repr(plain)[1:-1], quote(plain), quote(plain, safe=""), quote_plus(plain)))
        _spellings.update(_in_base64(plain.encode(errors="surrogateescape")))
    return Secret(plain)


def _in_base64(plain: bytes) -> Iterator[str]:
    """Yield what of a secret is in the base64 of any text that contains it, such as USER:PASSWORD, in both alphabets.

    Three bytes are four characters, so there are three ways; characters that also depend on the bytes around it are left out.
    """
    for before in range(3):
        coded = b2a_base64(bytes(before) + plain, newline=False)
        whole = coded[(before * 8 + 5) // 6 : (before + len(plain)) * 8 // 6].decode()
        if len(whole) >= MIN_MASKED_BASE64_CHARS:
            yield whole
            yield whole.translate(_URL_SAFE)


def places(name: str, config_dir: Path) -> list[Path]:
    """Return the paths that a secret's file may have, in order of preference."""
    directories = [Path(found) for found in [os.environ.get("CREDENTIALS_DIRECTORY", "")] if found]
    return list(dict.fromkeys(directory / name for directory in [*directories, config_dir, config_dir / CREDENTIALS]))


def mask(text: str) -> str:
    """Return a text with "***" in place of every secret that this process has read."""
    for spelling in sorted(_spellings, key=len, reverse=True):
        text = text.replace(spelling, MASK)
    return text


def _from_environment(name: str, _config_dir: Path) -> str:
    if name not in os.environ:
        raise ConfigError([f"secret env:{name}: the environment variable {name} is not set"])
    return os.environ[name]


def _from_file(name: str, config_dir: Path) -> str:
    failed: dict[Path, OSError] = {}
    for path in places(name, config_dir):
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:
            raise ConfigError([f"secret file:{name}: {path} is not UTF-8 text"]) from None
        except OSError as error:
            failed[path] = error
        else:
            _warn_if_exposed(path, path.stat().st_mode)
            return text
    reasons = "; ".join(f"{path}: {error.strerror}" for path, error in failed.items())
    is_denied = any(isinstance(error, PermissionError) for error in failed.values())
    remedy = "; run this as root or as the file's owner" if is_denied else ""
    raise ConfigError([f"secret file:{name}: it can't be read ({reasons}){remedy}"])


@lru_cache(maxsize=64)
def _warn_if_exposed(path: Path, mode: int) -> None:
    """Warn once: a password is read again at each new connection.

    systemd gives its service a credential by an ACL, which looks like a group's right.
    """
    credentials = os.environ.get("CREDENTIALS_DIRECTORY")
    is_credential = bool(credentials) and path.is_relative_to(credentials or "")
    if mode & (stat.S_IROTH if is_credential else stat.S_IROTH | stat.S_IRGRP):
        hint = f"chmod {'o=' if mode & stat.S_IROTH else 'g='} it: {'any user' if mode & stat.S_IROTH else 'its group'} can read it"
        log.warning("secret.exposed", path=str(path), mode=f"{stat.S_IMODE(mode):04o}", hint=hint)
