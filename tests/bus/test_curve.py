"""Keys in files: which are read, which are refused and why, and which clients they allow."""

import os
import re
import stat
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
import zmq
from keyed import Keyring
from zmq.auth import load_certificate

from tokiod.bus import curve
from tokiod.cli.tokiod import main as tokiod
from tokiod.config.load import load
from tokiod.errors import ConfigError
from tokiod.hub.classes import NodeClasses
from tokiod.runtime.secrets import mask

HEAD = 'timezone = "UTC"\n[archive]\npath = "/tts/%Y-%m-%d/{system}.hdf5"\n'


@pytest.fixture
def keyring(tmp_path):
    return Keyring(tmp_path)


@pytest.fixture
def keygen(capsys):
    """Run the command; return its exit code and output."""

    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            tokiod(["keygen", *map(str, arguments)], prog_name="tokiod")
        return ended.value.code, capsys.readouterr()

    return run


def configured(tmp_path, text):
    path = tmp_path / "tokiod.toml"
    path.write_text(HEAD + text)
    return load(path)


def test_new_keys_are_zeromq_certificates_and_only_the_owner_can_read_the_secret_one(tmp_path, keygen):
    code, output = keygen(tmp_path / "keys", "feed")
    public, secret = tmp_path / "keys/feed.key", tmp_path / "keys/feed.key_secret"
    assert (code, output.err) == (0, "")
    assert [line.split(": ")[0] for line in output.out.splitlines()] == [str(secret), str(public)]
    assert (stat.S_IMODE(secret.stat().st_mode), stat.S_IMODE(public.stat().st_mode)) == (0o600, 0o644)
    assert load_certificate(public) == (load_certificate(secret)[0], None)
    pair = curve.key_pair("feed.key_secret", public.parent)
    assert (pair.public, pair.secret) == load_certificate(secret)
    assert zmq.curve_public(pair.secret) == curve.public_key(public)
    assert pair.secret.decode() not in output.out + repr(pair)


def test_two_keys_are_never_the_same(tmp_path, keygen):
    assert [keygen(tmp_path, name)[0] for name in ("a", "b")] == [0, 0]
    assert curve.public_key(tmp_path / "a.key") != curve.public_key(tmp_path / "b.key")


@pytest.mark.parametrize("there", ["feed.key", "feed.key_secret"])
def test_no_key_is_overwritten(tmp_path, keygen, there):
    (tmp_path / there).write_text("old")
    code, output = keygen(tmp_path, "feed")
    assert (code, output.out) == (2, "")
    assert output.err == f"tokiod: {tmp_path / there} exists and is kept: choose another name, or remove it\n"
    assert [path.name for path in tmp_path.iterdir()] == [there]
    assert (tmp_path / there).read_text() == "old"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc/x"])
def test_a_name_is_no_path(tmp_path, keygen, name):
    assert keygen(tmp_path, name)[0] == 2
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_can_not_be_made_is_reported(tmp_path, keygen):
    (tmp_path / "file").touch()
    code, output = keygen(tmp_path / "file", "x")
    assert (code, output.err) == (2, f"tokiod: cannot write {tmp_path}/file/x.key_secret: File exists\n")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o611])
def test_a_secret_key_that_others_may_read_is_refused(keyring, mode):
    path = keyring.directory / "server.key_secret"
    path.chmod(mode)
    with pytest.raises(ConfigError) as caught:
        curve.key_pair(path.name, keyring.directory)
    assert caught.value.faults == [f"{path}: other users can read it (mode {mode:04o}): chmod 0600 it"]


def test_a_systemd_credential_comes_first_and_may_look_readable_by_a_group(keyring, tmp_path, monkeypatch):
    given = Keyring(tmp_path / "credentials")
    path = given.directory / "server.key_secret"
    path.chmod(0o440)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(given.directory))
    assert curve.key_pair("server.key_secret", keyring.directory) == given.server
    path.chmod(0o444)
    with pytest.raises(ConfigError, match="other users can read it"):
        curve.key_pair("server.key_secret", keyring.directory)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            None,
            "secret key x: can't be read ({0}: No such file or directory; {1}: No such file or directory); `tokiod keygen` makes one",
        ),
        ("", "{0}: contains no secret key: name the file that ends in .key_secret, see `tokiod keygen --help`"),
        ('public-key = "x"', "{0}: contains no secret key: name the file that ends in .key_secret, see `tokiod keygen --help`"),
        ('public-key = "x"\nsecret-key = "x"', "{0}: contains an invalid secret key; `tokiod keygen` makes one"),
        ('public-key = "x"\nsecret-key = "' + "~" * 40 + '"', "{0}: contains an invalid secret key; `tokiod keygen` makes one"),
        ('public-key = "x"\nsecret-key = "' + "\xff" * 20 + '"', "{0}: contains an invalid secret key; `tokiod keygen` makes one"),
    ],
)
def test_an_invalid_secret_key_is_reported_without_its_content(tmp_path, text, sentence):
    path = tmp_path / "x"
    if text is not None:
        path.touch(0o600)
        path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        curve.key_pair("x", tmp_path)
    assert caught.value.faults == [sentence.format(path, tmp_path / "credentials" / "x")]


@pytest.mark.parametrize("text", ["", "x", 'public-key = "short"', 'public-key = "' + "~" * 40 + '"', 'public-key = "' + "a" * 45 + '"'])
def test_an_invalid_public_key_is_reported(tmp_path, text):
    (tmp_path / "x.key").write_text(text)
    with pytest.raises(ConfigError) as caught:
        curve.public_key(tmp_path / "x.key")
    assert caught.value.faults == [
        f"{tmp_path}/x.key: contains no public key: name the file that ends in .key, which `tokiod keygen` makes"
    ]


