"""The scripts of the packages: a removal ends and disables every unit, an upgrade starts all that run again, a purge leaves no drop-in."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.system

ROOT = Path(__file__).parents[2]
DEBIAN, SPEC = ROOT / "packaging" / "debian", ROOT / "packaging" / "rpm" / "tokiod.spec"
SERVICES = {path.name for path in (ROOT / "systemd").glob("*.service")} - {"tokiod-agent.service", "tokiod-lctl@.service"}
"""Those that are started by hand. The agent has a package of its own, and lctl is run by its socket."""
STUB = """#!/bin/sh
echo "$*" >> "$0.log"
[ "$1" != disable ] || { [ "$2" != --now ] || shift; shift; exec {systemctl} --quiet --root={root} disable "$@"; }
"""


def scriptlet(name):
    """Return a scriptlet of the RPM."""
    found = re.search(rf"(?m)^%{name}\n((?:(?!%\w).*\n?)*)", SPEC.read_text())
    return found[1] if found else ""


class Machine:
    """A directory with the units and two sinks enabled, and a systemctl that notes what it is asked."""

    def __init__(self, directory):
        self.directory, self.stub = directory, directory / "bin" / "systemctl"
        for name in ("bin", "root/run/systemd/system", "root/etc/systemd/system", "root/lib/systemd/system"):
            (directory / name).mkdir(parents=True)
        for path in (ROOT / "systemd").glob("tokiod*.*"):
            shutil.copy(path, directory / "root/lib/systemd/system")
        self.links = directory / "root/etc/systemd/system"
        self.sinks = ["tokiod-sink@es.service", "tokiod-sink@kafka.service"]
        systemctl = shutil.which("systemctl")
        others = [*sorted(SERVICES - {"tokiod-sink@.service"}), "tokiod.target", "tokiod-lctl.socket"]
        subprocess.run([systemctl, "--quiet", f"--root={directory / 'root'}", "enable", *others, *self.sinks], check=True, timeout=60)
        self.stub.write_text(STUB.replace("{systemctl}", systemctl).replace("{root}", str(directory / "root")))
        self.stub.chmod(0o755)

    def run(self, script, *arguments):
        """Run a script as if systemd ran here; return the lines of what it asked systemctl."""
        log = Path(f"{self.stub}.log")
        log.unlink(missing_ok=True)
        for name in ("run", "etc"):
            script = re.sub(rf"(?<=\s)/{name}/", f"{self.directory}/root/{name}/", script)
        script = re.sub(r"systemd-(sysusers|tmpfiles)", "true", script)
        environment = {**os.environ, "PATH": f"{self.stub.parent}:{os.environ['PATH']}"}
        command = ["sh", "-e", "-c", script, "sh", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=60)
        assert done.returncode == 0, done.stderr
        return log.read_text().splitlines()

    def enabled(self):
        return sorted(path.name for path in self.links.rglob("*") if path.is_symlink())


@pytest.fixture
def machine(tmp_path):
    if shutil.which("systemctl") is None:
        reason = "there is no systemctl: apt-get install systemd"
        pytest.fail(reason) if os.environ.get("CI") == "true" and os.geteuid() == 0 else pytest.skip(reason)
    return Machine(tmp_path)


@pytest.mark.parametrize(
    ("script", "argument"), [((DEBIAN / "prerm").read_text(), "remove"), (scriptlet("preun"), "0")], ids=["debian", "rpm"]
)
def test_a_removal_ends_and_disables_every_unit_with_each_sink(machine, script, argument):
    assert {*machine.sinks, *SERVICES} - {"tokiod-sink@.service"} <= {*machine.enabled()}
    asked = machine.run(script, argument)
    assert machine.enabled() == []
    stopped = {unit for line in asked if line.startswith(("disable --now ", "stop ")) for unit in line.split()[1:]}
    # stop knows patterns, disable does not.
    assert stopped >= SERVICES - {"tokiod-sink@.service"}
    assert "stop tokiod-sink@*.service" in asked


@pytest.mark.parametrize(
    ("script", "arguments"),
    [((DEBIAN / "postinst").read_text(), ("configure", "0.1.0")), (scriptlet("posttrans"), ())],
    ids=["debian", "rpm"],
)
def test_an_upgrade_starts_what_runs_again(machine, script, arguments):
    (restarted,) = [line for line in machine.run(script, *arguments) if line.startswith("try-restart ")]
    assert {unit.replace("@*", "@") for unit in restarted.split()[1:]} == SERVICES


def test_a_purge_leaves_no_drop_in(machine):
    for unit in (*SERVICES, *machine.sinks, "tokiod.target", "tokiod-lctl.socket"):
        (machine.links / f"{unit}.d").mkdir()
    machine.run((DEBIAN / "postrm").read_text().replace("getent group", "false"), "purge")
    assert [path.name for path in machine.links.iterdir() if path.name.endswith(".d")] == []
