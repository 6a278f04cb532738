"""The program `tokioctl`: inspect and manage an archive and its daemon."""

from __future__ import annotations

from typing import NoReturn

import click

from tokiod.cli.common.base import PlainGroup, version_option
from tokiod.cli.common.examples import examples
from tokiod.cli.common.fast_exit import at_once

COMMANDS = (
    "archive", "backfill", "badost", "completion", "export", "fetch", "gaps", "health", "job", "ls", "nodes", "once", "ping", "plot",
    "reload", "report", "seal", "sinks", "stages", "status", "summarize", "tail", "top", "umami", "verify",
)  # fmt: skip


@click.group(cls=PlainGroup, modules=COMMANDS, epilog=examples("tokioctl status", "tokioctl ls", "tokioctl archive lmt --help"))
@version_option
def main() -> None:
    """Inspect and manage a tokiod archive; import saved files."""


def run() -> NoReturn:
    """Run the command line of this process."""
    at_once(main)


if __name__ == "__main__":
    run()
