"""tokiod-web.service on a machine with a real systemd: with its hardening it serves a real archive to its group, and to no other user."""

import json
import os

import pytest
from booted import CHECKOUT, PACKAGES, PYTHON, Machine, missing, wait
from web_site import CONFIG, DAY, WebSite

pytestmark = pytest.mark.system

PROGRAM = f'#!/bin/sh\nexec env PYTHONPATH={CHECKOUT}:{PACKAGES} {PYTHON}/bin/python3 -P -m tokiod.cli.tokiod "$@"\n'
CLIENT = """
import socket
with socket.socket(socket.AF_UNIX) as client:
    client.connect("/run/tokiod-web/http")
    client.sendall(b"GET /api/v1/systems HTTP/1.0\\r\\nHost: localhost\\r\\n\\r\\n")
    print(client.makefile().read())
"""
RETENTION, WINDOW = 90 * 86400, 60
"""Of the source, as they are by default."""
ASK = f"python3 -c '{CLIENT}'"


@pytest.fixture
def machine(tmp_path):
    if reason := missing():
        pytest.fail(reason) if os.environ.get("CI") == "true" and os.geteuid() == 0 else pytest.skip(reason)
    (tmp_path / "site").mkdir()
    made = WebSite(tmp_path / "site")
    with Machine.boot(tmp_path) as machine:
        machine.run("install -D -m 0644 systemd/tokiod.sysusers.conf /etc/sysusers.d/tokiod.conf; systemd-sysusers")
        machine.run("useradd --gid tokiod-readers reader; useradd outsider; install -d -m 0755 /etc/tokiod /opt/tokiod/bin")
        machine.path("/opt/tokiod/bin/tokiod").write_text(PROGRAM)
        machine.path("/etc/tokiod/tokiod.toml").write_text(CONFIG.format("/var/lib/tokiod", "/run/tokiod-web/http"))
        (made.directory / "tts").rename(machine.path("/var/lib/tokiod-archive"))
        machine.run("install -d -o tokiod -g tokiod-readers -m 0750 /var/lib/tokiod; mv /var/lib/tokiod-archive /var/lib/tokiod/tts")
        machine.run(
            "cd /var/lib/tokiod/tts; mkdir .tokiod-readers; cp .tokiod/ledger.sqlite3 .tokiod-readers; chown -R tokiod:tokiod-readers ."
        )
        machine.run(
            "chmod -R u=rwX,g=rX,o= /var/lib/tokiod/tts; chmod -R go= /var/lib/tokiod/tts/.tokiod; chmod 0755 /opt/tokiod/bin/tokiod"
        )
        machine.run("install -m 0644 systemd/tokiod-web.service /etc/systemd/system/; systemctl daemon-reload")
        yield machine


def test_the_unit_serves_the_archive_to_its_group_and_to_no_other_user(machine):
    machine.run("systemctl start tokiod-web", timeout=200)
    answer = machine.run(f"runuser -u reader -- {ASK}").stdout
    assert answer.startswith("HTTP/1.0 200 OK")
    found = json.loads(answer.splitlines()[-1])
    assert (found["systems"][0]["name"], found["sources"][0]["name"]) == ("fs", "one")
    # The minute that the ledger calls lost, the one that failed, and all that the source does not keep by the machine's clock.
    source = found["sources"][0]
    kept_since = source["watermark"]
    assert 0 <= kept_since - (found["time"] - RETENTION) <= WINDOW
    assert source["gaps"]["lost"] == 60 + 60 + kept_since - source["last_end"]
    assert machine.run(f"runuser -u outsider -- {ASK}", check=False).returncode != 0
    user = machine.run("ps -o user= -p $(systemctl show --property=MainPID --value tokiod-web)").stdout.strip()
    assert user not in {"root", "tokiod"}
    machine.run("systemctl reload tokiod-web; systemctl stop tokiod-web", timeout=200)
    wait(lambda: '"event": "web.stopped"' in machine.log(), 30, machine.log)
    assert "Traceback" not in machine.log()
    assert DAY in machine.run("ls /var/lib/tokiod/tts").stdout
