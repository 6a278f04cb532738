"""A source of LMT and a daemon that run as the service's user, in a directory that every user can enter."""

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager

from forked import ForkedPrograms
from users import ENVIRONMENT, READERS, SERVICE, USERS, python
from waiting import wait_for

from tokiod.cli.tokioctl import main as tokioctl
from tokiod.cli.tokiod import main as tokiod
from tokiod.clock import SimulatedClock
from tokiod.config import load as configuration
from tokiod.errors import TokiodError
from tokiod.simulator.sources import free_port

MIDNIGHT = 1_517_184_000
CONFIG = """\
timezone = "UTC"
sink_state = "{0}/sinks"
[archive]
path = "{0}/state/tts/%Y-%m-%d/{{system}}.hdf5"
keep_live_days = 30  # so that only commands seal
[bus]
endpoint = "ipc://{0}/run/private/bus"
[feed]
endpoint = "ipc://{0}/run/feed"
[web]
address = "127.0.0.1:{1}"
[[source]]
name = "one-lmt"
kind = "lmt"
system = "one"
url = "sqlite://{0}/source/lmt.sqlite3"
window = "10s"
settle = "10s"
retention = "40m"
"""


class UserSite:
    """A source and a daemon that run as the service's user; every user has a directory of its own, with a copy of the source.

    sections: more text of the configuration, with {0} for the directory; service: the user, with the groups that it has; cwd: where the
    programs are started.
    """

    def __init__(self, directory, sections="", service=USERS["service"], cwd="/"):
        self.directory, self.service, self.cwd = directory, service, cwd
        self.clock = SimulatedClock(MIDNIGHT + 900.0, time.time(), 1)
        self.tomorrow = SimulatedClock(MIDNIGHT + 2 * 86400.0, time.time(), 1)
        self.path = directory / "tokiod.toml"
        self.path.write_text((CONFIG + sections).format(directory, free_port()))
        self.config = configuration.load(self.path)
        for name, mode in (("state", 0o750), ("run", 0o750), ("source", 0o700), ("sinks", 0o750)):
            (directory / name).mkdir()
            (directory / name).chmod(mode)
            os.chown(directory / name, SERVICE, READERS)
        for name, user in USERS.items():
            (directory / name).mkdir(mode=0o700)
            os.chown(directory / name, user.uid, user.gid)
        self.log = directory / "log"
        self.daemon = self.simulator = None
        self.programs = ForkedPrograms(python(), ENVIRONMENT)

    @contextmanager
    def running(self):
        """Run source and daemon."""
        try:
            self.start_source()
            self.start_daemon()
            yield self
        finally:
            self.stop()

    def start(self, *words):
        """Start a program as the service's user."""
        command = self.service.command(python(), "-P", "-m", *words)
        with self.log.open("ab") as log:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.cwd, env=ENVIRONMENT)

    def start_source(self):
        database = self.directory / "source" / "lmt.sqlite3"
        options = ["--osts", "4", "--osss", "2", "--mdts", "1", "--timezone", "UTC", "--history", "30m", "--no-trouble"]
        self.simulator = self.start("tokiod.simulator", "lmt", "--database", str(database), "--clock", str(self.clock), *options)
        wait_for(lambda: database.exists() and database.stat().st_size > 0, 60, f"no source: {self.log}")
        for name, user in USERS.items():
            wait_for(lambda name=name: self.copied(name), 60, "the source can't be copied")
            os.chown(self.directory / name / "copy.sqlite3", user.uid, user.gid)

    def copied(self, name):
        """Make a copy of the source that is complete in itself."""
        code = "import sqlite3, sys\nwith sqlite3.connect(sys.argv[1]) as a, sqlite3.connect(sys.argv[2]) as b: a.backup(b)"
        target = self.directory / name / "copy.sqlite3"
        done = subprocess.run([sys.executable, "-c", code, self.directory / "source/lmt.sqlite3", target], check=False, capture_output=True)
        return done.returncode == 0 and target.stat().st_size > 10_000

    def start_daemon(self):
        self.daemon = self.start("tokiod.cli.tokiod", "run", "--config", str(self.path), "--clock", str(self.clock))
        try:
            wait_for(self.is_complete, 90, "not complete")
        except TokiodError:
            print(self.log.read_text()[-5000:])
            raise

    def is_complete(self):
        """Whether the daemon is ready and the past of the source is stored."""
        if self.run("root", "tokioctl", "ping").returncode != 0:
            return False
        done = self.run("root", "tokioctl", "gaps", "one-lmt", "--json")
        return done.returncode in {0, 1} and sum(gap["end"] - gap["start"] for gap in json.loads(done.stdout)) < 60

    def stop(self):
        for process in (self.daemon, self.simulator):
            if process is not None:
                process.terminate()
                process.wait(200)
        self.daemon = self.simulator = None
        self.programs.close()

    def stop_daemon(self):
        self.daemon.terminate()
        assert self.daemon.wait(200) == 0
        self.daemon = None

    def words(self, program, *words):
        """The arguments of one of our programs, with the configuration and the clock where it takes them."""
        main = {"tokiod": tokiod, "tokioctl": tokioctl}[program]
        names = {option for parameter in main.get_command(None, words[0]).params for option in parameter.opts}
        options = ["--config", str(self.path)] if "--config" in names else []
        options += ["--clock", str(self.clock)] if "--clock" in names else []
        return [*words, *options]

    def run(self, user, program, *words):
        return self.programs.run(USERS[user], program, *self.words(program, *words))
