"""Keys for sockets that external clients can reach: ZeroMQ's CURVE encrypts, and accepts only clients with a known public key.

A pair of keys is two files in ZeroMQ's certificate format, made by `tokiod keygen`: NAME.key is public, NAME.key_secret is not.
The server has a secret key and a directory of the public keys that it allows; a client has a pair and the server's public key.
Secret keys are found as passwords are (tokiod.runtime.secrets), and only their owner may be able to read them.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tokiod.config.hosts import other_hosts, writers_host
from tokiod.errors import ConfigError
from tokiod.runtime.secrets import places, remember

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import zmq
    import zmq.asyncio

    from tokiod.config.hosts import HostConfig
    from tokiod.config.sections import FeedConfig, WebConfig

DOMAIN = "tokiod"
"""ZeroMQ's name for what a server's keys give access to."""
PUBLIC, SECRET = ".key", ".key_secret"
"""Endings of the files of a pair."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """Both keys of one side, as 40 characters of Z85 each."""

    public: bytes
    secret: bytes = field(repr=False)


class ClientKeys(msgspec.Struct, frozen=True):
    """A client's own keys, and the public key of the only server that it accepts."""

    server: bytes
    own: KeyPair

    @classmethod
    def read(cls, server: Path, own: Path) -> ClientKeys:
        """Read the server's public key and the client's secret key from their files. Raises ConfigError."""
        return cls(public_key(server), key_pair(str(own), Path()))

    def secure(self, socket: zmq.SyncSocket | zmq.asyncio.Socket) -> None:
        """Prepare a socket that is not connected yet."""
        socket.curve_serverkey = self.server
        socket.curve_publickey, socket.curve_secretkey = self.own.public, self.own.secret


class ServerKeys:
    """A server's own keys, and the public keys that it allows: those in the directory `clients`."""

    def __init__(self, own: KeyPair, clients: Path | None) -> None:
        """Read the directory. Raises ConfigError."""
        self.own = own
        self._clients = clients
        self.allowed: frozenset[bytes] = frozenset()
        self.reload()

    def reload(self) -> bool:
        """Read the directory again; return whether a key is no longer allowed. Raises ConfigError, and then changes nothing."""
        before, self.allowed = self.allowed, _public_keys(self._clients)
        return not before <= self.allowed

    def secure(self, socket: zmq.SyncSocket) -> None:
        """Prepare a server's socket that is not bound yet. Until an authenticator answers for the keys, it accepts no client."""
        socket.curve_server = True
        socket.curve_secretkey = self.own.secret
        socket.zap_domain = DOMAIN.encode()
        socket.zap_enforce_domain = True


class HostKeys(ServerKeys):
    """The writer's host's own keys, and the public key of each other host. One whose file is missing is not allowed.

    files: by the names of the hosts, as the next reload() reads them. hosts: their names, by their keys.
    """

    def __init__(self, own: KeyPair, files: Mapping[str, Path]) -> None:
        """Read the files. Raises ConfigError."""
        self.files = files
        self.hosts: dict[bytes, str] = {}
        super().__init__(own, None)

    def reload(self) -> bool:
        """Read the files again; return whether a key is no longer allowed. Raises ConfigError, and then changes nothing."""
        hosts: dict[bytes, str] = {}
        for name, path in self.files.items():
            if is_there(path) and (other := hosts.setdefault(public_key(path), name)) != name:
                raise ConfigError([f"{path}: the key of host {name} is that of host {other} too: make one for each host"])
        before, self.hosts, self.allowed = self.allowed, hosts, frozenset(hosts)
        return not before <= self.allowed


def hosts_server_keys(hosts: Sequence[HostConfig], secrets: Path) -> HostKeys | None:
    """Return the keys of the writer's host, and those of the other hosts; None without any. Raises ConfigError."""
    writer = writers_host(hosts)
    if writer is None or not other_hosts(hosts):
        return None
    return HostKeys(key_pair(writer.secret_key, secrets), host_key_files(hosts, secrets))


def host_key_files(hosts: Iterable[HostConfig], secrets: Path) -> dict[str, Path]:
    """Return the files of the public keys of all hosts but the writer's, by their names."""
    return {host.name: host.public_key_path(secrets) for host in other_hosts(hosts)}


def host_client_keys(hosts: Iterable[HostConfig], host: HostConfig, secrets: Path) -> ClientKeys:
    """Return the keys of a host other than the writer's. Raises ConfigError."""
    writer = writers_host(hosts)
    if writer is None:
        raise ConfigError(["no [[host]] has an endpoint"])
    return ClientKeys(public_key(writer.public_key_path(secrets)), key_pair(host.secret_key, secrets))


