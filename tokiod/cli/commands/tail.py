"""`tokioctl tail`: print the feed line by line; missed data is read from the files."""

from __future__ import annotations

import csv
import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec
import numpy as np

from tokiod.bus.curve import ClientKeys
from tokiod.cli.commands.completion import topic_names
from tokiod.cli.common.base import INTERRUPTED, Failed, clock_option, config_option
from tokiod.cli.common.examples import examples
from tokiod.cli.common.lookup import check_system, instead
from tokiod.cli.common.output import echo, echo_json, printable
from tokiod.cli.common.times import moment
from tokiod.config import load as configuration
from tokiod.subscribe.catch_up import Archive
from tokiod.subscribe.subscriber import Gap, Stalled, Subscriber, Update
from tokiod.tts.schema import UNITS
from tokiod.window import iso

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tokiod.clock import Clock
    from tokiod.config.schema import Config
    from tokiod.subscribe.subscriber import Event

SILENCE_SECONDS = 5.0


class Line(msgspec.Struct, frozen=True):
    """A line: the changed cells of a dataset of a system, with `step` seconds between its rows.

    watermark: no data of the source is missing before it; caught_up: read from the file because the feed message was missed.
    cells: time, column and value of each, None if the cell is missing again. Times are UTC epoch seconds.
    """

    system: str
    dataset: str
    step: int
    watermark: int
    caught_up: bool
    cells: list[tuple[int, str, float | None]]


@click.command("tail", epilog=examples("tokioctl tail cscratch/datatargets/readbytes", "tokioctl tail --json"))
@click.argument("topic", default="", metavar="[SYSTEM[/DATASET]]", shell_complete=topic_names)
@click.option("--since", metavar="TIME|SPAN", help="Start time, such as 1h (before now), today or 2018-01-28T08:00:00Z.")
@click.option("--key", type=click.Path(path_type=Path), help="Your secret key (`tokiod keygen`), for a feed with keys.")
@click.option("--server-key", type=click.Path(path_type=Path), help="The feed's public key, together with --key.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV: one line per cell, times in ISO 8601 in UTC.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON per message, with its cells, times in UTC epoch seconds.")
@config_option
@clock_option
def tail_command(
    config_path: Path, clock: Clock, topic: str, since: str | None, key: Path | None, server_key: Path | None, *,
    as_json: bool, as_csv: bool,
) -> None:  # fmt: skip
    """Print what the daemon stores, live, until Ctrl-C.

    SYSTEM/DATASET selects what is printed, by its beginning, e.g. cscratch/datatargets/; the default is everything. Missed messages are
    reported on stderr and read from the files. An empty value means the cell is missing again. Without a daemon the command waits for
    one. Exit 0 output was closed, 2 could not start, 130 ended by Ctrl-C.
    """
    if as_json and as_csv:
        raise Failed("use either --json or --csv")
    config = configuration.load(config_path)
    begin = None if since is None else moment("--since", since, config.calendar.zone, clock.time())
    prefixes = [_prefix(config, topic)]
    output = _json if as_json else _csv_lines() if as_csv else _plain
    keys, archive = _keys(config, key, server_key), Archive.of(config, clock)
    endpoint = config.feed.local_endpoint
    _check_access(endpoint)
    try:
        with Subscriber(endpoint, prefixes, silence=SILENCE_SECONDS, archive=archive, since=begin, keys=keys) as subscriber:
            _follow(subscriber, output, endpoint)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _check_access(endpoint: str) -> None:
    """Raise Failed for a Unix socket that the user may not use: ZeroMQ would wait for it in silence."""
    path = Path(endpoint.removeprefix("ipc://"))
    if endpoint.startswith("ipc://"):
        try:
            path.stat()
        except FileNotFoundError:
            return
        except OSError as error:
            raise Failed(f"no access to the feed at {path}: {error.strerror}") from None
        if not os.access(path, os.W_OK):
            raise Failed(f"no permission to subscribe to the feed at {path}: its group may, see docs/security.md")


def _follow(subscriber: Iterable[Event], output: Callable[[Update], None], endpoint: str) -> None:
    waits = False
    for event in subscriber:
        match event:
            case Update():
                output(event)
                sys.stdout.flush()
            case Gap(since=int()):
                echo(_gap(event), err=True)
            case Stalled() if not waits:
                echo(f"no messages from {endpoint}: the daemon is down or has not stored data yet; waiting", err=True)
        waits = isinstance(event, Stalled)


def _keys(config: Config, own: Path | None, server: Path | None) -> ClientKeys | None:
    if own is not None and server is not None:
        return ClientKeys.read(server, own)
    if own is not None or server is not None or config.feed.secret_key_file is not None:
        raise Failed("the feed accepts only known keys: give both --key (your secret key) and --server-key (its public key)")
    return None


def _prefix(config: Config, topic: str) -> str:
    """Return what the messages begin with. Raises Failed where no source fills it: the command would wait for ever."""
    if not topic:
        return topic
    system, _, beginning = topic.partition("/")
    check_system(config, system)
    filled = {dataset for source in config.source if source.system == system for dataset in source.datasets()}
    if not any(dataset.startswith(beginning) for dataset in filled):
        raise Failed(f"{system} has no {beginning!r}{instead(beginning, filled)}")
    return f"{system}/{beginning}"


def _gap(gap: Gap) -> str:
    missed = "a new writer" if gap.missed is None else f"{gap.missed} messages missed"
    return f"{gap.system}/{gap.dataset}: {missed}; reading the file from {iso(min(gap.since or 0, gap.watermark))} on"


def _plain(update: Update) -> None:
    batch = update.batch
    values = batch.value[~np.isnan(batch.value)]
    text = f"{len(batch)} cells" + (f", {len(batch) - len(values)} missing" if len(values) < len(batch) else "")
    text += f", sum {values.sum():.6g} {UNITS.get(batch.dataset, '')}".rstrip() + (", caught up" if update.caught_up else "")
    echo(f"{iso(batch.time.min())} +{int(np.ptp(batch.time)) + batch.step}s {update.system}/{batch.dataset}: {text}")


def _json(update: Update) -> None:
    line = Line(update.system, update.batch.dataset, update.batch.step, update.watermark, update.caught_up, _cells(update))
    echo_json(line)


def _csv_lines() -> Callable[[Update], None]:
    lines = csv.writer(sys.stdout, lineterminator="\n")
    lines.writerow(("time", "system", "dataset", "column", "value"))

    def write(update: Update) -> None:
        for time, column, value in _cells(update):
            lines.writerow((iso(time), update.system, update.batch.dataset, printable(column), "" if value is None else value))

    return write


def _cells(update: Update) -> list[tuple[int, str, float | None]]:
    """Return the cells one by one, None for a missing one. This is not on the data path: the cells are printed."""
    batch = update.batch
    names = (batch.columns[column] for column in batch.column.tolist())
    values = (None if math.isnan(value) else value for value in batch.value.tolist())
    return list(zip(batch.time.tolist(), names, values, strict=True))
