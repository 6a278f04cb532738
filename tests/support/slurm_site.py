"""A real Slurm for tests: munged, slurmdbd over a MariaDB, slurmctld and slurmd of one node, all of this user and on loopback."""

import contextlib
import getpass
import os
import secrets
import shutil
import socket
import subprocess
import time

from tokiod.simulator.sources import free_port

PATH = f"{os.environ['PATH']}:/usr/sbin"
SERVERS = ("munged", "slurmdbd", "slurmctld", "slurmd", "sacct", "sacctmgr", "sbatch", "scontrol")
START_SECONDS = 120
CONFIGURATION = """\
ClusterName=tokiod
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={slurmctld}
SlurmdPort={slurmd}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={directory}/munge.socket
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={slurmdbd}
AccountingStoragePass={directory}/munge.socket
JobAcctGatherType=jobacct_gather/none
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP MaxTime=INFINITE
"""
DATABASE = """\
AuthType=auth/munge
AuthInfo=socket={directory}/munge.socket
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={slurmdbd}
SlurmUser={user}
PidFile={directory}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={storage}
StorageUser=slurm
StoragePass={password}
StorageLoc=slurm
"""


class Slurm:
    """A Slurm with its files in a directory; `mariadb` is a running MariaDb. Use it as a context manager."""

    def __init__(self, directory, mariadb):
        self.directory, self._mariadb = directory, mariadb
        self.password = secrets.token_hex(8)
        self._processes = []
        self.environment = {**os.environ, "PATH": PATH, "SLURM_CONF": str(directory / "slurm.conf")}

    async def fill(self):
        """Create the database."""
        await self._mariadb.execute(
            "CREATE DATABASE slurm",
            f"CREATE USER slurm@'127.0.0.1' IDENTIFIED BY '{self.password}'",
            "GRANT ALL ON slurm.* TO slurm@'127.0.0.1'",
        )

    def __enter__(self):
        for name in ("state", "spool"):
            (self.directory / name).mkdir()
        values = {"directory": self.directory, "host": socket.gethostname().partition(".")[0], "user": getpass.getuser()}
        values |= {name: free_port() for name in ("slurmctld", "slurmd", "slurmdbd")}
        self._write("slurm.conf", CONFIGURATION.format(**values), 0o644)
        self._write("slurmdbd.conf", DATABASE.format(**values, storage=self._mariadb.port, password=self.password), 0o600)
        key = self.directory / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        try:
            places = [
                f"--{name}={self.directory}/munge.{name.partition('-')[0]}" for name in ("key-file", "socket", "pid-file", "seed-file")
            ]
            self._start("munged", "--foreground", "--force", f"--log-file={self.directory}/munged.txt", *places)
            self._until((self.directory / "munge.socket").exists)
            self._start("slurmdbd", "-D")
            self._until(lambda: self.answers("sacctmgr", "-i", "add", "cluster", "tokiod"))
            self._start("slurmctld", "-D", "-i")
            self._until(lambda: self.answers("scontrol", "ping"))
            self._start("slurmd", "-D")
            self._until(lambda: "idle" in self.run("sinfo", "--noheader", "--format=%T"))
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        """End all daemons, the last one first."""
        for process in reversed(self._processes):
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def run(self, *words):
        """Run a command of Slurm; return what it prints."""
        done = subprocess.run(words, env=self.environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def answers(self, *words):
        """Whether a command succeeds."""
        return subprocess.run(words, env=self.environment, capture_output=True, check=False).returncode == 0

    def ended(self, *options, script):
        """Submit a batch job, wait for its end and until the accounting knows it, and return its ID."""
        jobid = self._submit("--wait", *options, script=script)
        self._until(lambda: (ends := self._recorded(jobid, "End")) and "Unknown" not in ends)
        return jobid

    @contextlib.contextmanager
    def unfinished(self, *options, state):
        """Submit a batch job that doesn't end and wait until the accounting knows its state; give its ID and cancel it after the block."""
        jobid = self._submit(*options, script="exec sleep 1000")
        try:
            self._until(lambda: self._recorded(jobid, "State") == {state})
            yield jobid
        finally:  # the node runs one job at a time: the next one would wait for this one
            self.run("scancel", jobid)

    def _submit(self, *options, script):
        return self.run("sbatch", "--parsable", "--output=/dev/null", *options, f"--wrap={script}").strip()

    def _recorded(self, jobid, field):
        """Return the values of a field in the accounting's records of a job, none until all of them are complete."""
        # slurmctld sends to slurmdbd some time after it answered. slurmdbd gets the end of a short job before its start, and adds
        # the directory seconds later.
        lines = [line.split("|") for line in self.run("sacct", "-n", "-P", "-X", "-j", jobid, f"--format={field},WorkDir").splitlines()]
        return {value for value, _ in lines} if all(directory for _, directory in lines) else set()

    def _write(self, name, text, mode):
        path = self.directory / name
        path.write_text(text)
        path.chmod(mode)

    def _start(self, name, *options):
        with (self.directory / f"{name}.log").open("ab") as log:
            command = [shutil.which(name, path=PATH), *options]
            self._processes.append(subprocess.Popen(command, env=self.environment, stdout=log, stderr=log, cwd=self.directory))

    def _until(self, holds):
        deadline = time.monotonic() + START_SECONDS
        while not holds():
            logs = {path.name: path.read_text(errors="replace")[-2000:] for path in self.directory.glob("*.log")}
            assert all(process.poll() is None for process in self._processes), logs
            assert time.monotonic() < deadline, logs
            time.sleep(0.1)


def missing():
    """Return why there is no Slurm here, "" if it is installed."""
    absent = [name for name in SERVERS if not shutil.which(name, path=PATH)]
    return f"Slurm is not installed ({', '.join(absent)}): apt-get install slurmctld slurmd slurmdbd slurm-client munge" if absent else ""