def feed_server_keys(feed: FeedConfig, secrets: Path) -> ServerKeys | None:
    """Return the feed's keys and its subscribers'; None if any client may subscribe. Raises ConfigError."""
    if feed.secret_key_file is None or feed.clients is None:
        return None
    return ServerKeys(key_pair(feed.secret_key_file, secrets), secrets / feed.clients)


def web_client_keys(web: WebConfig, secrets: Path) -> ClientKeys | None:
    """Return the keys with which `tokiod web` subscribes to the feed; None if it has none. Raises ConfigError."""
    if web.secret_key_file is None or web.feed_key_file is None:
        return None
    found = places(web.feed_key_file, secrets)
    server = next((path for path in found if is_there(path)), found[-1])
    return ClientKeys(public_key(server), key_pair(web.secret_key_file, secrets))


def key_pair(name: str, directory: Path) -> KeyPair:
    """Read a secret key: a systemd credential of that name, or a file relative to a directory. Raises ConfigError."""
    failures = {}
    for path in places(name, directory):
        try:
            mode = path.stat().st_mode
            _, secret = _certificate(path)
        except OSError as error:
            failures[path] = error.strerror
            continue
        except ValueError:
            secret = None
        _refuse_exposed(path, mode)
        if secret is None:
            raise ConfigError([f"{path}: contains no secret key: name the file that ends in {SECRET}, see `tokiod keygen --help`"])
        return KeyPair(_public_of(secret, path), remember(secret.decode()).encode())
    reasons = "; ".join(f"{path}: {reason}" for path, reason in failures.items())
    raise ConfigError([f"secret key {name}: can't be read ({reasons}); `tokiod keygen` makes one"])


def public_key(path: Path) -> bytes:
    """Read a public key. Raises ConfigError."""
    from zmq.utils import z85  # noqa: PLC0415 - see below

    try:
        public, _ = _certificate(path)
        z85.decode(public)
    except OSError as error:
        raise ConfigError([f"public key {path}: {error.strerror or 'no such file'}; name the file that ends in {PUBLIC}"]) from None
    except (ValueError, KeyError):
        public = b""
    if len(public) != 40:  # noqa: PLR2004 - 32 bytes in Z85
        raise ConfigError([f"{path}: contains no public key: name the file that ends in {PUBLIC}, which `tokiod keygen` makes"])
    return public


# ZeroMQ is imported where there are keys: the supervisor, which has no other use for it, checks that keys can be read.
def _certificate(path: Path) -> tuple[bytes, bytes | None]:
    from zmq.auth import load_certificate  # noqa: PLC0415 - see above

    return load_certificate(path)


def public_key_files(directory: Path) -> list[Path]:
    """Return the files of public keys in a directory. Raises ConfigError."""
    # Not glob(), for which a directory that can't be read is empty: all clients would be refused.
    try:
        return sorted(directory / name for name in os.listdir(directory) if name.endswith(PUBLIC))  # noqa: PTH208 - as iterdir()
    except (FileNotFoundError, NotADirectoryError):
        what = f"create it, with the public keys ({PUBLIC}) of the allowed clients"
        raise ConfigError([f"clients: {directory} is not a directory: {what}"]) from None
    except OSError as error:
        raise ConfigError([_unreadable(f"clients: {directory}", error)]) from None


def _public_keys(directory: Path | None) -> frozenset[bytes]:
    return frozenset() if directory is None else frozenset(map(public_key, public_key_files(directory)))


def is_there(path: Path) -> bool:
    """Return whether a file exists. Raises ConfigError where this user may not see that."""
    try:
        return path.exists()
    except OSError as error:
        raise ConfigError([_unreadable(f"public key {path}", error)]) from None


def _unreadable(what: str, error: OSError) -> str:
    return f"{what}: {error.strerror}: the daemon's user must be able to read it (as root: chmod a+rX the directories)"


def _refuse_exposed(path: Path, mode: int) -> None:
    """Refuse a secret that other users can read. systemd gives its service a credential by an ACL, which looks like a group's right."""
    credentials = os.environ.get("CREDENTIALS_DIRECTORY")
    others = 0o007 if credentials and path.is_relative_to(credentials) else 0o077
    if mode & others:
        raise ConfigError([f"{path}: other users can read it (mode {stat.S_IMODE(mode):04o}): chmod 0600 it"])


def _public_of(secret: bytes, path: Path) -> bytes:
    import zmq  # noqa: PLC0415 - see above

    try:
        return zmq.curve_public(secret)
    except (zmq.ZMQError, ValueError):
        raise ConfigError([f"{path}: contains an invalid secret key; `tokiod keygen` makes one"]) from None
