"""Handshakes in memory between the client's context and servers that it must and must not trust."""

import ssl
import subprocess

import pytest

from tokiod.toolkit.tls import client_context


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    directory = tmp_path_factory.mktemp("certificates")
    for name in ("trusted", "other"):
        wanted = f"req -x509 -newkey rsa:2048 -nodes -subj /CN={name} -addext subjectAltName=DNS:server.example -days 2"
        command = ["openssl", *wanted.split(), "-keyout", f"{name}.key", "-out", f"{name}.pem"]
        subprocess.run(command, check=True, capture_output=True, cwd=directory)
    return directory


def handshake(client, directory, name, host="server.example", *, wants_certificate=False):
    """Return the client's certificate as the server sees it; raises SSLError where either side refuses."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / f"{name}.pem", directory / f"{name}.key")
    if wants_certificate:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(directory / "other.pem")
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [client.wrap_bio(back, there, server_hostname=host), context.wrap_bio(there, back, server_side=True)]
    for _ in range(4):
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return sides[1].getpeercert()


def test_a_server_is_trusted_by_its_authority_and_its_name(certificates):
    context = client_context(str(certificates / "trusted.pem"))
    handshake(context, certificates, "trusted")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(context, certificates, "other")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(context, certificates, "trusted", "another.example")


def test_a_client_certificate_is_shown_where_the_server_wants_one(certificates):
    ca = str(certificates / "trusted.pem")
    own = client_context(ca, str(certificates / "other.pem"), str(certificates / "other.key"))
    assert dict(pair for (pair,) in handshake(own, certificates, "trusted", wants_certificate=True)["subject"]) == {"commonName": "other"}
    with pytest.raises(ssl.SSLError):
        handshake(client_context(ca), certificates, "trusted", wants_certificate=True)


def test_a_missing_file_is_an_oserror(tmp_path):
    with pytest.raises(FileNotFoundError):
        client_context(str(tmp_path / "ca.pem"))
