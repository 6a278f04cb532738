"""Directories of CURVE keys, and sockets with them, for tests."""

import time
from pathlib import Path

import zmq

from tokiod.bus.curve import ClientKeys, KeyPair, ServerKeys, key_pair


class Keyring:
    """Keys below a directory: the server's, and those in clients/, which it allows."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clients = directory / "clients"
        self.clients.mkdir(parents=True)
        self.server = self.made("server")

    def made(self, name: str) -> KeyPair:
        """Make a pair of keys, as files too."""
        public, secret = zmq.curve_keypair()
        (self.directory / f"{name}.key").write_text(f'curve\n    public-key = "{public.decode()}"\n')
        path = self.directory / f"{name}.key_secret"
        path.touch(0o600)
        path.write_text(f'curve\n    public-key = "{public.decode()}"\n    secret-key = "{secret.decode()}"\n')
        return key_pair(path.name, self.directory)

    def allowed(self, name: str) -> ClientKeys:
        """Make a pair of keys that the server allows."""
        own = self.made(name)
        (self.clients / f"{name}.key").write_bytes((self.directory / f"{name}.key").read_bytes())
        return ClientKeys(self.server.public, own)

    def unknown(self) -> ClientKeys:
        """Make a pair of keys that the server does not know."""
        return ClientKeys(self.server.public, KeyPair(*zmq.curve_keypair()))

    def for_another_server(self) -> ClientKeys:
        """Make a pair of unknown keys, for another server."""
        return ClientKeys(zmq.curve_keypair()[0], KeyPair(*zmq.curve_keypair()))

    def server_keys(self) -> ServerKeys:
        """Return the server's end."""
        return ServerKeys(self.server, self.clients)

    def revoke(self, name: str) -> None:
        """Remove a key from those that the server allows."""
        (self.clients / f"{name}.key").unlink()


def wait(condition, seconds=10):
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def threads():
    """Return how many threads this process has."""
    return len(list(Path("/proc/self/task").iterdir()))
