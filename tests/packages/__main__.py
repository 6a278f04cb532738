"""Try the packages on bare roots of Debian 12, without a network. Needs root, debootstrap and rpm.

python -m tests.packages deb FILE          dpkg -i, tokiod check, the service in a booted systemd, apt-get purge
python -m tests.packages container FILE    the package's daemon as process 1 of namespaces, as packaging/Containerfile starts it
python -m tests.packages rpm FILE DEB      the contents of the RPM, compared with the Debian package's

Prints one line of what was found in each step. Raises AssertionError at the first that fails.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import lmt_database
from booted import MASKED, new_cgroup, remove_cgroup, wait

from tokiod.errors import TokiodError
from tokiod.reader.part import Part
from tokiod.tts.layout import NotLive

ROOT = Path("dist/debian-12")
PACKAGES = "systemd,systemd-sysv,dbus,python3"
UNSHARE = ("unshare", "--fork", "--kill-child", "--pid", "--mount", "--uts", "--ipc", "--net")
ENTER = ("unshare", "--net", "chroot")
"""Into a bare root, as debootstrap leaves it."""
ENTER_WITH_PROC = (*UNSHARE, "sh", "-c", 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"')
"""As the build of a container image runs its commands."""
CONFIG = """\
timezone = "UTC"
[archive]
path = "/var/lib/tokiod/tts/%Y-%m-%d/{system}.hdf5"
[[source]]
name = "fs-lmt"
kind = "lmt"
system = "fs"
url = "sqlite:///srv/lmt.sqlite3"
retention = "1h"
"""
BOOT = f"""
set -eu
mount --make-rprivate /
mount --bind "$1" "$1"
cd "$1"
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
mkdir -p run/systemd/system/service.d
printf '[Service]\\nStandardOutput=append:/var/log/units\\nStandardError=append:/var/log/units\\n' > run/systemd/system/service.d/log.conf
for unit in {" ".join(MASKED)}; do ln -s /dev/null run/systemd/system/$unit; done
ip link set lo up 2> /dev/null || true
mkdir -p mnt
pivot_root . mnt
umount -l /mnt
mount --make-rshared /
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin container=docker /lib/systemd/systemd --system --unit=basic.target --show-status=0
"""
CONTAINER = """
set -eu
mount --make-rprivate /
mount -t proc proc "$1/proc"
exec chroot --userspec=@USER@ "$1" @ENTRYPOINT@
"""
RECIPE = Path(__file__).parents[2] / "packaging" / "Containerfile"
LEFT = re.compile(
    r"var/lib/tokiod(/.*)?|var/log/.*|var/cache/.*|var/lib/(dpkg|apt|systemd)/.*|run/.*|tmp/.*|mnt/.*|srv/.*"
    r"|etc/(passwd|group|shadow|gshadow)-?|etc/\\.pwd\\.lock|etc/machine-id|etc/\\.updated|var/\\.updated|root/.*|var/tmp/.*"
)
"""What a purge may leave: the archive, its user, and what systemd, dpkg and apt note of any package."""


def root_of_debian() -> Path:
    """Return a bare root, made once."""
    if not (ROOT / "usr/bin/apt-get").exists():
        shutil.rmtree(ROOT, ignore_errors=True)
        run("debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(ROOT))
    return ROOT


def run(*command: str, check: bool = True, **options) -> subprocess.CompletedProcess[str]:
    """Run a command. Raises AssertionError with its output if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert not check or done.returncode == 0, f"{' '.join(command)}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done


@contextmanager
def installed(package: Path, enter: tuple[str, ...] = ENTER):
    """Install a package on a copy of the bare root, without a network; yield the root and the files that it had before.

    enter: the command that runs another in a root, whose path follows it.
    """
    with tempfile.TemporaryDirectory(prefix="tokiod-root-", dir="/var/tmp") as name:
        root = Path(name, "root")
        run("cp", "-a", "--reflink=auto", str(root_of_debian()), str(root))
        before = files(root)
        shutil.copy(package, root / "tmp")
        run(*enter, str(root), "dpkg", "-i", f"/tmp/{package.name}")
        say("dpkg -i", f"{len(files(root) - before)} paths, without a network")
        (root / "etc/tokiod/tokiod.toml").write_text(CONFIG)
        now = int(time.time()) // 5 * 5
        lmt_database.save(root / "srv/lmt.sqlite3", lmt_database.tables(steps=121, start=now - 600, zone="UTC"))
        checked = run(*enter, str(root), "tokiod", "check")
        say("tokiod check", checked.stdout.splitlines()[0])
        yield root, before


def files(root: Path) -> set[str]:
    """Return all paths of a root, relative to it."""
    found = run("find", str(root), "-xdev", "-printf", "%P\\n").stdout.splitlines()
    return {path for path in found if path and not path.startswith(("proc/", "sys/", "dev/"))}


@contextmanager
def process_1(root: Path, script: str):
    """Run a script as process 1 of namespaces; yield its process, and its pid as seen from here."""
    with Path(root.parent, "log").open("wb") as log:
        group = new_cgroup()
        assert group is not None, "a systemd of its own needs a cgroup of its own, and none can be made here"
        group.mkdir()
        joined = ["sh", "-c", 'echo $$ > "$0/cgroup.procs"; exec "$@"', str(group)]
        process = subprocess.Popen([*joined, *UNSHARE, "--cgroup", "sh", "-c", script, "sh", str(root)], stdout=log, stderr=log)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        try:
            wait(lambda: process.poll() is None and children.read_text().split(), 30)
            yield process, int(children.read_text().split()[0])
        finally:
            process.kill()
            process.wait()
            remove_cgroup(group)


