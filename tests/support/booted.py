"""A machine with a real systemd, in namespaces of its own: what is written in it is gone with it. Needs root.

    with Machine.boot(directory) as machine:
        machine.run("systemctl start tokiod")
        machine.path("/var/lib/tokiod")         # the same, seen from here

/etc is a copy, /opt, /run and /tmp are empty, /var is an empty directory here, everything else is read only;
processes, host name and IPC are its own, the network is ours. Units write their logs to LOG, for there is no journal.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from waiting import PATIENCE

LOG = "/var/log/units"
PYTHON, PACKAGES, CHECKOUT = "/opt/python", "/opt/packages", "/mnt/checkout"
"""Where in it this interpreter is, what is installed for it, and this checkout: wherever they are here, /home, /root or /tmp."""
NAMESPACES = ("unshare", "--fork", "--kill-child", "--pid", "--mount", "--cgroup", "--uts", "--ipc")
SYSTEMD = "/lib/systemd/systemd"
MASKED = (
    # They would change the real kernel's settings, devices and mounts.
    *("systemd-sysctl.service", "systemd-modules-load.service", "systemd-binfmt.service", "systemd-remount-fs.service"),
    *("systemd-tmpfiles-setup-dev.service", "systemd-random-seed.service", "systemd-udevd.service", "systemd-udev-trigger.service"),
    *("dev-hugepages.mount", "dev-mqueue.mount", "sys-kernel-debug.mount", "sys-kernel-tracing.mount", "sys-kernel-config.mount"),
    *("sys-fs-fuse-connections.mount", "proc-sys-fs-binfmt_misc.automount", "systemd-journald.service", "systemd-journald.socket"),
    *("systemd-journald-dev-log.socket", "systemd-journald-audit.socket", "systemd-journal-flush.service"),
    *("systemd-update-utmp.service", "systemd-pstore.service", "timers.target"),
)
INSIDE = f"""
set -eu
mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs -o mode=755 tmpfs /mnt
cp -a /etc /mnt/etc
mkdir -p /mnt/opt{PYTHON[4:]} /mnt/opt{PACKAGES[4:]} {CHECKOUT}
mount --bind "$1" /mnt/opt{PYTHON[4:]}
mount --bind "$2" /mnt/opt{PACKAGES[4:]}
mount --bind "$3" {CHECKOUT}
for d in {PACKAGES[4:]} {PYTHON[4:]}; do mount -o remount,bind,ro /mnt/opt$d; done
mount -o remount,bind,ro {CHECKOUT}
mount --bind /mnt/etc /etc
mount --bind "$4" /var
mount --rbind /mnt/opt /opt
for d in /run /tmp /dev/shm; do mount -t tmpfs tmpfs $d; done
chmod 1777 /tmp /dev/shm
mkdir -p /var/lib /var/log /var/tmp /run/systemd/system
mkdir /run/systemd/system/service.d
printf '[Service]\\nStandardOutput=append:{LOG}\\nStandardError=append:{LOG}\\n' > /run/systemd/system/service.d/log.conf
for unit in {" ".join(MASKED)}; do ln -s /dev/null /run/systemd/system/$unit; done
: > /etc/fstab
rm -f /etc/ld.so.cache
echo {PYTHON}/lib > /etc/ld.so.conf.d/tests.conf
ldconfig
umount --recursive /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -o remount,bind,ro /
mount --make-rshared /
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin container=docker {SYSTEMD} --system --unit=basic.target --log-target=console --show-status=0
"""


def missing() -> str:
    """Return why there can be no such machine here, or nothing."""
    if os.geteuid() != 0:
        return "a systemd of its own needs root, for namespaces"
    if not Path(SYSTEMD).exists():
        return "there is no systemd: apt-get install systemd"
    if subprocess.run([*NAMESPACES, "mount", "--make-rprivate", "/"], capture_output=True, check=False, timeout=100).returncode:
        return "a systemd of its own needs namespaces and mounts, and this root may make none"
    if new_cgroup() is None:
        return "a systemd of its own needs a cgroup of its own, and none can be made here"
    return ""


@dataclass(slots=True)
class Machine:
    """A running one. pid: of its systemd, as seen from here; var: what its /var is here."""

    pid: int
    var: Path

    @classmethod
    @contextmanager
    def boot(cls, directory: Path):
        """Boot one, and end it with all that runs in it. directory: for its /var, and what its systemd says."""
        log, var = directory / "log", directory / "var"
        var.mkdir()
        group = new_cgroup() or Path()
        group.mkdir()
        # unshare itself ignores SIGTERM; killed, it takes the namespace along.
        joined = ["sh", "-c", 'echo $$ > "$0/cgroup.procs"; exec "$@"', str(group)]
        shown = [sys.base_prefix, sysconfig.get_path("purelib"), str(Path(__file__).parents[2]), str(var)]
        with log.open("wb") as said:
            process = subprocess.Popen([*joined, *NAMESPACES, "bash", "-c", INSIDE, "boot", *shown], stdout=said, stderr=said)
        try:
            machine = cls(_systemd(process, log), var)
            wait(lambda: machine.run("systemctl is-system-running", check=False).stdout in {"running\n", "degraded\n"}, 60, log.read_text)
            yield machine
        finally:
            process.kill()
            process.wait()
            remove_cgroup(group)

    def path(self, inside: str) -> Path:
        """Return a path in it, as it is seen from here."""
        # SQLite follows links by itself, and that of /proc leads it to our own root.
        if inside.startswith("/var/"):
            return self.var / inside[5:]
        return Path(f"/proc/{self.pid}/root{inside}")

    def run(self, script: str, *, check: bool = True, timeout: float = 60, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a script as root in it, in the checkout, as a person at its console does. Raises AssertionError where a checked one fails."""
        environment = {"PATH": f"{PYTHON}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": os.environ["HOME"]}
        passed_on = ("PIP_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
        environment |= variables | {name: value for name, value in os.environ.items() if name.startswith(passed_on)}
        enter = ["nsenter", "-t", str(self.pid), "-p", "-m", "-u", "-C", "-i", f"--wd={self.path(CHECKOUT)}"]
        line = [*enter, "bash", "-euo", "pipefail", "-c", f"exec < /dev/null; {script}"]
        try:
            done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=PATIENCE * timeout, check=False)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{script}\nnot within {PATIENCE * timeout} s\n{self.log()}") from None
        assert not check or done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}{self.log()}"
        return done

    def show(self, unit: str, name: str) -> str:
        """Return a property of a unit."""
        return self.run(f"systemctl show --property={name} --value {unit}").stdout.strip()

    def processes(self, unit: str) -> dict[str, int]:
        """Return the pids, seen from here, of a unit's tokiod processes by what they are: run, writer or collectors."""
        found = {}
        for pid in (path.name for path in Path("/proc").iterdir() if path.name.isdigit()):
            with suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
                if f"/{unit}\n" in Path(f"/proc/{pid}/cgroup").read_text() and self._is_inside(pid):
                    found |= {word: int(pid) for word in words[1:6] if word in {"run", "writer", "collectors", "feed"}}
        return found

    def log(self) -> str:
        """Return the end of what its units wrote."""
        path = self.path(LOG)
        return path.read_text(errors="replace")[-6000:] if path.exists() else ""

    def _is_inside(self, pid: str) -> bool:
        return Path(f"/proc/{pid}/ns/pid").readlink() == Path(f"/proc/{self.pid}/ns/pid").readlink()