def test_a_secret_key_is_masked_in_logs(keyring):
    assert mask(f"it is {keyring.server.secret.decode()}") == "it is ***"
    assert mask(keyring.server.public.decode()) == keyring.server.public.decode()


def test_allowed_keys_are_read_from_a_directory_and_reloaded(keyring):
    friend, other = keyring.allowed("friend").own.public, keyring.allowed("other").own.public
    (keyring.clients / "README").write_text("no key")
    keys = keyring.server_keys()
    assert keys.allowed == {friend, other}
    third = keyring.allowed("third").own.public
    assert keys.reload() is False
    assert keys.allowed == {friend, other, third}
    keyring.revoke("other")
    assert keys.reload() is True
    assert keys.allowed == {friend, third}
    assert keys.reload() is False


def test_a_directory_that_is_gone_changes_nothing(keyring):
    friend = keyring.allowed("friend").own.public
    keys = keyring.server_keys()
    keyring.clients.rename(keyring.directory / "elsewhere")
    with pytest.raises(ConfigError, match=r"clients: .*/clients is not a directory: create it"):
        keys.reload()
    assert keys.allowed == {friend}


@pytest.mark.parametrize("text", ["", '[bus]\nsecret_key_file = "x"\nclient_secret_key_file = "x"\nclients = "x"'])
def test_a_configuration_without_keys_has_none_and_those_of_the_bus_are_not_read(tmp_path, text):
    config = configured(tmp_path, text)
    assert curve.feed_server_keys(config.feed, config.secrets) is None
    assert curve.hosts_server_keys(config.host, config.secrets) is None


def test_keys_are_named_relative_to_the_secrets(tmp_path):
    friend = Keyring(tmp_path / "secrets").allowed("friend").own
    text = '[feed]\nendpoint = "tcp://0.0.0.0:5556"\nsecret_key_file = "server.key_secret"\nclients = "clients"\n'
    config = configured(tmp_path, text)
    with pytest.raises(ConfigError, match="can't be read"):
        curve.feed_server_keys(config.feed, config.secrets)
    path = tmp_path / "tokiod.toml"
    path.write_text('secrets = "secrets"\n' + path.read_text())
    config = load(path)
    assert curve.feed_server_keys(config.feed, config.secrets).allowed == {friend.public}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('[feed]\nsecret_key_file = "x"', "4: feed: clients: missing: it is needed together with secret_key_file (line 5)"),
        ('[feed]\nclients = "x"', "4: feed: secret_key_file: missing: it is needed together with clients (line 5)"),
        (
            '[feed]\nendpoint = "tcp://0.0.0.0:5556"',
            "5: feed: endpoint: tcp beyond loopback needs keys: set secret_key_file (docs/security.md), or use ipc or 127.0.0.1",
        ),
    ],
)
def test_half_of_what_keys_need_is_a_fault_with_its_line(tmp_path, text, fault):
    with pytest.raises(ConfigError) as caught:
        configured(tmp_path, text)
    assert caught.value.faults == [f"{tmp_path}/tokiod.toml:{fault}"]


def test_a_client_reads_its_keys_from_two_files(keyring):
    keys = keyring.allowed("friend")
    assert curve.ClientKeys.read(keyring.directory / "server.key", keyring.directory / "friend.key_secret") == keys
    with pytest.raises(ConfigError, match="no such file"):
        curve.ClientKeys.read(keyring.directory / "nothing", keyring.directory / "friend.key_secret")


def test_the_keys_that_the_manual_makes_are_those_that_its_configuration_names(tmp_path, keygen, monkeypatch):
    manual = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
    for directory, name in re.findall(r"^tokiod keygen (\S+) (\S+)$", manual, re.MULTILINE):
        assert keygen(tmp_path / Path(directory).name, name)[0] == 0
    (tmp_path / "keys" / "clients").mkdir()
    (tmp_path / ".tokiod" / "alice.key").rename(tmp_path / "keys" / "clients" / "alice.key")
    # What systemd does with the credentials of its units.
    (tmp_path / "credentials").mkdir()
    for name, path in re.findall(r"^LoadCredential=(\S+):/etc/tokiod/(\S+)$", manual, re.MULTILINE):
        (tmp_path / path).rename(tmp_path / "credentials" / name)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path / "credentials"))
    config = configured(tmp_path, "".join(re.findall(r"```toml\n(.*?)```", manual, re.DOTALL)))
    assert len(curve.feed_server_keys(config.feed, config.secrets).allowed) == 1


@contextmanager
def not_root():
    """Run the block as a user whom modes apply to."""
    user = os.geteuid()
    os.seteuid(user or 65534)
    try:
        yield
    finally:
        os.seteuid(user)


@pytest.mark.parametrize("place", ["clients", "parent"])
def test_a_directory_of_keys_that_may_not_be_read_is_an_error_and_not_empty(place):
    """As `mkdir -p` makes it with root's umask of 077. All clients would be refused, and at a reload be disconnected."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        ring = Keyring(Path(name) / "keys")
        ring.allowed("compute")
        key = ring.clients / "compute.key"
        closed = ring.clients if place == "clients" else ring.directory
        closed.chmod(0o000)
        tries = {
            ring.clients: ring.server_keys,
            key: lambda: curve.HostKeys(ring.server, {"zone-b": key}),
        }
        try:
            for path, read in tries.items():
                with not_root(), pytest.raises(ConfigError, match=f"{path}: Permission denied: the daemon's user must be able to read it"):
                    read()
            with not_root(), pytest.raises(ConfigError, match=f"{ring.clients}: Permission denied"):
                NodeClasses(ring.clients, {"compute": ("nid*",)})
        finally:
            closed.chmod(0o700)
