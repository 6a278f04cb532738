"""`tokioctl`: what people ask of an archive and its daemon."""

from __future__ import annotations

import sys

import click

from tokiod.cli.archive import archive_command
from tokiod.cli.backfill import backfill_command
from tokiod.cli.completion import completion_command
from tokiod.cli.gaps import gaps_command
from tokiod.cli.once import once_command
from tokiod.cli.ping import ping_command
from tokiod.cli.plain import PlainGroup, version_option
from tokiod.cli.plot import plot_command
from tokiod.cli.reload import reload_command
from tokiod.cli.seal import seal_command
from tokiod.cli.status import status_command
from tokiod.cli.tail import tail_command
from tokiod.cli.verify import verify_command


@click.group(cls=PlainGroup)
@version_option
def main() -> None:
    """Ask an archive how it does, fill its past, and make archives of saved files."""


main.add_command(status_command)
main.add_command(gaps_command)
main.add_command(archive_command)
main.add_command(backfill_command)
main.add_command(seal_command)
main.add_command(verify_command)
main.add_command(tail_command)
main.add_command(once_command)
main.add_command(plot_command)
main.add_command(completion_command)
main.add_command(ping_command)
main.add_command(reload_command)


if __name__ == "__main__":
    sys.exit(main())
