"""The agent's keys: two files in ZeroMQ's certificate format, as `tokiod keygen` writes them."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field

from tokiod.agent.settings import SettingsError

_KEY = re.compile(r'^\s*(public|secret)-key\s*=\s*"([!-~]{40})"\s*$', re.MULTILINE)

_OF_HUB = "copy the hub's file that ends in .key"
_OF_CLASS = "copy the file of the node's class that ends in .key_secret"


@dataclass(frozen=True)
class AgentKeys:
    """The hub's public key, and both keys of this agent: 40 characters of Z85 each."""

    hub: bytes
    public: bytes
    secret: bytes = field(repr=False)


def read_keys(hub_key_file: str, key_file: str) -> AgentKeys:
    """Read the keys. Raise SettingsError, also if other users can read the secret one."""
    hub, own = _keys(hub_key_file, _OF_HUB), _keys(key_file, _OF_CLASS)
    if "public" not in hub:
        raise SettingsError(f"{hub_key_file}: contains no public key: {_OF_HUB}")
    if "secret" not in own or "public" not in own:
        raise SettingsError(f"{key_file}: contains no secret key: {_OF_CLASS}")
    mode = os.stat(key_file).st_mode
    # systemd gives its service a credential by an ACL, which looks like a group's right.
    credentials = os.environ.get("CREDENTIALS_DIRECTORY")
    if mode & (0o007 if credentials and key_file.startswith(credentials + "/") else 0o077):
        raise SettingsError(f"{key_file}: other users can read it (mode {mode & 0o7777:04o}): chmod 0600 it")
    return AgentKeys(hub["public"], own["public"], own["secret"])


def _keys(path: str, remedy: str) -> dict[str, bytes]:
    try:
        with open(path, encoding="ascii") as file:
            return {kind: key.encode() for kind, key in _KEY.findall(file.read())}
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"key {path}: {getattr(error, 'strerror', None) or 'not a file of keys'}: {remedy}") from None
