import json
import traceback
from base64 import b64encode, urlsafe_b64encode
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tokiod.errors import ConfigError
from tokiod.runtime import secrets
from tokiod.runtime.secrets import MASK, Secret, mask, secret


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch):
    monkeypatch.setattr(secrets, "_spellings", set())
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)


def keep(path, content):
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_a_secret_file_is_read_without_its_last_newline(tmp_path, end):
    keep(tmp_path / "pw", b" pass word\nin two " + end)
    assert str(secret("file:pw", tmp_path)) == " pass word\nin two "


def test_systemds_credentials_come_before_the_directory_of_the_configuration(tmp_path, monkeypatch):
    keep(tmp_path / "etc" / "pw", b"beside")
    keep(tmp_path / "cred" / "pw", b"credential")
    assert secret("file:pw", tmp_path / "etc") == "beside"
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path / "cred"))
    assert secret("file:pw", tmp_path / "etc") == "credential"
    (tmp_path / "cred" / "pw").unlink()
    assert secret("file:pw", tmp_path / "etc") == "beside"


def test_an_absolute_name_is_the_file_itself(tmp_path, monkeypatch):
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path / "cred"))
    path = keep(tmp_path / "elsewhere", b"absolute")
    assert secret(f"file:{path}", tmp_path / "etc") == "absolute"


def test_a_credential_of_the_units_is_found_by_commands_too(tmp_path):
    keep(tmp_path / "credentials" / "lmt-password", b"kept for systemd\n")
    assert secret("file:lmt-password", tmp_path) == "kept for systemd"


def test_a_secret_comes_from_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("LMT_PASSWORD", "from the environment\n")
    assert secret("env:LMT_PASSWORD", tmp_path) == "from the environment"


def test_the_error_for_a_missing_secret_names_the_paths_that_were_tried(tmp_path, monkeypatch):
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path / "cred"))
    (tmp_path / "pw").mkdir()
    with pytest.raises(ConfigError) as caught:
        secret("file:pw", tmp_path)
    tried = (f"{tmp_path}/cred/pw: No such file or directory", f"{tmp_path}/pw: Is a directory")
    tried += (f"{tmp_path}/credentials/pw: No such file or directory",)
    assert caught.value.faults == [f"secret file:pw: it can't be read ({'; '.join(tried)})"]
    with pytest.raises(ConfigError, match=r"^secret env:TOKIOD_NOT_SET: the environment variable TOKIOD_NOT_SET is not set$"):
        secret("env:TOKIOD_NOT_SET", tmp_path)


@pytest.mark.parametrize("reference", ["hunter-2-marked", "pass:hunter-2-marked", "file:", "env:", ""])
def test_what_names_no_secret_is_not_repeated_for_it_may_be_one(tmp_path, reference):
    with pytest.raises(ConfigError) as caught:
        secret(reference, tmp_path)
    assert caught.value.faults == ['a secret is named by "file:NAME" or "env:NAME"']


def test_an_empty_or_binary_secret_is_refused_without_showing_it(tmp_path):
    keep(tmp_path / "empty", b"\n")
    path = keep(tmp_path / "binary", b"hunter\xff")
    with pytest.raises(ConfigError, match=r"^secret file:empty: it is empty$"):
        secret("file:empty", tmp_path)
    with pytest.raises(ConfigError) as caught:
        secret("file:binary", tmp_path)
    assert caught.value.faults == [f"secret file:binary: {path} is not UTF-8 text"]
    assert "hunter" not in "".join(traceback.format_exception(caught.value))


def test_a_secret_that_other_users_or_the_group_can_read_is_warned_of(tmp_path, monkeypatch):
    path = keep(tmp_path / "pw", b"hunter-2-marked")
    path.chmod(0o644)
    with capture_logs() as logs:
        secret("file:pw", tmp_path)
    hint = "chmod o= it: any user can read it"
    assert logs == [{"event": "secret.exposed", "log_level": "warning", "path": str(path), "mode": "0644", "hint": hint}]
    path.chmod(0o640)
    with capture_logs() as logs:
        secret("file:pw", tmp_path)
    assert [(log["mode"], log["hint"]) for log in logs] == [("0640", "chmod g= it: its group can read it")]
    for mode, credentials in ((0o600, "/nowhere"), (0o440, str(tmp_path))):
        monkeypatch.setenv("CREDENTIALS_DIRECTORY", credentials)
        path.chmod(mode)
        with capture_logs() as logs:
            secret("file:pw", tmp_path)
        assert logs == []


def test_a_secret_is_its_text_for_a_library_and_stars_in_a_repr(tmp_path):
    keep(tmp_path / "pw", b"hunter-2-marked")
    found = secret("file:pw", tmp_path)
    assert isinstance(found, Secret)
    assert (f"u:{found}", found.encode(), str(found)) == ("u:hunter-2-marked", b"hunter-2-marked", "hunter-2-marked")
    assert (repr(found), repr({"password": found}), f"{found!r}") == ("'***'", "{'password': '***'}", "'***'")


def test_every_spelling_of_a_secret_is_masked(tmp_path):
    text = "pä\"ss\\w/rd\n&' x"
    keep(tmp_path / "pw", text.encode())
    secret("file:pw", tmp_path)
    for spelling in (text, json.dumps(text), json.dumps(text, ensure_ascii=False), repr(text), f"mysql://u:{quote(text, safe='')}@h"):
        masked = mask(f"<{spelling}>")
        assert masked.count("***") == 1, spelling
        assert len(masked) <= len("<mysql://u:***@h>"), spelling


def test_a_secret_within_another_is_masked_whole(tmp_path):
    for name, text in (("short", b"hunter"), ("long", b"hunter-2-marked")):
        keep(tmp_path / name, text)
        secret(f"file:{name}", tmp_path)
    assert mask("hunter-2-marked hunter") == "*** ***"


def test_a_very_short_secret_is_not_masked(tmp_path):
    keep(tmp_path / "pw", b"a")
    secret("file:pw", tmp_path)
    assert mask("a cat") == "a cat"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=10), st.text(min_size=10, max_size=30), st.binary(max_size=10), st.booleans())
def test_a_secret_inside_of_a_text_in_base64_is_masked(before, plain, after, url_safe):
    """As in the header of a request, where a password is between a user and nothing, or a key after its name."""
    secrets._spellings.clear()
    secrets.remember(plain)
    coded = (urlsafe_b64encode if url_safe else b64encode)(before + plain.encode() + after).decode()
    masked = mask(f"Authorization: Basic {coded}")
    assert MASK in masked
    # At most the characters at both ends are left, which also depend on the bytes around it.
    assert len(masked) - len("Authorization: Basic ") - len(MASK) <= 4 * (len(before) + len(after) + 4) / 3 + 4


def test_a_short_secret_hides_nothing_of_other_base64():
    secrets.remember("abcd")
    assert mask("YWJjZA== eFliY2Rl") == "YWJjZA== eFliY2Rl"
