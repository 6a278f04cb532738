"""The page about hosts: its configuration is valid, and its commands exist and make what they say."""

import re
import subprocess
import sys
from pathlib import Path

from tokiod.bus.curve import host_client_keys, hosts_server_keys
from tokiod.config import hosts
from tokiod.config import load as configuration

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "hosts.md").read_text()
SOURCES = """
[[source]]
name = "bscratch-lmt"
kind = "lmt"
system = "bscratch"
url = "sqlite:////tmp/none"
[[source]]
name = "datawarp"
kind = "collectd_es"
system = "datawarp"
url = "https://es:9200"
index = "cori-collectd-*"
"""


def test_its_configuration_is_valid_and_the_keys_that_it_makes_are_those_that_are_used(tmp_path):
    (text,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    head = 'timezone = "UTC"\n[archive]\npath = "/a/%Y-%m-%d/{system}.hdf5"\n'
    path = tmp_path / "tokiod.toml"
    path.write_text(head + re.sub(r"(?m)^ +", "", text) + SOURCES)
    config = configuration.load(path)
    admin, zone = config.host
    assert [source.name for source in hosts.sources_of(config, zone)] == ["bscratch-lmt", "datawarp"]
    # tokiod keygen /etc/tokiod/credentials NAME, and public keys copied to /etc/tokiod/hosts.
    assert 'tokiod keygen /etc/tokiod/credentials "$(hostname -s)"' in PAGE
    (tmp_path / "hosts").mkdir()
    for host in (admin, zone):
        command = [sys.executable, "-m", "tokiod.cli.tokiod", "keygen", str(tmp_path / "credentials"), host.name]
        subprocess.run(command, check=True, capture_output=True, timeout=100)
        assert f"/etc/tokiod/credentials/{host.name}.key " in PAGE
        assert f"LoadCredential={host.name}.key_secret:/etc/tokiod/credentials/{host.name}.key_secret" in PAGE
        (tmp_path / "hosts" / f"{host.name}.key").write_bytes((tmp_path / "credentials" / f"{host.name}.key").read_bytes())
    server, client = hosts_server_keys(config.host, config.secrets), host_client_keys(config.host, zone, config.secrets)
    assert (server.own.public, server.hosts) == (client.server, {client.own.public: "zone-b"})


def test_the_port_of_its_firewall_is_that_of_its_endpoint():
    assert set(re.findall(r"dport (\d+)", PAGE)) == set(re.findall(r"tcp://[\d.]+:(\d+)", PAGE))


def test_its_unit_is_there():
    assert re.findall(r"(?<![/\w])systemd/[\w.@-]+", PAGE) == ["systemd/tokiod-host.service"]
    assert (ROOT / "systemd" / "tokiod-host.service").exists()
