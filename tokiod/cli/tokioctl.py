"""`tokioctl`: what people ask of an archive and its daemon."""

from __future__ import annotations

from typing import NoReturn

import click

from tokiod.cli.common.base import PlainGroup, version_option
from tokiod.cli.common.fast_exit import at_once

COMMANDS = ("archive", "backfill", "completion", "gaps", "once", "ping", "plot", "reload", "seal", "status", "tail", "verify")


@click.group(cls=PlainGroup, modules=COMMANDS)
@version_option
def main() -> None:
    """Ask an archive how it does, fill its past, and make archives of saved files."""


def run() -> NoReturn:
    """Run the command that the process was started for."""
    at_once(main)


if __name__ == "__main__":
    run()
