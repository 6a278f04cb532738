"""`tokioctl plot`: draw a day of a dataset as a heat map, to a picture or the terminal."""

from __future__ import annotations

import datetime as dt
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np

from tokiod.cli.commands.completion import dataset_names, system_or_file_names
from tokiod.cli.common.base import Failed, clock_option, config_option
from tokiod.cli.common.lookup import instead
from tokiod.cli.common.output import echo
from tokiod.cli.common.tables import Printer
from tokiod.cli.common.times import epoch_or_ago, zone_of
from tokiod.config import load as configuration
from tokiod.errors import ConfigError
from tokiod.reports.heat_map import HeatMap, draw_figure, draw_text
from tokiod.tts.layout import NotLive, open_for_reading
from tokiod.tts.read import Reader
from tokiod.window import Calendar

if TYPE_CHECKING:
    from tokiod.clock import Clock

WIDTH, HEIGHT = 80, 24
FORMATS = (".png", ".svg", ".pdf")
NO_MATPLOTLIB = "a picture needs matplotlib: pip install 'tokiod[plot]'; without --output the command draws in the terminal"


@click.command("plot")
@click.argument("what", metavar="FILE|SYSTEM[:DATE]", shell_complete=system_or_file_names)
@click.argument("dataset", shell_complete=dataset_names)
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="The picture: .png, .svg or .pdf.  [default: the terminal]")
@click.option(
    "--start",
    metavar="TIME|SPAN",
    help="Start time: ISO 8601, local to the site or with an offset, or a time span before now such as 1h.  [default: the file's]",
)
@click.option("--end", metavar="TIME|SPAN", help="End time (exclusive), formats as --start.  [default: the file's, or now]")
@click.option("--timezone", metavar="ZONE", help="IANA time zone of all times.  [default: the configuration's, else UTC]")
@config_option
@clock_option
def plot_command(
    config_path: Path, clock: Clock, what: str, dataset: str, output: Path | None, start: str | None, end: str | None, timezone: str | None
) -> None:
    """Draw DATASET of a file, or of a SYSTEM's day, as a heat map.

    DATE: YYYY-MM-DD at the site, today by default. The map shows components over time, the sum over all components above it, and each
    component's sum over time next to it (means for values that can't be summed). Missing cells are blank. Exit 0 drawn, 2 failed.
    """
    if output is not None and output.suffix not in FORMATS:
        raise Failed(f"--output: {output} must end in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}")
    path, zone_name = _file(what, config_path, clock)
    zone = zone_of(timezone or zone_name)
    first = 0 if start is None else epoch_or_ago("--start", start, zone, clock.time())
    last = int(clock.time()) if end is None else epoch_or_ago("--end", end, zone, clock.time())
    picture = _picture(path, dataset, zone, first, last)
    if output is not None:
        _save(picture, output)
        return
    console = Printer(width=None if sys.stdout.isatty() else WIDTH, highlight=False)
    console.print(draw_text(picture, min(console.width, 200), HEIGHT), soft_wrap=True)


def _file(what: str, config_path: Path, clock: Clock) -> tuple[Path, str]:
    """Return the named file and the name of the site's time zone."""
    if Path(what).is_file() or "/" in what or what.endswith((".hdf5", ".h5")):
        try:
            return Path(what), configuration.load(config_path).timezone
        except ConfigError:
            return Path(what), "UTC"
    config = configuration.load(config_path)
    system, _, date = what.partition(":")
    systems = {source.system for source in config.source}
    if system not in systems:
        raise Failed(f"{what} is not a file, and {system!r} is an unknown system{instead(system, systems)}")
    calendar = Calendar(config.timezone)
    try:
        day = calendar.day_of_date(dt.date.fromisoformat(date)) if date else calendar.day(int(clock.time()))
    except ValueError:
        raise Failed(f"{date!r} is not a date; write it like 2018-01-28") from None
    return config.archive.file(day, system), config.timezone


def _picture(path: Path, dataset: str, zone: dt.tzinfo, start: int, end: int) -> HeatMap:
    try:
        with Reader(path) as reader:
            known = reader.datasets()
            if dataset not in known:
                raise Failed(f"{path} has no {dataset!r}{instead(dataset, known)}")
            stamps = reader.stamps(dataset)
            time, columns, values = reader.read(dataset, start, end)
        unit = _unit(path, dataset)
    except FileNotFoundError:
        raise Failed(f"{path} does not exist") from None
    except (NotLive, OSError) as error:
        raise Failed(f"{path}: {error}") from error
    if not len(time):
        raise Failed(f"{path} has no rows of {dataset} between --start and --end")
    step = int(stamps[1] - stamps[0]) if len(stamps) > 1 else 86400
    return HeatMap(f"{path.name}: {dataset}", unit, int(time[0]), step, columns, values, zone, _is_amount(dataset, unit))


def _unit(path: Path, dataset: str) -> str:
    with open_for_reading(path) as file:
        text = file[dataset].attrs.get("units", "")
        return text.decode() if isinstance(text, bytes) else str(text)


def _is_amount(dataset: str, unit: str) -> bool:
    """Return whether a cell holds an amount per step, so that cells can be summed over time."""
    return unit == "ops" or (unit == "bytes" and not dataset.partition("/")[2].startswith("mem"))


def _save(picture: HeatMap, output: Path) -> None:
    # matplotlib warns of a home directory that it can't write to, and draws all the same.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    try:
        figure = draw_figure(picture)
    except ImportError:
        raise Failed(NO_MATPLOTLIB) from None
    try:
        figure.savefig(output, dpi=120)
    except OSError as error:
        raise Failed(f"--output: {output}: {error.strerror or error}") from error
    cells = np.count_nonzero(~np.isnan(picture.values))
    echo(f"{output}: {cells} of {picture.values.size} cells filled")
