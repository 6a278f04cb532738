"""The program `tokiod`: the daemon and its administration."""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from typing import TYPE_CHECKING

import click

from tokiod import __version__
from tokiod.archive.lock import AlreadyRunning, lasting_owner
from tokiod.archive.mount import check_mounted
from tokiod.cli import freeze_imports
from tokiod.cli.common.base import PlainGroup, host_option, version_option
from tokiod.cli.common.examples import examples
from tokiod.cli.common.roles import check_writers_host, other_role, role
from tokiod.cli.common.start import process_options
from tokiod.runtime.process_setup import keep_freed_memory, raise_descriptor_limit

if TYPE_CHECKING:
    from tokiod.cli.common.start import Start
    from tokiod.config.schema import Config
    from tokiod.runtime.service import Service


@click.group(cls=PlainGroup, modules=("agent", "check", "demo", "keygen"), epilog=examples("tokiod check", "tokiod run"))
@version_option
def main() -> None:
    """Archive the telemetry of an HPC centre's storage as TOKIO Time Series files."""


@main.command(epilog=examples("tokiod run --config ./tokiod.toml"))
@process_options(host_option)
def run(start: Start, host_name: str | None) -> None:
    """Run the daemon in the foreground until SIGTERM or Ctrl-C.

    Exit 0 stopped, 2 could not start.
    """
    service, clock = start.service(), start.clock
    config = service.load()
    check_writers_host(config, host_name)
    start.log_config(config)
    check_mounted(config.archive)
    if (owner := lasting_owner(config.archive.lock)) is not None:
        raise AlreadyRunning(f"process {owner} already writes to {config.archive.root}; stop it first")
    arguments = ["--log-level", start.log_level] if start.log_level else []
    arguments += ["--log-format", start.log_format] if start.log_format else []
    arguments += [] if "Simulated" not in type(clock).__name__ else ["--clock", str(clock)]
    from tokiod.supervisor.supervisor import Supervisor  # noqa: PLC0415 - the other processes do not need it

    freeze_imports()
    asyncio.run(Supervisor(start.config_path, arguments, service.notifier, clock, start.set_level).run())


@main.command(epilog=examples("tokiod writer"))
@process_options(host_option)
def writer(start: Start, host_name: str | None) -> None:
    """Run the writer alone. `tokiod run` starts it.

    Exit 0 stopped, 1 the ledger was lost or is not available: start it again, 2 could not start.
    """
    service = start.service()
    if start.parent is None:
        config = service.load()
        check_writers_host(config, host_name)
        start.log_config(config)
    raise_descriptor_limit()
    from tokiod.writer.process import run as write  # noqa: PLC0415 - HDF5 stays out of the other processes

    service.catch_signals()
    freeze_imports()
    write(service, start.clock)


@main.command(epilog=examples("tokiod collectors", "tokiod collectors --host zone-b"))
@process_options(host_option)
def collectors(start: Start, host_name: str | None) -> None:
    """Run the collectors alone. `tokiod run` starts them.

    On a [[host]] that is not the writer's, they collect the sources of that host, as the daemon asks for them (docs/hosts.md).

    Exit 0 stopped, 2 could not start.
    """
    service = start.service()
    if start.parent is None:
        config = service.load()
        host = role(config, host_name)
        start.log_config(config, host)
        if host is not None and not host.is_writers:
            from tokiod.polling.hosts.host_process import run as answer  # noqa: PLC0415 - as above

            freeze_imports()
            answer(service, partial(other_role, host.name), start.clock, __version__)
            return
    from tokiod.polling.process import run as collect  # noqa: PLC0415 - as above

    if start.parent is None:
        from tokiod.supervisor.health import serve_unit_health  # noqa: PLC0415 - `tokiod run` serves for its children

        service = serve_unit_health(service, start.clock)
    freeze_imports()
    collect(service, start.clock)


@main.command(epilog=examples("tokiod feed"))
@process_options()
def feed(start: Start) -> None:
    """Run the feed alone, which serves the subscribers. `tokiod run` starts it.

    Exit 0 stopped, 1 used too much memory: start it again, 2 could not start.
    """
    from tokiod.feed_proxy.process import run as forward  # noqa: PLC0415 - as above

    forward(_begun(start))


@main.command(epilog=examples("tokiod hub"))
@process_options()
def hub(start: Start) -> None:
    """Run the hub alone, which asks compute nodes.

    Their agents connect to it. `tokiod run` starts it where [hub] has an endpoint.

    Exit 0 stopped, 1 used too much memory: start it again, 2 could not start.
    """
    from tokiod.hub.process import run as serve  # noqa: PLC0415 - as above

    serve(_begun(start), start.clock)


@main.command(epilog=examples("tokiod relay"))
@process_options()
def relay(start: Start) -> None:
    """Run the relay alone, to which other hosts connect.

    It passes their messages on to the collectors (docs/hosts.md). `tokiod run` starts it where there is another [[host]].

    Exit 0 stopped, 1 used too much memory: start it again, 2 could not start.
    """
    from tokiod.polling.hosts.relay import run as serve  # noqa: PLC0415 - as above

    serve(_begun(start))


@main.command(epilog=examples("tokiod web"))
@process_options()
def web(start: Start) -> None:
    """Serve the archive over HTTP, read-only. No daemon is needed.

    Exit 0 stopped, 2 could not start.
    """
    from tokiod.web.process import run as serve  # noqa: PLC0415 - as above

    freeze_imports()
    serve(start.service(), start.clock)


@main.command(epilog=examples("tokiod sink kafka"))
@click.argument("name")
@process_options()
def sink(start: Start, name: str) -> None:
    """Send what the archive stores to a sink.

    NAME is that of its section. It needs no daemon: it follows the change log, reads the rows from the files, and writes neither ledger
    nor archive. See docs/sinks.md.

    Exit 0 stopped, 2 could not start, 3 removed by a reload.
    """
    keep_freed_memory(8)
    from tokiod.forwarding.process import run as forward  # noqa: PLC0415 - as above

    freeze_imports()
    forward(name, start.service(), start.clock)


def _begun(start: Start) -> Service[Config]:
    """Return the service of a process with a loop of its own, once everything is imported."""
    service = start.service()
    if start.parent is None:
        start.log_config(service.load())
    service.catch_signals()
    freeze_imports()
    return service


if __name__ == "__main__":
    sys.exit(main(prog_name="tokiod"))
