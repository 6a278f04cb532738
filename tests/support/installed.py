"""tokiod on a machine of tests/support/booted.py, installed as docs/install.md says, with simulated sources on the same machine."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from booted import PACKAGES, Machine, wait

from tokiod.clock import SimulatedClock
from tokiod.config.schema import Config
from tokiod.config.sections import ArchiveConfig
from tokiod.simulator.scene import Scene
from tokiod.simulator.site import Site
from tokiod.simulator.sources import COLLECTD, LMT, free_port

DOCUMENT = Path(__file__).parents[2] / "docs" / "install.md"
HISTORY = 300
PASSWORD = "hunter2-of-the-boot-test"
WATCHDOG = 4
UNITS = {
    "tokiod.service": ("run", "writer", "collectors", "feed"),
    "tokiod-feed.service": ("feed",),
    "tokiod-writer.service": ("writer",),
    "tokiod-collectors.service": ("collectors",),
}
USERS = {"root": "", "service": "runuser -u tokiod --", "reader": "runuser -u alice --", "outsider": "runuser -u mallory --"}
"""How a command becomes one of a user. alice and mallory are made as the document says; the service's own group is the readers'."""
CONFIG = """\
timezone = "UTC"
[archive]
path = "/var/lib/tokiod/tts/%Y-%m-%d/{system}.hdf5"
[metrics]
"""
STANZA = """\
[[source]]
name = "{name}"
system = "{system}"
window = "10s"
retention = "1h"
"""
# What the simulated server doesn't ask for is read all the same: a credential that isn't found is an error of this source.
WITH_PASSWORD = 'user = "tokiod"\npassword_file = "lmt-password"\n'


@dataclass(slots=True)
class Installed:
    """A machine with tokiod on it. flavour: the units that are started; metrics: the port of their metrics; typed: the blocks that were."""

    machine: Machine
    scene: Scene
    flavour: tuple[str, ...] = ("tokiod.service",)
    blocks: dict[str, list[str]] = field(default_factory=dict)
    metrics: int = field(default_factory=free_port)
    typed: set[tuple[str, int]] = field(default_factory=set)

    @classmethod
    @contextmanager
    def on(cls, machine: Machine):
        """Think of sources with five minutes of past."""
        now = time.time()
        clock = SimulatedClock(now, now, 1)
        site = Site(epoch=(int(now) - HISTORY) // 10 * 10, timezone="UTC", osts=4, osss=2, mdts=1, hosts=2, devices=2, cores=2)
        archive = Config(timezone="UTC", archive=ArchiveConfig(path=str(machine.path("/var/lib/tokiod/tts/%Y-%m-%d/{system}.hdf5"))))
        scene = Scene(machine.path("/var/lib/tokiod"), site, clock, sources=(LMT, COLLECTD), _config=archive)
        yield cls(machine, scene, blocks=blocks(DOCUMENT.read_text()))

    def type_in(self, heading: str, first: int = 0, last: int | None = None) -> list[str]:
        """Type blocks of a section of the document; returns what each printed."""
        # What is installed for these tests counts as had: pip gets nothing from elsewhere.
        own = {"PYTHONPATH": PACKAGES} | ({"PIP_NO_BUILD_ISOLATION": "1"} if find_spec("hatchling") else {})
        self.typed |= {(heading, number) for number in range(len(self.blocks[heading]))[first:last]}
        printed = [self.machine.run(block, timeout=600, **own).stdout for block in self.blocks[heading][first:last]]
        site_packages = self.machine.path("/opt/tokiod/lib").glob("python3*/site-packages")
        for directory in site_packages:
            (directory / "tests.pth").write_text(PACKAGES)
        return printed

    def configure(self) -> None:
        """Edit the configuration as an admin would."""
        text, port = f'{CONFIG}address = "127.0.0.1:{self.metrics}"\n', 0
        for source in self.scene.sources:
            port = self.scene._port(source)
            text += STANZA.format(name=source.name, system=source.system)
            text += source.config.format(directory="/var/lib/sources", port=port)
        self.machine.path("/etc/tokiod/tokiod.toml").write_text(text + WITH_PASSWORD)

    def simulate(self) -> None:
        """Start the sources."""
        directory = self.machine.path("/var/lib/sources")
        directory.mkdir()
        self.scene.site.save(directory / "site.json")
        for source in self.scene.sources:
            own = " ".join(one.format(directory="/var/lib/sources", port=self.scene._port(source)) for one in source.arguments)
            line = f"/opt/tokiod/bin/python -m tokiod.simulator {own} --clock {self.scene.clock} --site /var/lib/sources/site.json"
            self.machine.run(f"systemd-run --quiet --unit={source.name} {line}")
        for source in self.scene.sources:
            wait(lambda source=source: source.ready(directory, self.scene._port(source)), 30, self.machine.log)

    def hurry(self, *units: str) -> None:
        """Shorten the watchdog's patience and the pause before a restart, and change nothing else."""
        for unit in units:
            directory = self.machine.path(f"/etc/systemd/system/{unit}.d")
            directory.mkdir(exist_ok=True)
            (directory / "hurry.conf").write_text(f"[Service]\nWatchdogSec={WATCHDOG}\nRestartSec=500ms\n")
        self.machine.run("systemctl daemon-reload")

    def processes(self) -> dict[str, int]:
        """Return the pids of all its processes that are there: run, writer, collectors."""
        found = {}
        for unit in self.flavour:
            found |= {name: pid for name, pid in self.machine.processes(unit).items() if name in UNITS[unit]}
        return found

    def is_complete(self) -> bool:
        """Whether all processes are there, all units say so, and all that is due of every source is stored."""
        names = {name for unit in self.flavour for name in UNITS[unit]}
        end = int(time.time() - 45) // 10 * 10
        return (
            set(self.processes()) == names
            and all(self.machine.show(unit, "ActiveState") == "active" for unit in self.flavour)
            and self.scene.complete_to(self.scene.site.epoch, end)
        )

    def await_complete(self, seconds: float = 40) -> None:
        """Wait until it is."""
        deadline = time.monotonic() + seconds
        while not self.is_complete():
            assert time.monotonic() < deadline, f"{self.processes()} {[*map(self.scene.stored, self.scene.sources)]}\n{self.machine.log()}"
            time.sleep(0.2)

    def await_ready(self, seconds: float = 40) -> None:
        """Wait until its processes are there and its units say that they are ready."""
        names = {name for unit in self.flavour for name in UNITS[unit]}
        ping = "" if len(self.flavour) > 1 else "/opt/tokiod/bin/tokioctl ping | grep -q ': ready$'"
        active = "\n".join(f"systemctl is-active --quiet {unit}" for unit in self.flavour)
        wait(
            lambda: set(self.processes()) == names and not self.machine.run(f"{active}\n{ping}", check=False).returncode,
            seconds,
            self.machine.log,
        )

    def replaced(self, name: str, pid: int, seconds: float) -> float:
        """Wait until a process of that name is another one; returns the seconds that it took."""
        begun = time.monotonic()
        wait(lambda: self.processes().get(name, pid) != pid, seconds, self.machine.log)
        return time.monotonic() - begun

    def as_user(self, user: str, command: str) -> tuple[int, str]:
        """Run one of the programs as one of USERS; return its exit code and what it printed."""
        done = self.machine.run(f"cd /; {USERS[user]} /opt/tokiod/bin/{command}", check=False, timeout=200)
        return done.returncode, done.stdout + done.stderr

    def of_root(self) -> list[str]:
        """Return the files and directories of the archive and the sockets that belong to root, or to a group that is not the readers'."""
        found = self.machine.run(r"find /var/lib/tokiod /run/tokiod \( -user root -o ! -group tokiod-readers \) -print").stdout
        return found.splitlines()

    def status(self) -> dict:
        """Return what `tokioctl status --json` prints."""
        return json.loads(self.machine.run("/opt/tokiod/bin/tokioctl status --json", check=False).stdout)

    def served(self, path: str) -> str:
        """Return what is said at a path of its metrics' server: the network of the machine is ours."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics}{path}", timeout=50) as answer:
            return answer.read().decode()

    def assert_every_cell_is_right(self) -> None:
        """Compare the archive with what the sources hold."""
        comparison = self.scene.compare()
        assert (comparison.differences, comparison.equal) == ([], True)
        assert comparison.filled > HISTORY


def blocks(text: str) -> dict[str, list[str]]:
    """Return the shell blocks of a document by their section."""
    sections = re.split(r"(?m)^## (.*)$", text)[1:]
    return {
        heading: re.findall(r"(?ms)^```sh\n(.*?)^```$", section) for heading, section in zip(sections[::2], sections[1::2], strict=True)
    }
