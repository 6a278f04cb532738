"""`tokiod agent`: sample the sensors each second, keep the last hour, and answer the hub, in one thread."""

from __future__ import annotations

import gc
import math
import os
import signal
import socket
import sys
from collections import Counter
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

import zmq

from tokiod import __version__
from tokiod.agent.clock_offset import clock_offset, seconds_asleep
from tokiod.agent.keys import read_keys
from tokiod.agent.link import Link
from tokiod.agent.recorder import Recorder
from tokiod.agent.rows import ROW_SECONDS, Rows
from tokiod.agent.sampler import Sampler
from tokiod.agent.sensor import TICK_SECONDS
from tokiod.agent.sensors import sensors_of
from tokiod.agent.tree import Tree

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tokiod.agent.metric import Metric, Value
    from tokiod.agent.sensor import Readings
    from tokiod.agent.settings import Settings
    from tokiod.agent.wire import JobRow

STATUS_SECONDS = 10.0
NOT_SENT = ("lustre_jobs",)
"""Sensors that do not run here: a source of kind lustre_jobstats asks the Lustre servers themselves."""


class NodeRows:
    """The node's rows as the wire sends them. settle: is called before a row is read."""

    def __init__(self, metrics: dict[str, Metric], rows: Rows, settle: Callable[[], None] = lambda: None) -> None:
        self._metrics, self._rows, self._settle = metrics, rows, settle

    def starts(self) -> list[float]:
        """Return the starts of the rows in memory, oldest first."""
        self._settle()
        return self._rows.starts()

    def values(self, start: float) -> tuple[dict[str, Value], dict[str, int]]:
        """Return the values of a row by metric, and how many readings were dropped, by `sensor: reason`."""
        row = self._rows.at(start)
        return row.of_node(self._metrics), {f"{sensor}: {reason}": count for (sensor, reason), count in row.dropped.items()}

    def examples(self, start: float) -> dict[str, str]:
        """Return one example for each `sensor: reason`."""
        return {f"{sensor}: {reason}": example for (sensor, reason), example in self._rows.at(start).examples.items()}

    def jobs(self, start: float) -> Sequence[JobRow]:
        """Return the jobs of a row, those that ended first: the others are in the next row, too."""
        row = self._rows.at(start)
        if row.ended:
            row.sent.add(self._rows.offset)
        return [
            (state.job, state.begin, state.time, state.has_ended, [_short(value) for value in state.values])
            for state in (*row.ended, *row.jobs.values())
        ]


def _short(value: float) -> Value | None:
    """Return a number as JSON writes it in the fewest characters; None for NaN."""
    return None if math.isnan(value) else int(value) if value.is_integer() else value


class Agent:
    """The sampler, the rows and the link of this node."""

    def __init__(
        self,
        settings: Settings,
        root: str,
        time: Callable[[], float],
        monotonic: Callable[[], float],
        asleep: Callable[[], float] = seconds_asleep,
    ) -> None:
        """Read the keys. asleep: for how long the node slept, which monotonic() does not count. Raise SettingsError."""
        keys = read_keys(settings.hub_key_file, settings.key_file)
        self._hub, self._time, self._monotonic = settings.hub, time, monotonic
        self._sampler = Sampler(sensors_of(Tree(root), settings, NOT_SENT))
        metrics = {metric.name: metric for sensor in self._sampler.sensors for metric in sensor.metrics}
        self.rows = Rows(metrics.values())
        self._recorder = Recorder(self._sampler, self.rows, self._report, lambda: clock_offset(time, monotonic, asleep), self._clock_set)
        self._context = zmq.Context()
        node_rows = NodeRows(metrics, self.rows, self._settle)
        self.link = Link(
            self._context, settings.hub, keys, settings.node, os.urandom(8).hex(), __version__, ROW_SECONDS,
            [metric for metric in metrics.values() if not metric.is_of_job], self.rows.job_metrics,
            node_rows, time, monotonic, Random(),  # noqa: S311 - jitter
            node_rows.examples,
        )  # fmt: skip
        self._absent: dict[str, str] = {}
        self._dropped: Counter[tuple[str, str]] = Counter()
        self._log: Callable[[str], None] = lambda _line: None

    def run(self, stopping: Callable[[], bool], notify: Callable[[str], None], log: Callable[[str], None]) -> None:
        """Sample and answer until stopping() is true. notify: sends a line to systemd; log: writes a line to the log."""
        self._log = log
        following = self._monotonic()
        notified, state, is_ready = float("-inf"), "", True
        # What is there now stays: no search for garbage goes through it again.
        gc.freeze()
        notify("READY=1")
        while not stopping():
            now = self._monotonic()
            if now >= following:
                # After a sleep of the machine no tick is made up for.
                following = max(following + TICK_SECONDS, now)
                self._recorder.follow_clock()
                self._recorder.sample(now, self._time())
            self.link.turn(is_ready=is_ready)
            if self.link.state != state:
                state = self.link.state
                log(f"hub {self._hub}: {state}")
            if now - notified >= STATUS_SECONDS:
                notified = now
                notify(f"WATCHDOG=1\nSTATUS=hub: {state}; {self.link.answered} rows sent")
            until = min(following, self.link.next_due())
            is_ready = self._recorder.wait(until - self._monotonic(), self._monotonic, self._time, self.link.filenos())
        notify("STOPPING=1")

    def close(self) -> None:
        """Release the sensors and the connection."""
        self._sampler.close()
        self._context.destroy(linger=0)

    def _settle(self) -> None:
        self._recorder.follow_clock()
        self._recorder.settle()

    def _clock_set(self, seconds: float) -> None:
        self._log(f"the clock was set by {seconds:+.1f} s: the rows of the clock before are dropped")
        self.link.greet_again()

    def _report(self, found: Mapping[str, Readings]) -> None:
        """Write what is absent or dropped to the log, each once."""
        if self._absent != self._sampler.absent:
            for name, reason in self._sampler.absent.items():
                if self._absent.get(name) != reason:
                    self._log(f"sensor {name}: nothing to read: {reason}")
            self._absent = dict(self._sampler.absent)
        for name, readings in found.items():
            for reason, count in readings.drops.items():
                if not self._dropped[name, reason]:
                    self._log(f"sensor {name}: {reason}: {readings.examples.get(reason, '')} (later ones are counted only)")
                self._dropped[name, reason] += count


def run_agent(settings: Settings, root: str, time: Callable[[], float], monotonic: Callable[[], float]) -> None:
    """Run the agent until SIGTERM or SIGINT. Raise SettingsError."""
    signals: list[int] = []
    notify = notifier(os.environ.pop("NOTIFY_SOCKET", ""))
    agent = Agent(settings, root, time, monotonic)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _frame: signals.append(number))
    try:
        agent.run(lambda: bool(signals), notify, _log)
    finally:
        agent.close()


def notifier(address: str) -> Callable[[str], None]:
    """Return what sends a line to systemd (sd_notify(3)); it does nothing where there is no address."""
    if address[:1] not in ("/", "@"):
        return lambda _line: None
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

    def send(line: str) -> None:
        with suppress(OSError):
            channel.sendto(line.encode(), socket.MSG_DONTWAIT, "\0" + address[1:] if address[0] == "@" else address)

    return send


def _log(line: str) -> None:
    with suppress(OSError):
        sys.stderr.write(f"tokiod agent: {line}\n")
