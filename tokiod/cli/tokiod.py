"""The program `tokiod`: the daemon and its administration."""

from __future__ import annotations

import asyncio
import os
import sys
from functools import partial
from typing import TYPE_CHECKING

import click

from tokiod import __version__
from tokiod.archive.lock import AlreadyRunning, lasting_owner
from tokiod.cli import freeze_imports
from tokiod.cli.common.base import PlainGroup, clock_option, config_option, host_option, origin_option, parent_option, version_option
from tokiod.cli.common.examples import examples
from tokiod.cli.common.roles import check_writers_host, other_role, role
from tokiod.config import load as configuration
from tokiod.config.hosts import sources_of
from tokiod.runtime import log
from tokiod.runtime.process_setup import die_with_parent, keep_freed_memory, raise_descriptor_limit, restrict_rights, use_one_heap
from tokiod.runtime.sd_notify import Notifier
from tokiod.runtime.service import Service

if TYPE_CHECKING:
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


@click.group(cls=PlainGroup, modules=("agent", "check", "demo", "keygen"), epilog=examples("tokiod check", "tokiod run"))
@version_option
def main() -> None:
    """Archive the telemetry of an HPC centre's storage as TOKIO Time Series files."""


@main.command(epilog=examples("tokiod run --config ./tokiod.toml"))
@config_option
@host_option
@level_option
@format_option
@clock_option
@parent_option
def run(
    config_path: Path, log_level: str | None, clock: Clock, host_name: str | None, parent: int | None, log_format: log.Form | None
) -> None:
    """Run the daemon in the foreground until SIGTERM or Ctrl-C.

    Exit 0 stopped, 2 could not start.
    """
    _begin(log_level, parent, log_format)
    config = _load(config_path, None, log_level)
    check_writers_host(config, host_name)
    _log_start(config_path, config)
    if (owner := lasting_owner(config.archive.lock)) is not None:
        raise AlreadyRunning(f"process {owner} already writes to {config.archive.root}; stop it first")
    arguments = ["--log-level", log_level] if log_level else []
    arguments += ["--log-format", log_format] if log_format else []
    arguments += [] if "Simulated" not in type(clock).__name__ else ["--clock", str(clock)]
    from tokiod.supervisor.supervisor import Supervisor  # noqa: PLC0415 - the other processes do not need it

    freeze_imports()
    asyncio.run(Supervisor(config_path, arguments, Notifier.take(os.environ), clock, partial(_set_level, log_level)).run())


@main.command(epilog=examples("tokiod writer"))
@config_option
@host_option
@level_option
@format_option
@clock_option
@parent_option
@origin_option
def writer(
    config_path: Path,
    log_level: str | None,
    clock: Clock,
    host_name: str | None,
    parent: int | None,
    origin: Path | None,
    log_format: log.Form | None,
) -> None:
    """Run the writer alone. `tokiod run` starts it.

    Exit 0 stopped, 1 the ledger was lost or is not available: start it again, 2 could not start.
    """
    _begin(log_level, parent, log_format)
    if parent is None:
        config = _load(config_path, origin, log_level)
        check_writers_host(config, host_name)
        _log_start(config_path, config)
    raise_descriptor_limit()
    from tokiod.writer.process import run as write  # noqa: PLC0415 - HDF5 stays out of the other processes

    service = _service(config_path, origin, log_level)
    service.catch_signals()
    freeze_imports()
    write(service, clock)


@main.command(epilog=examples("tokiod collectors", "tokiod collectors --host zone-b"))
@config_option
@host_option
@level_option
@format_option
@clock_option
@parent_option
@origin_option
def collectors(
    config_path: Path,
    log_level: str | None,
    clock: Clock,
    host_name: str | None,
    parent: int | None,
    origin: Path | None,
    log_format: log.Form | None,
) -> None:
    """Run the collectors alone. `tokiod run` starts them.

    On a [[host]] that is not the writer's, they collect the sources of that host, as the daemon asks for them (docs/hosts.md).

    Exit 0 stopped, 2 could not start.
    """
    _begin(log_level, parent, log_format)
    service = _service(config_path, origin, log_level)
    if parent is None:
        config = service.load()
        host = role(config, host_name)
        _log_start(config_path, config, host)
        if host is not None and not host.is_writers:
            from tokiod.polling.hosts.host_process import run as answer  # noqa: PLC0415 - as above

            freeze_imports()
            answer(service, partial(other_role, host.name), clock, __version__)
            return
    from tokiod.polling.process import run as collect  # noqa: PLC0415 - as above

    if parent is None:
        from tokiod.supervisor.health import serve_unit_health  # noqa: PLC0415 - `tokiod run` serves for its children

        service = serve_unit_health(service, clock)
    freeze_imports()
    collect(service, clock)


