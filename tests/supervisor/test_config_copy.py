"""What another configuration changes: sources by name, other keys, and what the administrator should know."""

import pytest
from keyed import Keyring

from tokiod.config.load import load
from tokiod.errors import ConfigError
from tokiod.supervisor.config_copy import ConfigCopy, changes

CONFIG = """\
timezone = "UTC"
[archive]
path = "/a/%Y-%m-%d/{system}.hdf5"
[[source]]
name = "one"
kind = "lmt"
system = "fs"
url = "sqlite:///lmt.sqlite3"
"""


@pytest.fixture
def changed(tmp_path):
    def result(old, new):
        paths = [tmp_path / "old.toml", tmp_path / "new.toml"]
        for path, text in zip(paths, (CONFIG, CONFIG.replace(old, new, 1)), strict=True):
            path.write_text(text)
        return changes(*map(load, paths))

    return result


@pytest.mark.parametrize(
    ("old", "new", "keys", "restarted"),
    [
        ("[archive]", 'log_level = "debug"\n[archive]', ["log_level"], False),
        ("[archive]", "[bus]\nmax_windows = 3\n[archive]", ["bus.max_windows"], True),
        ("[archive]", '[metrics]\naddress = "127.0.0.1:9464"\n[archive]', ["metrics"], True),
        ('"UTC"', '"Asia/Tokyo"', ["timezone"], True),
        ('system = "fs"', 'system = "fs"\nwindow = "30s"', [], False),
    ],
)
def test_changed_keys_are_named(changed, old, new, keys, restarted):
    found = changed(old, new)
    assert (found.keys, found.restarted, found.warnings) == (keys, restarted, [])
    assert found.changed == ([] if keys else ["one"])


def test_another_archive_is_a_warning_because_the_old_files_are_read_no_more(changed):
    found = changed("/a/", "/b/")
    (warning,) = found.warnings
    assert (found.keys, found.restarted) == (["archive.path"], True)
    assert warning.startswith("archive.path: the files below /a stay there and are read no more")


def test_another_address_of_the_page_is_a_warning_because_it_keeps_the_old_one_until_it_is_restarted(changed):
    found = changed("[[source]]", '[web]\naddress = "127.0.0.1:8080"\n[[source]]')
    warning = "web.address: tokiod web, where it runs, keeps the address of its start until `systemctl restart tokiod-web`"
    assert (found.keys, found.warnings) == (["web.address"], [warning])


HUB = """
[hub]
endpoint = "tcp://127.0.0.1:5561"
secret_key_file = "server.key_secret"
clients = "{clients}"
classes = {{ compute = ["nid*"] }}
"""


def test_a_key_of_an_agent_that_can_not_be_read_refuses_the_reload_as_one_of_a_subscriber_does(tmp_path):
    """The hub would keep the keys that it has, also one that was revoked."""
    ring = Keyring(tmp_path)
    ring.allowed("compute")
    sockets = f'\n[bus]\nendpoint = "ipc://{tmp_path}/run/bus"\n'
    path = tmp_path / "tokiod.toml"
    path.write_text(CONFIG.replace("/a/", f"{tmp_path}/a/") + sockets + HUB.format(clients=ring.clients.relative_to(tmp_path)))
    copy = ConfigCopy(path)
    (ring.clients / "compute.2.key").write_text("no key")
    with pytest.raises(ConfigError, match=r"compute\.2\.key: contains no public key"):
        copy.read()
