"""Where one job stands among earlier jobs of the same application: pytokio's UMAMI, metric by metric."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

QUARTILES = (25, 50, 75, 100)
RATINGS = ("best", "good", "poor", "worst")
SECONDS = "job_seconds"
"""How long a job ran, which is known without any file."""


class Quantity(NamedTuple):
    """What is compared of jobs: a key of theirs, its label, and whether a large value is a good one."""

    key: str
    label: str
    big_is_good: bool


QUANTITIES = (
    Quantity(SECONDS, "job time (s)", big_is_good=False),
    Quantity("fs_tot_gibs_read", "read (GiB)", big_is_good=True),
    Quantity("fs_tot_gibs_written", "written (GiB)", big_is_good=True),
    Quantity("fs_max_oss_cpu", "largest OSS CPU load (%)", big_is_good=False),
    Quantity("fs_ave_oss_cpu", "mean OSS CPU load (%)", big_is_good=False),
    Quantity("fs_max_mds_cpu", "largest MDS CPU load (%)", big_is_good=False),
    Quantity("fs_ave_mds_cpu", "mean MDS CPU load (%)", big_is_good=False),
    Quantity("fs_tot_open_ops", "opens", big_is_good=False),
    Quantity("fs_tot_getattr_ops", "getattrs", big_is_good=False),
    Quantity("fshealth_ost_most_full_pct", "most full OST (%)", big_is_good=False),
)
"""Those of pytokio's example that the archive has, the time and the transfers."""


@dataclass(frozen=True, slots=True)
class UmamiMetric:
    """A metric of jobs, of which the last one is compared. values: None where missing.

    timestamps: when they started, UTC epoch seconds, oldest first; big_is_good: whether a large value is a good one.
    """

    timestamps: list[int]
    values: list[float | None]
    label: str
    big_is_good: bool

    @property
    def value(self) -> float | None:
        """That of the job."""
        return self.values[-1]

    @property
    def percentiles(self) -> tuple[float, ...] | None:
        """The quartiles and the maximum of the earlier jobs, None if none of them has a value."""
        known = [value for value in self.values[:-1] if value is not None]
        return tuple(float(one) for one in np.percentile(known, QUARTILES)) if known else None

    @property
    def quarter(self) -> int | None:
        """In which quarter of the earlier jobs the job is, 0 to 3, as pytokio colours it; above their maximum it is in the last one."""
        value, percentiles = self.value, self.percentiles
        if value is None or percentiles is None:
            return None
        return next((number for number, most in enumerate(percentiles) if value <= most), len(QUARTILES) - 1)

    @property
    def rating(self) -> str | None:
        """One of RATINGS."""
        if self.quarter is None:
            return None
        return RATINGS[len(RATINGS) - 1 - self.quarter if self.big_is_good else self.quarter]


@dataclass(frozen=True, slots=True)
class Umami:
    """The metrics of a job and of the jobs before it, by key."""

    metrics: dict[str, UmamiMetric]

    def to_dict(self) -> dict[str, Any]:
        """Return timestamps, values, label and big_is_good of each metric, as pytokio's to_dict."""
        return {key: asdict(metric) for key, metric in self.metrics.items()}

    def by_time(self) -> dict[str, dict[str, float | None]]:
        """Return the values of each metric by the time of the job as text, sorted: what pytokio's to_json writes."""
        found: dict[str, dict[str, float | None]] = {}
        for key, metric in sorted(self.metrics.items()):
            for time, value in zip(metric.timestamps, metric.values, strict=True):
                found.setdefault(str(time), {})[key] = value
        return dict(sorted(found.items()))


def umami(jobs: Iterable[Mapping[str, Any]]) -> Umami:
    """Return the metrics of jobs, oldest first, the job itself last: dicts with the keys of `tokioctl job --ost`.

    Metrics that the job itself does not have are left out.
    """
    rows = [{**job, SECONDS: float(job["_datetime_end"] - job["_datetime_start"])} for job in jobs]
    times = [int(row["_datetime_start"]) for row in rows]
    return Umami(
        {
            one.key: UmamiMetric(times, [_float(row.get(one.key)) for row in rows], one.label, one.big_is_good)
            for one in QUANTITIES
            if rows and rows[-1].get(one.key) is not None
        }
    )


def _float(value: float | None) -> float | None:
    return None if value is None else float(value)
