"""How the commands start that are processes of the daemon: the options of all, and what each does before its own work."""

from __future__ import annotations

import os
from functools import wraps
from typing import TYPE_CHECKING, Any

import click
import msgspec

from tokiod import __version__
from tokiod.cli.common.base import clock_option, config_option, origin_option, parent_option
from tokiod.config import load as configuration
from tokiod.config.hosts import sources_of
from tokiod.runtime import log
from tokiod.runtime.process_setup import die_with_parent, restrict_rights, use_one_heap
from tokiod.runtime.sd_notify import Notifier
from tokiod.runtime.service import Service

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tokiod.clock import Clock
    from tokiod.config.hosts import HostConfig
    from tokiod.config.schema import Config

level_option = click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    help="Minimum log level; overrides log_level.  [default: as configured, else info]",
)
format_option = click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    help="text: sentences; json: one object per line.  [default: sentences in the journal and on a terminal, else JSON]",
)


class Start(msgspec.Struct, frozen=True):
    """The options of a process. parent: the process with which it ends; origin: the file that its configuration is a copy of."""

    config_path: Path
    log_level: str | None
    log_format: log.Form | None
    clock: Clock
    parent: int | None
    origin: Path | None

    def begin(self) -> None:
        """Set up the process."""
        if self.parent is not None:
            die_with_parent(self.parent)
        restrict_rights()
        use_one_heap()
        log.setup(self.log_level or "info", self.log_format)

    def service(self) -> Service[Config]:
        """Return the service with the configuration and the service manager of the process. Only once: it takes the notifier."""
        return Service(self._load, Notifier.take(os.environ))

    def log_config(self, config: Config, host: HostConfig | None = None) -> None:
        """Log what starts, as the first line of the log; the supervisor has logged it for its children. host: whose sources alone."""
        names = [source.name for source in (config.source if host is None else sources_of(config, host))]
        sources = f"{len(names)} source{'' if len(names) == 1 else 's'}: {', '.join(names) or 'none'}"
        archive = str(config.archive.root)
        log.get_logger().info("run.started", version=__version__, config=str(self.config_path), archive=archive, sources=sources)

    def set_level(self, config: Config) -> None:
        """Log from the level on that the command or the configuration names."""
        log.set_level(self.log_level or config.log_level)

    def _load(self) -> Config:
        """Read the configuration, at the start and at each reload, and set the log level that it names."""
        config = configuration.load(self.config_path, self.origin)
        self.set_level(config)
        return config


def process_options(*more: Callable[..., Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that gives a command the options of a process, begins that, and passes Start. more: options of its own."""

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def started(**given: Any) -> None:
            start = Start(**{name: given.pop(name) for name in Start.__struct_fields__})
            start.begin()
            command(start, **given)

        for option in (origin_option, parent_option, clock_option, format_option, level_option, *more, config_option):
            started = option(started)
        return started

    return decorated
