"""Machines for tests: network namespaces, each connected to one in the middle by a pair of veth interfaces. Root only."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

MIDDLE = "10.213.0.1"
"""The address of the machine in the middle, which all others reach."""


def why_not() -> str:
    """Return why this process can't make namespaces, empty if it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "there is no ip: apt-get install iproute2"
    name = f"tkd-{os.getpid()}-try"
    done = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)
    return "" if done.returncode == 0 else f"no network namespace can be made: {done.stderr.strip()}"


class Network:
    """A star of machines. close() ends every process in them, and removes them."""

    def __init__(self, middle: str, others: Iterable[str]) -> None:
        self._prefix = f"tkd-{os.getpid()}"
        self._places = {name: number for number, name in enumerate([middle, *others])}
        self._middle = middle
        try:
            self._build()
        except BaseException:
            self.close()
            raise

    def _build(self) -> None:
        for name in self._places:
            _ip("netns", "add", self.namespace(name))
            self._inside(name, "link", "set", "lo", "up")
        self._inside(self._middle, "address", "add", f"{MIDDLE}/32", "dev", "lo")
        for name, number in self._places.items():
            if number:
                near, far = f"tkd{number}a", f"tkd{number}b"
                _ip(
                    "-n",
                    self.namespace(self._middle),
                    "link",
                    "add",
                    near,
                    "type",
                    "veth",
                    "peer",
                    "name",
                    far,
                    "netns",
                    self.namespace(name),
                )
                self._inside(self._middle, "address", "add", f"10.213.{number}.1/24", "dev", near)
                self._inside(name, "address", "add", f"10.213.{number}.2/24", "dev", far)
                self._inside(name, "link", "set", far, "up")
                self.heal(name)

    def namespace(self, name: str) -> str:
        """Return the name of a machine's namespace."""
        return f"{self._prefix}-{self._places[name]}"

    def command(self, name: str, *command: str) -> list[str]:
        """Return the command that runs another one on a machine, as the same process."""
        return ["ip", "netns", "exec", self.namespace(name), *command]

    def cut(self, name: str) -> None:
        """Take the link of a machine down: packets disappear without an error at either end."""
        self._inside(self._middle, "link", "set", f"tkd{self._places[name]}a", "down")

    def heal(self, name: str) -> None:
        """Take the link of a machine up."""
        number = self._places[name]
        self._inside(self._middle, "link", "set", f"tkd{number}a", "up")
        self._inside(name, "route", "replace", MIDDLE, "via", f"10.213.{number}.1")

    def close(self) -> None:
        """End all processes on the machines, and remove them."""
        for name in self._places:
            namespace = self.namespace(name)
            found = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True, check=False).stdout.split()
            for pid in found:
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            subprocess.run(["ip", "netns", "delete", namespace], capture_output=True, check=False)

    def _inside(self, name: str, *words: str) -> None:
        _ip("-n", self.namespace(name), *words)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)
