"""Seal days of an archive that no writer has open, as the writer does: with the days beside them that must change for it."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from sinks.tts.day_files import DayFiles
from sinks.tts.sink import TtsSink
from tokiod.archive.layout import daily
from tokiod.errors import TokiodError
from tokiod.sink import QuarantinedFile
from tokiod.writer.sink_options import max_rates, steps, units

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tokiod.clock import Clock
    from tokiod.config.schema import Config


def seal_days(config: Config, clock: Clock, days: Iterable[tuple[str, int]]) -> None:
    """Seal the files of systems that hold an epoch second. The caller holds the archive's lock.

    Raises OSError, or TokiodError for a file that can't be read; the files before it are sealed.
    """
    layout = daily(config.calendar, config.archive.file)
    columns = config.archive.max_columns
    with closing(
        TtsSink(DayFiles(layout, clock, max_columns=columns, units=units(config), steps=steps(config), max_rates=max_rates(config)))
    ) as sink:
        for system, time in days:
            try:
                sink.seal(system, time)
            except ValueError as error:
                raise TokiodError(str(error)) from error
            for one in [*sink.run_maintenance(), *sink.seal_reopened()]:
                if one.error is not None:
                    raise one.error if isinstance(one.error, OSError) else TokiodError(f"{one.path}: {one.error}")
            for failed in sink.commit():
                aside = f"; it was quarantined as {failed.aside}" if isinstance(failed, QuarantinedFile) and failed.aside else ""
                raise TokiodError(f"{failed.path}: {failed.reason.removeprefix(f'{failed.path}: ')}{aside}")
