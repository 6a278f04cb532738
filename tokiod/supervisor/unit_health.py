"""What a process says of itself to systemd, kept for whoever asks by HTTP: the collectors as a unit of their own serve their health."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tokiod.runtime.sd_notify import Notifier
from tokiod.supervisor.child_process import WATCHDOG
from tokiod.supervisor.metrics_http import Health, serve

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokiod.clock import Clock
    from tokiod.config.load import Config


@dataclass(slots=True)
class Heard(Notifier):
    """Tells whoever listens, and remembers it."""

    is_ready: bool = False
    told_at: float = field(default_factory=time.monotonic)

    def health(self) -> Health:
        """Say how the process does, by what it said last; from any thread."""
        silent = time.monotonic() - self.told_at
        alive = silent < (self.watchdog or WATCHDOG)
        reason = "" if alive and self.is_ready else f"no progress for {silent:.0f} s" if self.is_ready else "it is starting"
        return Health(alive, self.is_ready, reason)

    def _tell(self, **fields: str) -> None:
        self.is_ready = self.is_ready or "READY" in fields
        self.told_at = time.monotonic() if fields.keys() & {"WATCHDOG", "READY"} else self.told_at
        super(Heard, self)._tell(**fields)


def serving(load: Callable[[], Config], notifier: Notifier, clock: Clock) -> tuple[Callable[[], Config], Notifier]:
    """Serve metrics and health until the process ends, if the configuration has metrics.

    Returns the two that the process is to use instead: what it reads again is served, what it tells is health. Raises as load().
    """
    heard = Heard(notifier.channel, notifier.watchdog)
    server = serve(load(), heard.health, clock)
    if server is None:
        return load, notifier

    def loaded() -> Config:
        config = load()
        server.reload(config)
        return config

    return loaded, heard
