"""moto's server, which stands in for the S3-compatible store of a site: real HTTP and multipart uploads; rights are not checked."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest
from waiting import wait_for

from tokiod.simulator.sources import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

ACCESS, SECRET = "test-access", "test-secret-key"


@contextmanager
def s3_server(bucket: str) -> Iterator[str]:
    """Run a server with a bucket; yield its address."""
    if find_spec("moto") is None:
        reason = "moto is not installed: pip install '.[test]'"
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
    port = free_port()
    server = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    address = f"http://127.0.0.1:{port}"
    try:
        wait_for(lambda: _answers(address), 30, "moto's server does not answer")
        _put(f"{address}/{bucket}")
        yield address
    finally:
        server.kill()
        server.wait()


@contextmanager
def checked_rights(address: str) -> Iterator[None]:
    """Let a server refuse all keys that it did not give out itself, which is each."""
    _post(f"{address}/moto-api/reset-auth", b"0")
    try:
        yield
    finally:
        _post(f"{address}/moto-api/reset-auth", b"inf")


def _post(url: str, body: bytes) -> None:
    with urlopen(Request(url, body, {"Content-Type": "text/plain"}, method="POST"), timeout=30):
        pass


def _answers(address: str) -> bool:
    try:
        with urlopen(f"{address}/moto-api/data.json", timeout=5):
            return True
    except (URLError, OSError):
        return False


def _put(url: str) -> None:
    with urlopen(Request(url, method="PUT"), timeout=30):
        pass
