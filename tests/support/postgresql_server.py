"""A real PostgreSQL on a Unix socket, for one run of tests. It refuses to run as root, so root runs it as the user nobody."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

NOBODY = "nobody"
SECONDS = "120"


def programs():
    """Return the directory with initdb and pg_ctl, or None."""
    places = [Path(found).parent for found in [shutil.which("initdb")] if found]
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((place for place in places if (place / "initdb").exists()), None)


class PostgreSql:
    """A context manager. connection: what libpq takes."""

    def __enter__(self):
        self._directory = Path(tempfile.mkdtemp(prefix="tokiod-postgresql-"))
        self._data = str(self._directory / "data")
        self.connection = f"host={self._directory} user=tokiod dbname=postgres"
        with contextlib.ExitStack() as undo:
            undo.callback(shutil.rmtree, self._directory, ignore_errors=True)
            if os.geteuid() == 0:
                shutil.chown(self._directory, NOBODY)
            self._run("initdb", "--username=tokiod", "--auth=trust", "--no-sync", "--pgdata", self._data)
            options = f"-c listen_addresses= -c unix_socket_directories={self._directory} -c fsync=off"
            self._control("start", "--log", str(self._directory / "log"), "--options", options)
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *_):
        with self._undo:
            self._control("stop", "--mode", "immediate")

    def _control(self, command, *arguments):
        self._run("pg_ctl", command, "--wait", "--timeout", SECONDS, "--pgdata", self._data, *arguments)

    def _run(self, program, *arguments):
        who = ["setpriv", f"--reuid={NOBODY}", "--regid=nogroup", "--clear-groups"] if os.geteuid() == 0 else []
        # Not through pipes: the server keeps those of pg_ctl open.
        with (self._directory / "console.log").open("ab") as log:
            command = [*who, str(programs() / program), *arguments]
            done = subprocess.run(command, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False)
        assert done.returncode == 0, (self._directory / "console.log").read_text()
