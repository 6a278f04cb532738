"""`tokiod keygen`: a pair of CURVE keys."""

from __future__ import annotations

import os
from pathlib import Path

import click
import zmq

from tokiod.bus.curve import PUBLIC, SECRET
from tokiod.cli.common.base import Failed

_OTHERS_FILE = """\
# ZeroMQ CURVE public certificate, made by `tokiod keygen`. Give it to whoever is to know you.
curve
    public-key = "{public}"
"""
_OWN_FILE = """\
# ZeroMQ CURVE **secret** certificate, made by `tokiod keygen`. Give it to nobody.
curve
    public-key = "{public}"
    secret-key = "{secret}"
"""


@click.command("keygen")
@click.argument("directory", type=click.Path(path_type=Path))
@click.argument("name", default="tokiod")
def keygen_command(directory: Path, name: str) -> None:
    """Make a pair of keys, NAME.key and NAME.key_secret.

    The first is for others, the second for you. Keys let the feed and the bus go over the network (docs/security.md). Files that are there
    are never overwritten. Exit 0 made, 2 not.
    """
    if "/" in name or not name.strip("."):
        raise Failed(f"{name!r} is no name for a file")
    public, secret = (directory / f"{name}{suffix}" for suffix in (PUBLIC, SECRET))
    keys = dict(zip(("public", "secret"), (key.decode() for key in zmq.curve_keypair()), strict=True))
    if there := next((path for path in (public, secret) if path.exists()), None):
        raise Failed(f"{there} is there already, and is kept: name another, or remove it")
    _write(secret, _OWN_FILE.format(**keys), 0o600)
    _write(public, _OTHERS_FILE.format(**keys), 0o644)
    click.echo(f"{secret}: secret: secret_key_file in [feed] or [bus] of the server's tokiod.toml, or the client's own")
    click.echo(f"{public}: public: into the directory `clients` of the server that this one is a client of; a server's, to its clients")


def _write(path: Path, text: str, mode: int) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(fd, "w") as file:
            file.write(text)
            # Whatever the mask says: a public key is to be read.
            os.fchmod(fd, mode)
    except OSError as error:
        raise Failed(f"{path} can't be written: {error.strerror}") from error
