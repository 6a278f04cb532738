"""Keys for what strangers could reach: ZeroMQ's CURVE, which encrypts and lets in only those whose public key is known.

A pair of keys is two files in ZeroMQ's certificate format, made by `tokiod keygen`: NAME.key is public, NAME.key_secret is not.
The server has a secret key of its own and a directory of the public keys of those who may come; a client has a pair and the server's
public key. Files of secret keys are looked for as passwords are (tokiod.runtime.secrets), and must be readable by their owner alone.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
import zmq
import zmq.asyncio
from zmq.auth import load_certificate
from zmq.utils import z85

from tokiod.errors import ConfigError
from tokiod.runtime.secrets import places, remember

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tokiod.config.load import Config

log = structlog.get_logger()

PUBLIC, SECRET = ".key", ".key_secret"


@dataclass(frozen=True, slots=True)
class KeyPair:
    """Both keys of one side, as 40 characters of Z85 each."""

    public: bytes
    secret: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ClientKeys:
    """What a client shows, and the public key of the only server that it talks to."""

    server: bytes
    own: KeyPair

    @classmethod
    def read(cls, server: Path, own: Path) -> ClientKeys:
        """Read the server's public key, and the client's secret one, from their files. Raises ConfigError."""
        return cls(public_key(server), key_pair(str(own), Path()))

    def secure(self, socket: zmq.SyncSocket | zmq.asyncio.Socket) -> None:
        """Prepare a socket that is not connected yet."""
        socket.curve_serverkey = self.server
        socket.curve_publickey, socket.curve_secretkey = self.own.public, self.own.secret


class Guard:
    """A server's secret key, and who may come: always those in `always`, and those whose public keys are in a directory."""

    def __init__(self, own: KeyPair, clients: Path | None, always: Iterable[bytes] = ()) -> None:
        """Read the directory. Raises ConfigError."""
        self.own = own
        self._clients = clients
        self._always = frozenset(always)
        self.allowed: frozenset[bytes] = frozenset()
        self.read()

    def read(self) -> bool:
        """Read the directory again; tells whether somebody may not come any more. Raises ConfigError, and then all stays as it was."""
        before, self.allowed = self.allowed, self._always | _public_keys(self._clients)
        return not before <= self.allowed

    def secure(self, socket: zmq.SyncSocket) -> None:
        """Prepare a server's socket that is not bound yet. Without somebody who answers for the keys it lets nobody in."""
        socket.curve_server = True
        socket.curve_secretkey = self.own.secret
        socket.zap_domain = b"tokiod"
        socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)


def check(config: Config) -> None:
    """Read all keys that a configuration names. Raises ConfigError."""
    feed_guard(config)
    bus_guard(config)


def feed_guard(config: Config) -> Guard | None:
    """Return who may subscribe; None for whoever reaches the socket. Raises ConfigError."""
    feed = config.feed
    if feed.secret_key_file is None or feed.clients is None:
        return None
    return Guard(key_pair(feed.secret_key_file, config.secrets), config.secrets / feed.clients)


def bus_guard(config: Config) -> Guard | None:
    """Return who may send windows: the collectors of this configuration, and those in a directory, if any. Raises ConfigError."""
    keys, bus = bus_keys(config), config.bus
    if keys is None or bus.secret_key_file is None:
        return None
    clients = None if bus.clients is None else config.secrets / bus.clients
    return Guard(key_pair(bus.secret_key_file, config.secrets), clients, [keys.own.public])


def bus_keys(config: Config) -> ClientKeys | None:
    """Return what the collectors show to the writer. Raises ConfigError."""
    bus = config.bus
    if bus.secret_key_file is None or bus.client_secret_key_file is None:
        return None
    return ClientKeys(key_pair(bus.secret_key_file, config.secrets).public, key_pair(bus.client_secret_key_file, config.secrets))


def key_pair(name: str, directory: Path) -> KeyPair:
    """Read a secret key: a systemd credential of that name, or a file relative to a directory. Raises ConfigError."""
    looked = {}
    for path in places(name, directory):
        try:
            mode = path.stat().st_mode
            _, secret = load_certificate(path)
        except OSError as error:
            looked[path] = error.strerror
            continue
        except ValueError:
            secret = None
        _refuse_exposed(path, mode)
        if secret is None:
            raise ConfigError([f"{path}: no secret key is in it: name the file that ends in {SECRET}, see `tokiod keygen --help`"])
        return KeyPair(_public_of(secret, path), remember(secret.decode()).encode())
    told = "; ".join(f"{path}: {reason}" for path, reason in looked.items())
    raise ConfigError([f"secret key {name}: it can't be read ({told}); `tokiod keygen` makes one"])


def public_key(path: Path) -> bytes:
    """Read a public key. Raises ConfigError."""
    try:
        public, _ = load_certificate(path)
        z85.decode(public)
    except OSError as error:
        raise ConfigError([f"public key {path}: {error.strerror or 'no such file'}; it is the file that ends in {PUBLIC}"]) from None
    except (ValueError, KeyError):
        public = b""
    if len(public) != 40:  # noqa: PLR2004 - 32 bytes in Z85
        raise ConfigError([f"{path}: no public key is in it: it is the file that ends in {PUBLIC}, which `tokiod keygen` makes"])
    return public


def _public_keys(directory: Path | None) -> frozenset[bytes]:
    if directory is None:
        return frozenset()
    if not directory.is_dir():
        raise ConfigError([f"clients: {directory} is no directory: make it for the public keys ({PUBLIC}) of those who may come"])
    return frozenset(public_key(path) for path in sorted(directory.glob(f"*{PUBLIC}")))


def _refuse_exposed(path: Path, mode: int) -> None:
    """Refuse a secret that others may read. A credential is shown by systemd to its service alone, by an ACL that looks like a group."""
    given = os.environ.get("CREDENTIALS_DIRECTORY")
    others = 0o007 if given and path.is_relative_to(given) else 0o077
    if mode & others:
        raise ConfigError([f"{path}: others than its owner may read it (mode {stat.S_IMODE(mode):04o}): chmod 0600 it"])


def _public_of(secret: bytes, path: Path) -> bytes:
    try:
        return zmq.curve_public(secret)
    except (zmq.ZMQError, ValueError):
        raise ConfigError([f"{path}: what is in it is no secret key; `tokiod keygen` makes one"]) from None
