"""`tokioctl plot`: draw a dataset over a span of days as a heat map, to a picture or the terminal."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tokiod.cli.commands.completion import dataset_names, system_or_file_names
from tokiod.cli.common.base import Failed, Finite, clock_option, config_option
from tokiod.cli.common.examples import examples
from tokiod.cli.common.named_files import Limits, NamedFiles, named_files
from tokiod.cli.common.output import echo
from tokiod.cli.common.tables import Printer
from tokiod.reader.stitched import Stitched, stitch
from tokiod.reports.heat_map import CLIP_PERCENT, HeatMap, heat_map
from tokiod.reports.heat_map_text import draw_text
from tokiod.tts.layout import NotLive

if TYPE_CHECKING:
    from tokiod.clock import Clock
    from tokiod.reports.folding import How

WIDTH, HEIGHT = 80, 16
FORMATS = (".png", ".svg", ".pdf")
NO_MATPLOTLIB = "a picture needs matplotlib: pip install 'tokiod[plot]'; without --output the command draws in the terminal"


@click.command(
    "plot",
    epilog=examples(
        "tokioctl plot cscratch datatargets/readbytes",
        "tokioctl plot cscratch datatargets/readbytes --start 30d --fold max --output reads.png",
        "tokioctl plot cscratch:2026-11-20 dataservers/cpuload --dark --output load.svg",
        "tokioctl plot day.hdf5 mdtargets/opens --timezone UTC",
    ),
)
@click.argument("what", metavar="FILE|SYSTEM[:DATE]", shell_complete=system_or_file_names)
@click.argument("dataset", shell_complete=dataset_names)
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="The picture: .png, .svg or .pdf.  [default: the terminal]")
@click.option(
    "--start",
    metavar="TIME|SPAN",
    help="Start time: ISO 8601, local to the site or with an offset, or a time span before now such as 1h or 30d.  [default: midnight of "
    "the day of --end, or the file's]",
)
@click.option("--end", metavar="TIME|SPAN", help="End time (exclusive), formats as --start.  [default: now, or the file's]")
@click.option(
    "--fold",
    type=click.Choice(["mean", "max"]),
    default="mean",
    show_default=True,
    help="What is drawn of several rows or components in one place.",
)
@click.option(
    "--clip",
    type=Finite(0, 100, min_open=True),
    default=CLIP_PERCENT,
    show_default=True,
    metavar="PERCENT",
    help="The scale ends at this percentile of the values above zero; 100: at the largest. Percentages always have 0 to 100.",
)
@click.option("--dark", is_flag=True, help="Draw the picture on a dark background.")
@click.option("--timezone", metavar="ZONE", help="IANA time zone of all times.  [default: the configuration's, else UTC]")
@config_option
@clock_option
def plot_command(
    config_path: Path, clock: Clock, what: str, dataset: str, output: Path | None, fold: How, clip: float, **given: Any
) -> None:
    """Draw DATASET over any span of days as a heat map.

    DATE: YYYY-MM-DD at the site, today or yesterday. SYSTEM without DATE, --start and --end, the current day.

    The map shows components over time; above it is the sum of all components in complete rows (of percentages the mean), next to it each
    component over the whole span. All have the same units and show the same of what they fold: its mean, or its maximum with --fold max.
    Cells without a value are blank in the terminal and hatched in a picture. Exit 0 drawn, 2 failed.
    """
    if output is not None and output.suffix not in FORMATS:
        raise Failed(f"--output: {output} must end in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}")
    limits = Limits(given["start"], given["end"], given["timezone"])
    picture = _heat_map(named_files(what, limits, config_path, clock), dataset, fold)
    if output is not None:
        _save(picture, output, clip, dark=given["dark"])
        return
    console = Printer(width=None if sys.stdout.isatty() else WIDTH, highlight=False)
    console.print(draw_text(picture, min(console.width, 200), HEIGHT, clip), soft_wrap=True)


def _heat_map(files: NamedFiles, dataset: str, fold: How) -> HeatMap:
    title = f"{files.label} {dataset}"
    try:
        matrix = stitch(files.paths, dataset, files.span)
        with click.progressbar(length=matrix.rows, label="reading", file=sys.stderr, hidden=not _is_long(matrix)) as bar:
            return heat_map(matrix, fold, title, files.zone, progress=bar.update)
    except NotLive as error:
        raise Failed(str(error)) from error
    except PermissionError:
        raise
    except OSError as error:
        raise Failed(f"{error.filename or title}: {error.strerror or error}") from error


def _is_long(matrix: Stitched) -> bool:
    """Return whether reading takes long enough for a progress bar."""
    return sys.stderr.isatty() and len(matrix.stretches) > 1


def _save(picture: HeatMap, output: Path, clip: float, *, dark: bool) -> None:
    # matplotlib warns of a home directory that it can't write to, and draws all the same.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    try:
        from tokiod.reports.heat_map_figure import save_figure  # noqa: PLC0415 - matplotlib, an extra

        save_figure(picture, output, clip, dark=dark)
    except ImportError:
        raise Failed(NO_MATPLOTLIB) from None
    except OSError as error:
        raise Failed(f"--output: {output}: {error.strerror or error}") from error
    echo(f"{output}: {picture.filled} of {picture.rows * len(picture.columns)} cells filled")
