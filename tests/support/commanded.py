"""A site as `tokioctl` is told of it: its configuration, its ledger, and a command that is run on it."""

import json
from contextlib import contextmanager

from click.testing import CliRunner

from tokiod.cli.tokioctl import main
from tokiod.config import load as configuration
from tokiod.ledger.ledger import Ledger


def source(name="one", kind="lmt", system="fs", **options):
    """Return a source's stanza: a database that is not there, unless another is named."""
    place = {} if kind != "lmt" or "watch" in options else {"url": "sqlite:///none"}
    return {"name": name, "kind": kind, "system": system} | place | options


def configured(directory, *sources, timezone="UTC"):
    """Write a configuration whose archive is in the same directory; return its path."""
    lines = [f'timezone = "{timezone}"', "[archive]", f'path = "{directory}/tts/%Y-%m-%d/{{system}}.hdf5"']
    for stanza in sources or (source(),):
        lines += ["[[source]]", *(f"{option} = {json.dumps(value)}" for option, value in stanza.items())]
    path = directory / "tokiod.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


@contextmanager
def ledger_of(path):
    """Make the ledger of a configuration's archive."""
    place = configuration.load(path).archive.ledger
    place.parent.mkdir(parents=True)
    with Ledger.open(place) as ledger:
        yield ledger


def ran(path, command, *arguments, at):
    """Run a command at an epoch second, on a screen that is wide enough."""
    return CliRunner(env={"COLUMNS": "200"}).invoke(main, [command, *arguments, "--config", str(path), "--clock", f"{at}@0x0"])
