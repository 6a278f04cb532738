"""Power of the whole node by its management controller: `ipmitool dcmi power reading`."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

from tokiod.agent.command import Command, CommandFailed
from tokiod.agent.metric import gauge
from tokiod.agent.sensor import Absent, Readings, Sensor

if TYPE_CHECKING:
    from tokiod.agent.tree import Tree

WORDS = ["ipmitool", "dcmi", "power", "reading"]
PERIOD_SECONDS, DEADLINE_SECONDS = 60.0, 30.0
"""Controllers take a second for an answer, some hang at times, and asking them often makes some fail."""

_POWER = gauge("node_power", "W", "power of the whole node, as its management controller measures it")
_READING = re.compile(rb"^[ \t]*Instantaneous power reading\s*:\s*(\d+)[ \t]+Watts", re.MULTILINE)
_STATE = re.compile(rb"^[ \t]*Power reading state is\s*:\s*(\w+)", re.MULTILINE)
_NO_READINGS = {0: "not measuring", (1 << 16) - 1: "no reading"}
"""What controllers say that measure nothing; the number has 16 bits."""


class Ipmi(Sensor):
    """The instantaneous reading, every minute."""

    name = "ipmi"
    metrics = (_POWER,)
    period = 1.0

    def __init__(
        self, tree: Tree, words: list[str] | None = None, period: float = PERIOD_SECONDS, deadline: float = DEADLINE_SECONDS
    ) -> None:
        super().__init__(tree)
        self._is_default = words is None
        self._command = Command(words or WORDS, period, deadline)

    def find(self) -> None:
        if self._is_default and not any(self.tree.exists(f"dev/{name}") for name in ("ipmi0", "ipmi/0", "ipmidev/0")):
            raise Absent("no /dev/ipmi0")
        if not shutil.which(self._command.words[0]):
            raise Absent(f"no command {self._command.words[0]}")

    def sample(self, readings: Readings, now: float) -> None:
        try:
            text = self._command.take(now)
        except CommandFailed as error:
            readings.drop(error.reason, str(error))
            return
        if text is not None:
            self._read(readings, text)

    def read_ahead(self, now: float, *, is_rare: bool) -> bool:
        return not self._command.has_work(now)

    def is_waiting(self) -> bool:
        return self._command.is_running

    def close(self) -> None:
        self._command.close()

    @staticmethod
    def _read(readings: Readings, text: bytes) -> None:
        reading, state = _READING.search(text), _STATE.search(text)
        if reading is None:
            readings.drop("malformed", "no line `Instantaneous power reading: N Watts`")
        elif why_none := _NO_READINGS.get(watts := int(reading[1])):
            readings.drop(why_none, f"the controller reports {watts} W{f', {state[1].decode()}' if state else ''}")
        else:
            # Some controllers that measure say `deactivated`.
            readings.add(_POWER, watts)
