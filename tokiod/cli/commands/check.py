"""`tokiod check`: report all errors of a configuration. Reads no server, no archive and no secret."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tokiod.cli.common.base import config_option
from tokiod.cli.common.output import echo
from tokiod.config import load as configuration
from tokiod.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sized
    from pathlib import Path

EXIT_NOT_VALID = 2


@click.command("check")
@config_option
def check_command(config_path: Path) -> None:
    """Check a configuration file and report all errors.

    It reads no server, no archive and no secret. Exit 0 valid, 2 not valid.
    """
    try:
        config = configuration.load(config_path)
    except ConfigError as error:
        echo(error, err=True)
        raise SystemExit(EXIT_NOT_VALID) from None
    for warning in configuration.warnings(config):
        echo(f"{config_path}: warning: {warning}", err=True)
    echo(f"{config_path}: OK: {_summary(config)}")


def _summary(config: configuration.Config) -> str:
    systems = {source.system for source in config.source}
    datasets = {(source.system, dataset) for source in config.source for dataset in source.datasets()}
    counts = (_count(config.source, "source"), _count(systems, "system"), _count(datasets, "dataset"))
    return f"{', '.join(counts)}, one file per {config.timezone} day under {config.archive.root}"


def _count(things: Sized, noun: str) -> str:
    return f"{len(things)} {noun}{'' if len(things) == 1 else 's'}"
