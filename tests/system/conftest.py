"""Real servers for the tests that need one."""

import os

import pytest
from mariadb_server import MariaDb, installed


@pytest.fixture(scope="session")
def mariadb(tmp_path_factory):
    """A running MariaDB; a test that stops it starts it again."""
    if not installed():
        reason = "mariadbd is not installed: apt-get install mariadb-server"
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
    server = MariaDb(tmp_path_factory.mktemp("mariadb"))
    server.install()
    server.start()
    yield server
    server.stop()
