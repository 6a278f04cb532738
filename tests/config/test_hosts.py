"""The sections [[host]]: which sources run where, and what is wrong with them."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from users import as_another_user

from tokiod.config import effective, hosts, machine_checks
from tokiod.config import load as configuration
from tokiod.errors import ConfigError

HEAD = """\
timezone = "UTC"
[archive]
path = "/a/%Y-%m-%d/{system}.hdf5"
[feed]
endpoint = "tcp://127.0.0.1:5563"
secret_key_file = "feed"
clients = "subscribers"
[[source]]
name = "a-lmt"
kind = "lmt"
system = "a"
url = "sqlite:////tmp/a"
[[source]]
name = "b-lmt"
kind = "lmt"
system = "b"
url = "sqlite:////tmp/b"
[[source]]
name = "b-files"
kind = "lmt"
system = "c"
watch = "/spool"
[[source]]
name = "compute"
kind = "nodes"
system = "x.nodes"
[[source]]
name = "b-jobs"
kind = "lustre_jobstats"
system = "b"
servers = ["oss1"]
"""
WRITER = '[[host]]\nname = "admin1"\nendpoint = "tcp://10.0.0.1:5562"\n'
ZONE = '[[host]]\nname = "zone-b"\nsources = ["b-lmt"]\n'


@pytest.fixture
def load(tmp_path, monkeypatch):
    def loaded(text):
        monkeypatch.chdir(tmp_path)
        Path("tokiod.toml").write_text(text)
        return configuration.load(Path("tokiod.toml"))

    return loaded


def names(config, host):
    return [source.name for source in hosts.sources_of(config, host)]


def test_sources_run_on_the_host_that_names_them_and_all_others_on_the_writers(load):
    config = load(HEAD + WRITER + ZONE)
    writer, zone = config.host
    assert hosts.writers_host(config.host) is writer
    assert hosts.other_hosts(config.host) == [zone]
    assert names(config, writer) == ["a-lmt", "b-files", "compute", "b-jobs"]
    assert names(config, zone) == ["b-lmt"]
    assert hosts.host_of(config.host, "b-lmt") is zone
    assert hosts.host_of(config.host, "a-lmt") is None
    assert zone.secret_key == "zone-b.key_secret"
    assert zone.public_key_path(config.secrets) == config.secrets / "hosts/zone-b.key"


def test_without_a_host_everything_is_as_on_one_machine(load):
    config = load(HEAD)
    assert (hosts.writers_host(config.host), hosts.host_of(config.host, "b-lmt")) == (None, None)
    assert hosts.this_host(config.host, None, "any") is None


@pytest.mark.parametrize(
    ("option", "hostname", "found"),
    [
        (None, "zone-b", "zone-b"),
        (None, "zone-b.example.org", "zone-b"),
        (None, "far", "far.example.org"),
        ("admin1", "zone-b", "admin1"),
    ],
)
def test_a_host_is_found_by_the_option_or_by_its_name_with_or_without_domain(load, option, hostname, found):
    config = load(HEAD + WRITER + ZONE + '[[host]]\nname = "far.example.org"\n')
    assert hosts.this_host(config.host, option, hostname).name == found


def test_a_machine_whose_name_two_hosts_have_in_different_domains_is_neither(load):
    """One of them is the writer's: it must not be taken for the other."""
    config = load(HEAD + (WRITER + ZONE).replace("admin1", "login.a").replace("zone-b", "login.b"))
    with pytest.raises(ConfigError, match=r"this machine is 'login', which may be login\.a and login\.b: give --host NAME"):
        hosts.this_host(config.host, None, "login")
    assert hosts.this_host(config.host, "login.b", "login").name == hosts.this_host(config.host, None, "login.b").name == "login.b"


