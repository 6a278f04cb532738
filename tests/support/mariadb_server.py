"""A real MariaDB for tests and benchmarks."""

import asyncio
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time

import asyncmy

from tokiod.simulator.sources import free_port

PATH = f"{os.environ['PATH']}:/usr/sbin"
START_SECONDS = 120


class MariaDb:
    """A MariaDB on a loopback port, with its data in a directory."""

    def __init__(self, directory):
        self.directory = directory
        self.socket = str(directory / "socket")
        self.port = free_port()
        self._user = pwd.getpwuid(os.geteuid()).pw_name
        self._process = None

    def install(self):
        command = ["mariadb-install-db", "--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]
        run = subprocess.run(
            [shutil.which(command[0], path=PATH), *command[1:], f"--user={self._user}", f"--datadir={self.directory / 'data'}"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, run.stdout + run.stderr

    def start(self, *options):
        own = ["--bind-address=127.0.0.1", "--skip-name-resolve", "--innodb-flush-log-at-trx-commit=2", "--innodb-buffer-pool-size=128M"]
        places = [f"--datadir={self.directory / 'data'}", f"--socket={self.socket}", f"--pid-file={self.directory / 'pid'}"]
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    shutil.which("mariadbd", path=PATH),
                    "--no-defaults",
                    f"--user={self._user}",
                    f"--port={self.port}",
                    *places,
                    *own,
                    *options,
                ],
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            assert self._process.poll() is None, (self.directory / "log").read_text()
            assert time.monotonic() < deadline, (self.directory / "log").read_text()
            time.sleep(0.05)

    def _answers(self):
        """Return whether it accepts connections: on a busy machine, its port is there before its socket is."""
        with socket.socket() as port, socket.socket(socket.AF_UNIX) as own:
            return port.connect_ex(("127.0.0.1", self.port)) == 0 and own.connect_ex(self.socket) == 0

    def signal(self, number):
        """Send the server a signal; return when it is gone after SIGKILL, and when all of its threads stand still after SIGSTOP."""
        self._process.send_signal(number)
        if number == signal.SIGKILL:
            self._process.wait()
        elif number == signal.SIGSTOP:
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WNOWAIT)

    def stop(self):
        self._process.send_signal(signal.SIGCONT)
        self._process.terminate()
        try:
            self._process.wait(100)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    async def execute(self, *statements, database=None, rows=()):
        """Run statements as root; with `rows`, the only statement for each of them. Return the rows of the last."""
        connection = await asyncmy.connect(unix_socket=self.socket, user="root", database=database, autocommit=not rows)
        try:
            async with connection.cursor() as cursor:
                if rows:
                    await cursor.executemany(statements[0], rows)
                    await connection.commit()
                    return []
                for statement in statements:
                    await cursor.execute(statement)
                return await cursor.fetchall()
        finally:
            await connection.ensure_closed()

    def load(self, database, schema, tables):
        """Create a database with the statements of `schema` and insert {table: rows}."""
        run = lambda *statements, **options: asyncio.run(self.execute(*statements, **options))  # noqa: E731 - used four times
        run(f"CREATE OR REPLACE DATABASE {database}")
        run(*(statement for statement in schema.split(";") if statement.strip()), database=database)
        for table, rows in tables.items():
            for start in range(0, len(rows), 20_000):
                part = rows[start : start + 20_000]
                run(f"INSERT INTO {table} VALUES ({', '.join(['%s'] * len(part[0]))})", database=database, rows=part)


def installed():
    """Whether MariaDB is installed."""
    return all(shutil.which(name, path=PATH) for name in ("mariadbd", "mariadb-install-db"))