@main.command(epilog=examples("tokiod feed"))
@config_option
@level_option
@format_option
@clock_option
@parent_option
@origin_option
def feed(
    config_path: Path,
    log_level: str | None,
    clock: Clock,  # noqa: ARG001 - it has the options of the other processes
    parent: int | None,
    origin: Path | None,
    log_format: log.Form | None,
) -> None:
    """Run the feed alone, which serves the subscribers. `tokiod run` starts it.

    Exit 0 stopped, 1 used too much memory: start it again, 2 could not start.
    """
    _begin(log_level, parent, log_format)
    if parent is None:
        _log_start(config_path, _load(config_path, origin, log_level))
    from tokiod.feed_proxy.process import run as forward  # noqa: PLC0415 - as above

    service = _service(config_path, origin, log_level)
    service.catch_signals()
    freeze_imports()
    forward(service)


@main.command(epilog=examples("tokiod hub"))
@config_option
@level_option
@format_option
@clock_option
@parent_option
@origin_option
def hub(
    config_path: Path, log_level: str | None, clock: Clock, parent: int | None, origin: Path | None, log_format: log.Form | None
) -> None:
    """Run the hub alone, which asks compute nodes.

    Their agents connect to it. `tokiod run` starts it where [hub] has an endpoint.

    Exit 0 stopped, 1 used too much memory: start it again, 2 could not start.
    """
    _begin(log_level, parent, log_format)
    if parent is None:
        _log_start(config_path, _load(config_path, origin, log_level))
    from tokiod.hub.process import run as serve  # noqa: PLC0415 - as above

    service = _service(config_path, origin, log_level)
    service.catch_signals()
    freeze_imports()
    serve(service, clock)


@main.command(epilog=examples("tokiod web"))
@config_option
@level_option
@format_option
@clock_option
@parent_option
def web(config_path: Path, log_level: str | None, clock: Clock, parent: int | None, log_format: log.Form | None) -> None:
    """Serve the archive over HTTP, read-only. No daemon is needed.

    Exit 0 stopped, 2 could not start.
    """
    _begin(log_level, parent, log_format)
    from tokiod.web.process import run as serve  # noqa: PLC0415 - as above

    freeze_imports()
    serve(_service(config_path, None, log_level), clock)


@main.command(epilog=examples("tokiod sink kafka"))
@click.argument("name")
@config_option
@level_option
@format_option
@clock_option
def sink(config_path: Path, log_level: str | None, clock: Clock, name: str, log_format: log.Form | None) -> None:
    """Send what the archive stores to a sink.

    NAME is that of its section. It needs no daemon: it follows the change log, reads the rows from the files, and writes neither ledger
    nor archive. See docs/sinks.md.

    Exit 0 stopped, 2 could not start, 3 removed by a reload.
    """
    _begin(log_level, None, log_format)
    keep_freed_memory(8)
    from tokiod.forwarding.process import run as forward  # noqa: PLC0415 - as above

    freeze_imports()
    forward(name, _service(config_path, None, log_level), clock)


def _log_start(path: Path, config: Config, host: HostConfig | None = None) -> None:
    """Log what starts, as the first line of its log; the supervisor has logged it for its children. host: whose sources alone."""
    names = [source.name for source in (config.source if host is None else sources_of(config, host))]
    sources = f"{len(names)} source{'' if len(names) == 1 else 's'}: {', '.join(names) or 'none'}"
    log.get_logger().info("run.started", version=__version__, config=str(path), archive=str(config.archive.root), sources=sources)


def _service(path: Path, origin: Path | None, level: str | None) -> Service[Config]:
    return Service(partial(_load, path, origin, level), Notifier.take(os.environ))


def _load(path: Path, origin: Path | None, level: str | None) -> Config:
    """Read the configuration, at the start and at each reload, and set the log level that it names."""
    config = configuration.load(path, origin)
    _set_level(level, config)
    return config


def _set_level(level: str | None, config: Config) -> None:
    log.set_level(level or config.log_level)


def _begin(level: str | None, parent: int | None, log_format: log.Form | None) -> None:
    if parent is not None:
        die_with_parent(parent)
    restrict_rights()
    use_one_heap()
    log.setup(level or "info", log_format)


if __name__ == "__main__":
    sys.exit(main(prog_name="tokiod"))
