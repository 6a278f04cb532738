"""`tokiod keygen`: a pair of CURVE keys."""

from __future__ import annotations

import os
from pathlib import Path

import click
import zmq

from tokiod.bus.curve import PUBLIC, SECRET
from tokiod.cli.common.base import Failed
from tokiod.cli.common.examples import examples
from tokiod.cli.common.output import echo

_PUBLIC_TEXT = """\
# ZeroMQ CURVE public certificate, made by `tokiod keygen`. Give it to the servers and clients that connect to this one.
curve
    public-key = "{public}"
"""
_PRIVATE_TEXT = """\
# ZeroMQ CURVE **secret** certificate, made by `tokiod keygen`. Keep it on this machine.
curve
    public-key = "{public}"
    secret-key = "{secret}"
"""


@click.command("keygen", epilog=examples("tokiod keygen /etc/tokiod/credentials feed", "tokiod keygen . dashboard"))
@click.argument("directory", type=click.Path(path_type=Path))
@click.argument("name", default="tokiod")
def keygen_command(directory: Path, name: str) -> None:
    """Create a pair of keys, NAME.key and NAME.key_secret.

    The first is public, the second secret. A feed on a network, the hub and hosts need keys (docs/security.md). Existing files are never
    overwritten. Exit 0 created, 2 failed.
    """
    if "/" in name or not name.strip("."):
        raise Failed(f"{name!r} is not a file name")
    public, secret = (directory / f"{name}{suffix}" for suffix in (PUBLIC, SECRET))
    keys = dict(zip(("public", "secret"), (key.decode() for key in zmq.curve_keypair()), strict=True))
    if there := next((path for path in (public, secret) if path.exists()), None):
        raise Failed(f"{there} exists and is kept: choose another name, or remove it")
    _write(secret, _PRIVATE_TEXT.format(**keys), 0o600)
    _write(public, _PUBLIC_TEXT.format(**keys), 0o644)
    echo(f"{secret}: secret: set secret_key_file in [feed], [hub] or [[host]] of tokiod.toml to it, or use it in the client")
    echo(f"{public}: public: copy a client's into the server's directory `clients`; give a server's to its clients")


def _write(path: Path, text: str, mode: int) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(fd, "w") as file:
            file.write(text)
            # Independent of the umask: a public key must be readable.
            os.fchmod(fd, mode)
    except OSError as error:
        raise Failed(f"cannot write {path}: {error.strerror}") from error
