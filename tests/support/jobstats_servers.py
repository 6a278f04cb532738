"""Servers of a Lustre file system whose lctl is a script, and what jobs did on them."""

import jobstats_text

from collectors import lustre_jobstats
from tokiod.collector import Site
from tokiod.testing.clock import FakeClock
from tokiod.window import Calendar, Window

START = 1_723_114_680
NOW = Window(START, START + 60)
SECOND = 10**9
OST0, OST1, MDT0 = "fs-OST0000", "fs-OST0001", "fs-MDT0000"


def job(identity, begin=-600, last=-5, **counts):
    given = {name: value if isinstance(value, tuple) else (value, 0) for name, value in counts.items()}
    return (
        identity.encode(),
        {"read_bytes": (0, 0), "write_bytes": (0, 0), "open": (0, 0)} | given,
        (START + last) * SECOND,
        (START + begin) * SECOND,
    )


class Servers:
    """Servers whose lctl prints files: SERVER.stats and SERVER.interval. A script of a server's own name comes before."""

    def __init__(self, directory):
        self.directory = directory
        self.clock = FakeClock(START + 2)
        lctl = directory / "lctl"
        lctl.write_text(
            f"#!/bin/sh\ncd {directory}\nserver=$1; shift\ntest -x $server && exec ./$server\n"
            'case "$*" in *cleanup*) cat $server.interval;; *) cat $server.stats;; esac\n'
        )
        lctl.chmod(0o755)
        self.show("oss1", {OST0: [job("7:1000:n1", write_bytes=(3, 300)), job("8:1001:n1", read_bytes=(2, 20))]})
        self.show("oss2", {OST1: [job("7:1000:n1", write_bytes=(5, 500))]})
        self.show("mds1", {MDT0: [job("7:1000:n1", open=4), job("bash.1000", open=1)]})

    def show(self, server, targets, interval=600, version="2.15"):
        (self.directory / f"{server}.stats").write_bytes(
            b"".join(jobstats_text.target(jobs, name, version=version) for name, jobs in targets.items())
        )
        kinds = {target: "mdt" if "-MDT" in target else "obdfilter" for target in targets}
        lines = [f"{kinds[target]}.{target}.job_cleanup_interval={interval}\n" for target in targets]
        (self.directory / f"{server}.interval").write_text("".join(lines))

    def script(self, server, text):
        path = self.directory / server
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def config(self, **options):
        given = {
            "servers": ("oss1", "oss2", "mds1"), "lctl": (f"{self.directory}/lctl", "{server}"), "jobid_name": ("%j:%u:%H", "%e.%u"),
            "command_timeout": 20,
        }  # fmt: skip
        return lustre_jobstats.Config(name="jobs", kind="lustre_jobstats", system="fs", **(given | options))

    def collector(self, **options):
        return lustre_jobstats.live(self.config(**options), Site(Calendar("UTC"), self.clock))
