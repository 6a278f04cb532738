"""The health of the daemon, as /healthz and /readyz report it.

The supervisor derives it from its child processes. The collectors as a unit of their own derive it from what they report to systemd.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from tokiod.runtime.sd_notify import Notifier
from tokiod.runtime.service import Service

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tokiod.clock import Clock
    from tokiod.config.schema import Config

WATCHDOG_SECONDS = 30.0
"""Seconds without a report of progress after which a process counts as hung, where systemd sets no limit."""


class Health(msgspec.Struct, frozen=True):
    """alive: the processes make progress; ready: the daemon has started; reason: why not; restarts: of each process so far."""

    alive: bool
    ready: bool
    reason: str = ""
    restarts: Mapping[str, int] = msgspec.field(default_factory=dict)


class UnitHealth(Notifier):
    """A notifier that also remembers what it sent."""

    is_ready: bool = False
    notified_at: float = msgspec.field(default_factory=time.monotonic)

    def health(self) -> Health:
        """Return the health of this process by its last notification; from any thread."""
        silent = time.monotonic() - self.notified_at
        alive = silent < (self.watchdog or WATCHDOG_SECONDS)
        reason = "" if alive and self.is_ready else f"no progress for {silent:.0f} s" if self.is_ready else "starting"
        return Health(alive, self.is_ready, reason)

    def _send(self, **fields: str) -> None:
        self.is_ready = self.is_ready or "READY" in fields
        self.notified_at = time.monotonic() if fields.keys() & {"WATCHDOG", "READY"} else self.notified_at
        super()._send(**fields)


def serve_unit_health(service: Service[Config], clock: Clock) -> Service[Config]:
    """Serve metrics and health of this process until it ends, if the configuration has metrics.

    Returns the service that the process must use instead: it passes each new configuration and each notification on to the server. Raises
    what load() raises.
    """
    config, notifier = service.load(), service.notifier
    if config.metrics is None:
        return service
    from tokiod.supervisor.metrics_http import MetricsServer  # noqa: PLC0415 - only with metrics in the configuration

    unit = UnitHealth(notifier.channel, notifier.watchdog)
    server = MetricsServer(config.metrics.address, config, unit.health, clock)
    server.open()

    def load_and_serve() -> Config:
        new = service.load()
        server.reload(new)
        return new

    return Service(load_and_serve, unit)
