"""What a configuration holds. It stops at the mains, the factories and the commands: all others get the values that they need."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from tokiod.change_sink import SinkConfig  # noqa: TC001 - msgspec reads annotations
from tokiod.collector import SourceConfig  # noqa: TC001 - as above
from tokiod.config.hosts import HostConfig  # noqa: TC001 - as above
from tokiod.config.jobs import JobsConfig
from tokiod.config.sections import ArchiveConfig, BusConfig, FeedConfig, HubConfig, MetricsConfig, WebConfig
from tokiod.config.site import SiteConfig
from tokiod.option import option
from tokiod.runtime.secrets import secret
from tokiod.window import Calendar

CONTROL_SOCKET, FEED_INNER_SOCKET, HUB_INNER_SOCKET, RELAY_INNER_SOCKET = "control", "feed.in", "hub", "relay"
"""Names of the daemon's sockets in the directory of the bus."""


class Config(msgspec.Struct, kw_only=True, frozen=True):
    """A site: its IANA time zone, archive, sockets and sources.

    secrets: the directory that the files of secrets are relative to; metrics: None if they are not served.
    """

    timezone: Annotated[
        str,
        option(
            "The time zone of the site. Each file of the archive holds one day, from local midnight to local midnight.",
            '"America/Los_Angeles"',
            values="an IANA name",
        ),
    ]
    archive: ArchiveConfig
    bus: BusConfig = BusConfig()
    feed: FeedConfig = FeedConfig()
    metrics: MetricsConfig | None = None
    hub: HubConfig = HubConfig()
    web: WebConfig = WebConfig()
    site: SiteConfig = SiteConfig()
    jobs: JobsConfig = JobsConfig()
    host: tuple[HostConfig, ...] = ()
    source: tuple[SourceConfig, ...] = ()
    sink: tuple[SinkConfig, ...] = ()
    sink_state: Annotated[
        Path,
        option(
            "The directory in which each sink has a directory of its name, for its cursor and its state.",
            values="an absolute path",
            effect="restart of the sinks",
        ),
    ] = Path("/var/lib/tokiod-sinks")
    secrets: Annotated[
        Path,
        option(
            "The directory of the files with secrets, relative to this file. A file that is not there is looked for in its directory "
            "credentials/, which systemd reads for the units. The files should belong to tokiod's user or root and have mode 0400."
        ),
    ] = Path()
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        option("Minimum log level. `tokiod run --log-level` overrides it.", effect="reload"),
    ] = "info"

    @property
    def calendar(self) -> Calendar:
        """The days of the site."""
        return Calendar(self.timezone)

    @property
    def templates(self) -> tuple[str, ...]:
        """The path templates of all files that commands read: of the archive, and of where it was before."""
        return (self.archive.path, *self.site.archives)

    @property
    def systems(self) -> frozenset[str]:
        """The systems that sources fill, and those that [site] names: their sources may be gone."""
        return frozenset(source.system for source in self.source) | self.site.systems

    @property
    def run(self) -> Path:
        """The directory of what only the daemon's user may reach: that of the bus."""
        return Path(self.bus.endpoint.removeprefix("ipc://")).parent

    @property
    def stages(self) -> Path:
        """The directory of the rings of stages: next to the socket of the feed, whose readers may read it; the private one without it."""
        kind, _, path = self.feed.endpoint.partition("://")
        return Path(f"{path}.stages") if kind == "ipc" else self.run / "stages"

    @property
    def counters(self) -> Path | None:
        """The directory of the files in which the processes count; None where metrics are not served."""
        return None if self.metrics is None else self.run / "metrics"

    @property
    def control(self) -> Path:
        """The Unix socket on which a daemon takes commands of its own user."""
        return self.run / CONTROL_SOCKET

    @property
    def relay_lock(self) -> Path:
        """The file that the one relay of a bus holds an flock on."""
        return self.run / "relay.lock"

    @property
    def collectors_lock(self) -> Path:
        """The file that the one collectors' process of a bus holds an flock on."""
        return self.run / "collectors.lock"

    @property
    def hosts_state(self) -> Path:
        """The file in which the daemon shows the state of the other hosts, next to the rings of stages, whose readers may read it."""
        return self.stages.with_name(f"{self.stages.stem}.hosts")

    @property
    def feed_inner(self) -> str:
        """The endpoint at which the writer publishes to the feed's process. Only the daemon's user may open it."""
        return f"ipc://{self.run / FEED_INNER_SOCKET}"

    @property
    def hub_inner(self) -> str:
        """The endpoint at which the hub answers the sources of kind `nodes`. Only the daemon's user may open it."""
        return f"ipc://{self.run / HUB_INNER_SOCKET}"

    @property
    def relay_inner(self) -> str:
        """The endpoint at which the relay passes messages of other hosts on to the collectors. Only the daemon's user may open it."""
        return f"ipc://{self.run / RELAY_INNER_SOCKET}"

    def secret(self, reference: str) -> str:
        """Read a secret of this site, see tokiod.runtime.secrets."""
        return secret(reference, self.secrets)
