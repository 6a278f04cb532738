"""`tokiod check`: report all errors of a configuration, what it names on this machine, and whether its sources answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tokiod.cli.common.base import clock_option, config_option, host_option
from tokiod.cli.common.examples import examples
from tokiod.cli.common.output import echo
from tokiod.cli.common.roles import collected_here, host_line, known_role, role
from tokiod.clock import SystemClock
from tokiod.config import effective, machine_checks
from tokiod.config import load as configuration
from tokiod.errors import ConfigError
from tokiod.reports.hosts import read
from tokiod.runtime.interruption import run_until_interrupted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sized
    from pathlib import Path

    from tokiod.clock import Clock
    from tokiod.collector import SourceConfig
    from tokiod.config.hosts import HostConfig
    from tokiod.config.schema import Config
    from tokiod.reports.one_window import Once

EXIT_NO_RECORDS, EXIT_NOT_VALID = 1, 2


@click.command("check", epilog=examples("tokiod check", "tokiod check --connect", "tokiod check --config ./tokiod.toml --show"))
@click.option(
    "--connect", is_flag=True, help="Query this host's sources for their newest window; on the writer's host, report the others too."
)
@click.option("--show", "is_shown", is_flag=True, help="Print the effective configuration, with the line that sets each value.")
@config_option
@host_option
@clock_option
def check_command(config_path: Path, clock: Clock, host_name: str | None, *, connect: bool, is_shown: bool) -> None:
    """Check a configuration file and report all errors.

    Warnings name files, directories and commands that are missing, or that this user may not use; where there are hosts, those of this
    host. Without --connect it reads no server and no secret. Exit 0 valid, 1 with --connect a source failed or has no records,
    or something is wrong with a host, 2 not valid.
    """
    try:
        text, config = configuration.read(config_path)
        host = role(config, host_name) if host_name or connect else known_role(config)
    except ConfigError as error:
        echo(error, err=True)
        raise SystemExit(EXIT_NOT_VALID) from None
    for warning in [*configuration.warnings(config), *machine_checks.problems(config, host)]:
        echo(f"{config_path}: warning: {warning}", err=True)
    for line in effective.lines(config_path, text, config) if is_shown else ():
        echo(line)
    echo(f"{config_path}: OK: {_summary(config)}", err=is_shown)
    if connect and not _all_answer(config, clock, host, collected_here(config, host_name)):
        raise SystemExit(EXIT_NO_RECORDS)


def _all_answer(config: Config, clock: Clock, host: HostConfig | None, sources: Iterable[SourceConfig]) -> bool:
    """Query sources and print a line for each; return whether every one has records."""
    from tokiod.cli.commands.once import summary  # noqa: PLC0415 - numpy and rich, which a check of the file alone does not need
    from tokiod.reports.one_window import query_all  # noqa: PLC0415 - as above

    def note(one: Once) -> None:
        echo(summary(one), err=bool(one.error))

    hosts = [] if host is None or not host.is_writers else [one for one in read(config, SystemClock().time()) if one.role == "collectors"]
    for one in hosts:
        echo(f"host {host_line(one)}", err=bool(one.trouble))
    found = run_until_interrupted(query_all(config, clock, [source for source in sources if source.polled], note))
    return all((one.cells or one.rows) and not one.error for one in found) and not any(one.trouble for one in hosts)


def _summary(config: Config) -> str:
    systems = {source.system for source in config.source}
    datasets = {(source.system, dataset) for source in config.source for dataset in [*source.datasets(), *source.tables]}
    counts = (_count(config.source, "source"), _count(systems, "system"), _count(datasets, "dataset"))
    return f"{', '.join(counts)}, one file per {config.timezone} day under {config.archive.root}"


def _count(things: Sized, noun: str) -> str:
    return f"{len(things)} {noun}{'' if len(things) == 1 else 's'}"
