"""What a [[source]] of this kind takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from tokiod.collector import SavedOptions, SourceConfig
from tokiod.errors import nearest
from tokiod.job_columns import NODES_SUFFIX
from tokiod.option import option
from tokiod.tts.schema import DATASETS
from tokiod.units import Duration
from tokiod.window_data import JOB_TABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

GROUP = "nodes"
STEP_SECONDS = 60
"""Of the rows that the agents make."""
KEPT_SECONDS = 3600
"""How long agents keep their rows."""
METRICS = tuple(name.partition("/")[2] for name in DATASETS if name.startswith(f"{GROUP}/"))
DEFAULT = (
    "cpu_user", "cpu_system", "cpu_idle", "cpu_iowait", "load_1min", "threads", "uptime", "mem_total", "mem_available", "mem_cached",
    "mem_dirty", "swap_free", "oom_kills", "major_page_faults", "disk_read", "disk_written", "disk_busy", "net_received", "net_sent",
    "tcp_retransmitted", "fabric_received", "fabric_sent", "fabric_receive_errors", "lustre_read", "lustre_written", "lustre_open",
    "energy_package", "energy_dram", "temperature", "node_power", "gpu_busy", "gpu_mem_used", "gpu_power",
)  # fmt: skip


class Config(SourceConfig, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """The compute nodes whose agents report to the hub of this configuration."""

    needs_hub: ClassVar[bool] = True
    tables: ClassVar[frozenset[str]] = frozenset({JOB_TABLE})
    selected_by: ClassVar[tuple[str, ...]] = ("metrics",)

    metrics: Annotated[
        tuple[str, ...],
        option(
            "The metrics that are stored, of those in docs/sensors.md that are not of jobs. Nodes without a sensor for one have no cells "
            "of it.",
            '["cpu_user", "mem_available", "net_sent"]',
            values="at least one metric",
        ),
    ] = DEFAULT
    retention: Annotated[
        Duration, option("How far back gaps are filled: agents keep one hour in memory.", values="at least one window, at most 1h")
    ] = Duration(KEPT_SECONDS)
    recount: Annotated[
        tuple[Duration, ...],
        option(
            "Times after storing a window at which the hub is asked how many nodes can report it by then. A window with more nodes is "
            "collected again.",
            values="[] for never",
        ),
    ] = (Duration(300), Duration(1200), Duration(3000))

    @property
    def step(self) -> int:
        """Seconds of a row of the agents."""
        return STEP_SECONDS

    def datasets(self) -> frozenset[str]:
        """Return the names of the configured datasets."""
        return frozenset(f"{GROUP}/{name}" for name in self.metrics)

    def reporters(self) -> frozenset[str]:
        """Return the hub: each source of its nodes has all of their jobs."""
        return frozenset({"the hub"})

    def faults(self) -> list[str]:
        """Return the errors of metrics and of the system."""
        return list(self._faults())

    def _faults(self) -> Iterator[str]:
        if not self.system.endswith(NODES_SUFFIX):
            yield f"system: expected a name that ends in {NODES_SUFFIX}, as in {self.system}{NODES_SUFFIX}: nodes have files of their own"
        if not self.metrics:
            yield "metrics: at least one metric is required"
        for name in self.metrics:
            if name not in METRICS:
                yield f"metrics: unknown metric {name!r}{nearest(name, METRICS)}"
        if self.retention > KEPT_SECONDS:
            yield f"retention: agents keep {KEPT_SECONDS} s, got {self.retention} s"


class Saved(SavedOptions, kw_only=True, frozen=True):
    """There are no saved files of nodes."""

    no_files: ClassVar[str] = (
        "kind nodes has no saved files: the agents keep the last hour in memory, and the hub stores nothing; a [[source]] of this kind "
        "archives them, and `tokioctl export` writes them to files"
    )

    @property
    def step(self) -> int:
        """Seconds of a row of the agents."""
        return STEP_SECONDS

    def datasets(self) -> frozenset[str]:
        """Return all datasets of nodes."""
        return frozenset(f"{GROUP}/{name}" for name in METRICS)