def inside(pid: int, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a command as root in the namespaces of a process."""
    clean = ("env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin")
    return run("nsenter", "-t", str(pid), "-m", "-p", "-u", "-i", "-n", "-C", "-r", "-w", *clean, *command, check=check)


def try_deb(package: Path) -> None:
    """Install, check, start, stop and purge."""
    with installed(package) as (root, before), process_1(root, BOOT) as (process, pid):

        def is_booted() -> bool:
            assert process.poll() is None, (root.parent / "log").read_text()
            return inside(pid, "systemctl", "is-system-running", check=False).stdout in {"running\n", "degraded\n"}

        wait(is_booted, 300)
        inside(pid, "systemctl", "enable", "--now", "tokiod")
        wait(lambda: filled(root) > 0, 300)
        status = json.loads(inside(pid, "tokioctl", "status", "--json", check=False).stdout)
        owner = inside(pid, "stat", "--format=%U:%G", "/var/lib/tokiod/tts").stdout.strip()
        say("systemctl enable --now tokiod", f"active, {len(status['sources'])} source, archive of {owner}")
        pages = inside(pid, "find", "/usr/share/man", "-name", "tokio*").stdout.split()
        assert any(page.endswith("tokiod.toml.5.gz") for page in pages)
        say("manual pages", str(len(pages)))
        inside(pid, "apt-get", "purge", "--yes", "tokiod")
        assert inside(pid, "systemctl", "is-active", "tokiod", check=False).stdout == "inactive\n"
        left = {path for path in files(root) - before if not LEFT.fullmatch(path)}
        assert not left, f"a purge leaves {sorted(left)}"
        assert inside(pid, "getent", "passwd", "tokiod").stdout
        kept = [path for path in files(root) if path.startswith("var/lib/tokiod/tts/") and path.endswith((".hdf5", "ledger.sqlite3"))]
        assert len(kept) >= 2, kept
        say("apt-get purge", f"leaves the user and {', '.join(sorted(kept))}")


def try_container(package: Path) -> None:
    """Run as process 1, and stop it."""
    with installed(package, ENTER_WITH_PROC) as (root, _), process_1(root, container()) as (process, pid):
        wait(lambda: filled(root) > 0, 300, (root.parent / "log").read_text)
        name = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        user = Path(f"/proc/{pid}").stat().st_uid
        say("process 1", f"{' '.join(name[1:3])} as user {user}, windows are stored")
        os.kill(pid, signal.SIGTERM)
        wait(lambda: process.poll() is not None, 120, (root.parent / "log").read_text)
        assert process.returncode == 0, (process.returncode, (root.parent / "log").read_text())
        say("SIGTERM", "ends it with 0")


def container() -> str:
    """Return the script that starts what packaging/Containerfile starts, as its user."""
    recipe = dict(line.split(maxsplit=1) for line in RECIPE.read_text().splitlines() if line and not line.startswith("#"))
    return CONTAINER.replace("@USER@", recipe["USER"]).replace("@ENTRYPOINT@", shlex.join(json.loads(recipe["ENTRYPOINT"])))


def filled(root: Path) -> float:
    """Return the largest share of cells that a dataset of the archive in a root has."""
    shares = [0.0]
    for path in root.glob("var/lib/tokiod/tts/*/fs.hdf5"):
        with suppress(NotLive, OSError, TokiodError):
            shares += [entry.filled for entry in Part(path).datasets(time.time())]
    return max(shares)


def try_rpm(package: Path, deb: Path) -> None:
    """Compare the contents with the Debian package's."""
    listed = run("rpm", "-qlp", str(package)).stdout.splitlines()
    packed = subprocess.run(["dpkg-deb", "--fsys-tarfile", str(deb)], capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        theirs = {name.removeprefix(".") for name in archive.getnames()}
    theirs = {f"/usr{path}" if path.startswith("/lib") else path for path in theirs}
    of_files = {path for path in theirs if not any(other.startswith(f"{path}/") for other in theirs)}
    missing, added = of_files - set(listed), set(listed) - theirs
    assert not missing, sorted(missing)[:10]
    assert not added, sorted(added)[:10]
    say("rpm -qlp", f"{len(listed)} paths, those of the Debian package")
    requires = run("rpm", "-qp", "--requires", str(package)).stdout.split("\n")
    assert {"python3.11", "systemd"} <= set(requires)
    assert run("rpm", "-qp", "--configfiles", str(package)).stdout == "/etc/tokiod/tokiod.toml\n"
    assert "systemd-sysusers" in run("rpm", "-qp", "--scripts", str(package)).stdout
    say("rpm -qp", "requires python3.11 and systemd; one configuration file; scriptlets")


FOUND: list[str] = []


def say(step: str, found: str) -> None:
    """Note what was found in a step."""
    FOUND.append(f"{step}: {found}")


if __name__ == "__main__":
    {"deb": try_deb, "container": try_container, "rpm": try_rpm}[sys.argv[1]](*(Path(name).resolve() for name in sys.argv[2:]))
    print(f"{sys.argv[1]}: {'; '.join(FOUND)}")