@pytest.mark.parametrize(
    ("text", "option", "sentence"),
    [
        (WRITER + ZONE, "zone-c", "--host: unknown host 'zone-c', did you mean zone-b?"),
        ("", "zone-b", "--host: unknown host 'zone-b'; no [[host]] is configured"),
        (WRITER, None, "this machine is 'pc1', which no [[host]] names (admin1): add a [[host]] for it, or give --host NAME"),
    ],
)
def test_an_unknown_host_gets_a_sentence(load, text, option, sentence):
    with pytest.raises(ConfigError) as caught:
        hosts.this_host(load(HEAD + text).host, option, "pc1")
    assert caught.value.faults == [sentence]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (ZONE, ':32: host zone-b: no host has an endpoint: give it to the host of the writer, as in endpoint = "tcp://10.0.0.1:5562"'),
        (
            WRITER + ZONE + 'endpoint = "tcp://10.0.0.2:5562"\n',
            ":38: host zone-b: endpoint: another host has an endpoint: only the writer's host has one (line 34)",
        ),
        (
            WRITER + ZONE + ZONE.replace("zone-b", "zone-c"),
            ":40: host zone-c: sources: source b-lmt is also on host zone-b: name it on one host (line 37)",
        ),
        (WRITER + ZONE.replace("b-lmt", "b-lmd"), ":37: host zone-b: sources: unknown source 'b-lmd', did you mean b-lmt?"),
        (WRITER + ZONE + ZONE.replace("b-lmt", "a-lmt"), ":39: host zone-b: name: another host has the same name (line 36)"),
        (
            WRITER + ZONE.replace("b-lmt", "b-files"),
            ":37: host zone-b: sources: source b-files watches a folder, so it runs on the writer's host: remove it here",
        ),
        (
            WRITER + ZONE.replace("b-lmt", "compute"),
            ":37: host zone-b: sources: source compute asks the hub, so it runs on the writer's host: remove it here",
        ),
        (WRITER + ZONE.replace("zone-b", "zone b"), ":36: host #2: name: expected letters, digits, '_', '.' and '-'"),
        (WRITER.replace("10.0.0.1", "0.0.0.0"), ":34: host admin1: endpoint: the other hosts connect to this address"),
        (WRITER.replace("10.0.0.1", "admin1"), ":34: host admin1: endpoint: expected an IP address of this machine"),
        (WRITER.replace("tcp:", "ipc:"), ':34: host admin1: endpoint: expected "tcp://ADDRESS:PORT", as in "tcp://10.0.0.1:5562"'),
        (
            WRITER.replace("10.0.0.1:5562", "127.0.0.1:5563"),
            ":34: host admin1: endpoint: [feed] has the same address, or listens at all addresses of this machine with this port",
        ),
        (WRITER + 'max_clock_difference = "0s"\n', ":35: host admin1: max_clock_difference: must be 1s or more"),
        (WRITER + 'key = "x"\n', ":35: host admin1: key: unknown key"),
        (WRITER.replace("[[host]]", "[host]"), ":32: host: write [[host]], with two brackets: one section for each host"),
        ("[[host]]\nsources = []\n", ':32: host #1: name: missing; for example name = "cscratch-lmt"'),
    ],
)
def test_each_mistake_is_one_sentence_with_its_line(load, text, fault):
    with pytest.raises(ConfigError) as caught:
        load(HEAD + text)
    assert [one for one in caught.value.faults if one.startswith(f"tokiod.toml{fault}")], caught.value.faults


def test_the_effective_configuration_has_the_hosts(load):
    text = HEAD + WRITER + ZONE
    found = [line.partition("  #")[0].rstrip() for line in effective.lines(Path("tokiod.toml"), text, load(text))]
    assert found.count("[[host]]") == 2
    assert {'name = "zone-b"', 'sources = ["b-lmt"]', 'max_clock_difference = "2s"'} <= {*found}


def test_a_key_in_credentials_that_a_command_may_not_see_counts_as_there(load, monkeypatch):
    """systemd hides the credentials of a unit from its ExecReload."""
    config = load(HEAD + WRITER + ZONE)
    host = next(one for one in config.host if one.name == "zone-b")
    with TemporaryDirectory() as hidden:
        monkeypatch.setenv("CREDENTIALS_DIRECTORY", hidden)
        lacking = [one for one in machine_checks.problems(config, host) if "secret_key_file" in one]
        assert [one.partition(": no file ")[0] for one in lacking] == ["host zone-b: secret_key_file"]
        Path(hidden).chmod(0)
        with as_another_user():
            assert [one for one in machine_checks.problems(config, host) if "secret_key_file" in one] == []
