"""python -m tokiod.simulator: a source of a simulated site, until SIGTERM."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tokiod.clock import SimulatedClock
from tokiod.errors import TokiodError
from tokiod.runtime.process_setup import die_with_parent
from tokiod.simulator import fake_commands as commands
from tokiod.simulator.gpfs import Mmperfmon
from tokiod.simulator.jobs.work import NAME, JobCommands
from tokiod.simulator.lustre import LustreCommands
from tokiod.simulator.site import STEP, Site
from tokiod.units import Duration

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


def _seconds(text: str) -> int:
    return int(Duration.parse(text))


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


_LISTEN = click.option("--listen", type=_address, metavar="HOST:PORT", required=True, help="Address to listen on.")
_BIN = click.option("--bin", "directory", type=click.Path(path_type=Path), required=True, help="Directory for the programs.")
_CLOCK = click.option("--clock", type=SimulatedClock.parse, metavar="EPOCH@ORIGINxRATE", required=True, help="The simulation's clock.")
_SAVED = click.Path(path_type=Path, exists=True, dir_okay=False)
_SITE = click.option("--site", "saved", type=_SAVED, required=True, help="A saved site.")


@click.group()
@click.option("--parent", type=int, hidden=True, help="End when this process ends.")
def simulator(parent: int | None) -> None:
    """Simulate the monitoring systems of a site."""
    if parent is not None:
        die_with_parent(parent)


@simulator.command()
@click.option("--database", type=click.Path(path_type=Path, dir_okay=False), required=True, help="SQLite file; created or continued.")
@_CLOCK
@click.option("--site", "saved", type=_SAVED, help="A saved site (JSON) instead of the options below.")
@click.option("--seed", default=1, show_default=True)
@click.option("--osts", default=24, show_default=True)
@click.option("--osss", default=24, show_default=True)
@click.option("--mdts", default=2, show_default=True)
@click.option("--timezone", default="America/Los_Angeles", show_default=True, help="IANA zone of the database's datetimes.")
@click.option("--filesystem", default="snx1", show_default=True)
@click.option("--history", type=_seconds, metavar="SPAN", default="2h", show_default=True, help="Past before the clock's EPOCH.")
@click.option("--growth", type=_seconds, metavar="SPAN", help="When the last OST appears, after the first sample. [default: at once]")
@click.option("--trouble/--no-trouble", default=True, show_default=True, help="Late rows, resets, dips, gaps, NULLs.")
def lmt(database: Path, clock: SimulatedClock, saved: Path | None, history: int, **sizes: Any) -> None:
    """Keep an LMT database in SQLite that grows every 5 s of the clock."""
    from tokiod.simulator.lmt.database import simulate  # noqa: PLC0415 - each kind starts alone, and often in tests

    def site() -> Site:
        return Site.read(saved) if saved else Site(epoch=(int(clock.epoch) - history) // STEP * STEP, **sizes)

    _run(lambda: simulate(database, site(), clock))


@simulator.command()
@_LISTEN
@_CLOCK
@_SITE
def collectd(listen: tuple[str, int], clock: SimulatedClock, saved: Path) -> None:
    """Serve collectd's documents as Elasticsearch does."""
    from tokiod.simulator.elastic.server import serve  # noqa: PLC0415 - as above

    _run(lambda: serve(Site.read(saved), clock, *listen))


@simulator.command()
@_LISTEN
@_CLOCK
@_SITE
def esnet(listen: tuple[str, int], clock: SimulatedClock, saved: Path) -> None:
    """Serve the rates of routers' interfaces as ESnet does."""
    from tokiod.simulator.esnet.server import serve  # noqa: PLC0415 - as above

    _run(lambda: serve(Site.read(saved), clock, *listen))


@simulator.command()
@_BIN
@_CLOCK
@_SITE
def mmperfmon(directory: Path, clock: SimulatedClock, saved: Path) -> None:
    """Write a program mmperfmon to a directory and serve its calls."""
    _run(lambda: commands.serve(Mmperfmon(Site.read(saved)), clock, ("mmperfmon",), directory))


@simulator.command()
@_BIN
@_CLOCK
@_SITE
def lustre(directory: Path, clock: SimulatedClock, saved: Path) -> None:
    """Write programs lfs and lctl to a directory and serve their calls."""
    _run(lambda: commands.serve(LustreCommands(Site.read(saved)), clock, ("lfs", "lctl"), directory))


@simulator.command()
@_BIN
@_CLOCK
@_SITE
def jobs(directory: Path, clock: SimulatedClock, saved: Path) -> None:
    """Write a program lctl-jobs, lctl on any server, to a directory and serve its calls."""
    _run(lambda: commands.serve(JobCommands(Site.read(saved)), clock, (NAME,), directory))


@simulator.command()
@click.option("--keys", type=click.Path(path_type=Path, file_okay=False), required=True, help="Directory of keys; made if it is missing.")
@click.option("--hub", metavar="tcp://HOST:PORT", required=True, help="The hub that the agents connect to.")
@_CLOCK
@_SITE
def nodes(keys: Path, hub: str, clock: SimulatedClock, saved: Path) -> None:
    """Run the agents of compute nodes, with known rows."""
    from tokiod.simulator.nodes import report  # noqa: PLC0415 - as above

    _run(lambda: report(Site.read(saved), clock, keys, hub))


def _run(forever: Callable[[], Coroutine[Any, Any, None]]) -> None:
    try:
        asyncio.run(_until_terminated(forever()))
    except (OSError, TokiodError, ValueError, KeyError) as error:
        raise click.ClickException(str(error)) from None


async def _until_terminated(forever: Any) -> None:
    task = asyncio.ensure_future(forever)
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, task.cancel)
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()


if __name__ == "__main__":
    simulator()
