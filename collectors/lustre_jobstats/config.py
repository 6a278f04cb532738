"""What a [[source]] of this kind and `tokioctl archive` take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

import msgspec

from collectors.lustre_jobstats.job_names import JobNames
from collectors.lustre_jobstats.parse import TARGET_NAME
from tokiod.collector import SavedOptions, SourceConfig
from tokiod.errors import TokiodError
from tokiod.option import option
from tokiod.units import Duration
from tokiod.window_data import JOB_TABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVER = "{server}"
"""In a command: the name of the server."""


class Config(SourceConfig, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """The servers of a Lustre file system, on which lctl is run."""

    selected_by: ClassVar[tuple[str, ...]] = ("servers", "filesystem")
    replayable: ClassVar[bool] = False
    tables: ClassVar[frozenset[str]] = frozenset({JOB_TABLE})

    servers: Annotated[
        tuple[str, ...],
        option(
            "The OSSs and MDSs. They are queried at the same time, and one that does not answer delays and hides no other. What it counted "
            "meanwhile comes with its next answer.",
            '["oss1", "oss2", "mds1"]',
            values="at least one name, each once",
        ),
    ]
    lctl: Annotated[
        tuple[str, ...],
        option(
            "The command lctl, after what runs it on a server, whose name replaces {server}. It must run at most `lctl get_param`, which "
            "needs root on some versions.",
            '["ssh", "-o", "BatchMode=yes", "{server}", "sudo", "-n", "lctl"]',
            values="a command without a shell",
        ),
    ] = ("ssh", "-o", "BatchMode=yes", SERVER, "lctl")
    filesystem: Annotated[str | None, option("The file system, where the servers have targets of several.", '"cscratch"')] = None
    jobid_name: Annotated[
        tuple[str, ...],
        option(
            "How clients make job ids, as `lctl get_param jobid_var jobid_name` prints it there: with jobid_name=%j:%u:%H write that, with "
            "jobid_var=procname_uid write %e.%u. Formats with more codes are tried first: %j alone is any id that no other one matches. An "
            "id that matches none is counted, and kept as it is.",
            '["%j:%u:%H", "%e.%u"]',
            values="at least one format of Lustre's codes %e %g %h %H %j %p %u, also as %.3e and %j?%H",
        ),
    ] = ("%j", "%e.%u")
    cleanup_interval: Annotated[
        Duration,
        option(
            "Lustre's job_cleanup_interval: after this time a server removes an idle job. What the servers report is compared with it.",
            values="at least twice the window",
        ),
    ] = Duration(600)
    command_timeout: Annotated[
        Duration,
        option(
            "Time limit of a command; then it is killed with all processes that it started.",
            values="greater than zero, less than timeout and window",
        ),
    ] = Duration(30)

    @property
    def step(self) -> int:
        """Seconds of a window: each holds what was read at one moment of it."""
        return int(self.window)

    def datasets(self) -> frozenset[str]:
        """Return nothing: what jobs do is a table."""
        return frozenset()

    def reporters(self) -> frozenset[str]:
        """Return the servers, or their parts of the file system."""
        part = f"/{self.filesystem}" if self.filesystem else ""
        return frozenset(server + part for server in self.servers)

    def faults(self) -> list[str]:
        """Return the errors of servers, commands, formats and time limits."""
        return list(self._faults())

    def _faults(self) -> Iterator[str]:
        if not self.servers or not all(self.servers) or len(set(self.servers)) < len(self.servers):
            yield "servers: at least one server is required, each once"
        if any(server.startswith("-") for server in self.servers):
            yield "servers: a name must not begin with '-', or it is an option of the command"
        if not all(self.lctl or ("",)):
            yield 'lctl: expected a command as a list, such as ["ssh", "{server}", "lctl"]'
        elif len(self.servers) > 1 and not any(SERVER in part for part in self.lctl):
            yield "lctl: must contain {server} where there are several servers"
        yield from format_faults(self.jobid_name)
        if 2 * self.window > self.cleanup_interval > 0:
            yield "window: must be at most half of cleanup_interval, or what jobs did before their removal is lost"
        if not 0 < self.command_timeout < min(self.timeout, self.window):
            yield "command_timeout: must be greater than zero, and less than timeout and window"


class Saved(SavedOptions, kw_only=True, frozen=True):
    """How to read saved outputs."""

    tables: ClassVar[frozenset[str]] = frozenset({JOB_TABLE})
    example: ClassVar[str] = "oss1.job_stats.gz"

    step: Annotated[int, msgspec.Meta(ge=1, description="Seconds of a window of the job table.")] = 60
    time: Annotated[
        Annotated[int, msgspec.Meta(ge=0)] | None,
        msgspec.Meta(description="Time of plain outputs, epoch seconds.  [default: that of their files]"),
    ] = None
    filesystem: Annotated[str | None, msgspec.Meta(description="The file system, where the outputs have targets of several.")] = None
    target: Annotated[
        str | None,
        msgspec.Meta(description="The target of outputs without the line that names it, as /proc has them.  [default: of the file's name]"),
    ] = None
    jobid_name: Annotated[tuple[str, ...], msgspec.Meta(description="Formats of job ids, such as %j:%u:%H.")] = ("%j", "%e.%u")
    cleanup_interval: Annotated[int, msgspec.Meta(ge=0, description="Lustre's job_cleanup_interval, seconds.")] = 600

    def datasets(self) -> frozenset[str]:
        """Return nothing: what jobs do is a table."""
        return frozenset()

    def faults(self) -> list[str]:
        """Return the errors of formats, and of the target."""
        is_target = self.target is None or TARGET_NAME.fullmatch(self.target)
        return [*format_faults(self.jobid_name), *([] if is_target else ["target: expected a name such as fs-OST0000"])]


def format_faults(formats: tuple[str, ...]) -> Iterator[str]:
    """Yield the errors of formats of job ids."""
    if not formats:
        yield "jobid_name: at least one format is required"
    try:
        JobNames(formats)
    except TokiodError as error:
        yield f"jobid_name: {str(error).removeprefix('jobid_name ')}"