def wait(condition, seconds: float, told=lambda: "") -> None:
    """Wait for it. Raises AssertionError with what is told then, where it takes longer."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {told()}"
        time.sleep(0.05)


def _systemd(process: subprocess.Popen[bytes], log: Path) -> int:
    """Return the pid of systemd once it has become that."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")

    def is_systemd() -> bool:
        assert process.poll() is None, log.read_text()
        with suppress(OSError, IndexError):
            return Path(f"/proc/{children.read_text().split()[0]}/comm").read_text() == "systemd\n"
        return False

    wait(is_systemd, 60, log.read_text)
    return int(children.read_text().split()[0])


def new_cgroup() -> Path | None:
    """Return where a cgroup can be made: below our own, for its systemd must not see the real one's."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    mounted = next((Path(words[1]) for words in mounts if words[2] == "cgroup2"), None)
    own = next((line[4:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::/")), None)
    if mounted is None or own is None:
        return None
    directory = mounted / own
    is_ours = os.access(directory, os.W_OK) and not os.statvfs(directory).f_flag & os.ST_RDONLY
    return directory / f"tokiod-boot-{os.getpid()}" if is_ours else None


def remove_cgroup(group: Path) -> None:
    """Remove a cgroup and what systemd made below it; the last processes need a moment to be gone."""
    for _ in range(100):
        for directory, _, _ in os.walk(group, topdown=False):
            with suppress(OSError):
                Path(directory).rmdir()
        if not group.exists():
            return
        time.sleep(0.05)
