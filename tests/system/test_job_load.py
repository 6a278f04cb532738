"""A daemon polls job_stats of two servers: top names the offender within two windows, and no user leaves it but as the site allows."""

import json
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
from waiting import wait_for
from web_site import WebProcess

pytestmark = pytest.mark.system

WINDOW = 10
CONFIG = """\
timezone = "UTC"
[archive]
path = "{0}/tts/%Y-%m-%d/{{system}}.hdf5"
[bus]
endpoint = "ipc://{0}/run/private/bus"
[feed]
endpoint = "ipc://{0}/run/feed"
[web]
address = "{0}/http"
[jobs]
users = "{1}"
users_in = ["page", "export"]
{2}
[[source]]
name = "fs-jobs"
kind = "lustre_jobstats"
system = "fs"
servers = ["oss1", "mds1"]
lctl = ["{0}/lctl", "{{server}}"]
jobid_name = ["%j:%u:%H", "%e.%u"]
window = "10s"
command_timeout = "5s"
"""
# Each job's counts grow with the time since the script was made: 4711 writes 1 GB/s, and a command of another user opens most files.
LCTL = """\
#!{python}
import sys, time
begin, now = {begin}, time.time()
seconds = int(now - begin)
def job(name, *lines):
    print(f"- job_id: {{name}}\\n  snapshot_time: {{int(now)}}.000000000 secs.nsecs\\n  start_time: {{begin}}.000000000 secs.nsecs")
    print(*lines, sep="\\n")
def written(rate):
    return f"  write_bytes: {{{{ samples: {{seconds}}, unit: bytes, min: 1, max: 1, sum: {{rate * seconds}} }}}}"
if "interval" in sys.argv[3]:
    sys.exit()
if sys.argv[1] == "oss1":
    print("obdfilter.fs-OST0000.job_stats=\\njob_stats:")
    job("4711:2031337111:nid00012", written(10**9))
    job("4712:2031337111:nid00013", written(10**6))
    job("4713:2031337222:nid00014", written(10**5))
else:
    print("mdt.fs-MDT0002.job_stats=\\njob_stats:")
    job("secretcmd.2031337333", f"  open: {{{{ samples: {{5000 * seconds}}, unit: reqs }}}}")
    job("4711:2031337111:nid00012", f"  open: {{{{ samples: {{seconds}}, unit: reqs }}}}")
"""
SECRETS = ("2031337111", "2031337222", "2031337333", "secretcmd")


class JobSite(WebProcess):
    def __init__(self, directory, users):
        super().__init__(directory / "tokiod.toml", directory / "http", directory / "log")
        self.directory = directory
        (directory / "run").mkdir()
        (directory / "key").write_text("a secret of the site, of sixteen characters and more")
        (directory / "key").chmod(0o400)
        self.path.write_text(CONFIG.format(directory, users, 'key_file = "key"' if users == "hashed" else ""))
        self.begin = int(time.time())
        (directory / "lctl").write_text(LCTL.format(python=sys.executable, begin=self.begin))
        (directory / "lctl").chmod(0o755)

    @contextmanager
    def running(self):
        command = [sys.executable, "-P", "-m", "tokiod.cli.tokiod", "run", "--config", str(self.path), "--log-level", "debug"]
        with self.log.open("ab") as log:
            daemon = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            yield
        finally:
            daemon.terminate()
            daemon.wait(100)

    def tokioctl(self, *words, code=0):
        command = [sys.executable, "-P", "-m", "tokiod.cli.tokioctl", *words, "--config", str(self.path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
        assert code is None or done.returncode == code, done.stderr
        return done

    def windows(self):
        """The windows of the table that are stored: their begins."""
        return sorted({int(path.name.partition("-")[0]) for path in self.directory.rglob("*.jobs")})


@pytest.mark.parametrize("users", ["names", "hashed", "no"])
def test_the_offender_is_named_within_two_windows_and_users_are_shown_as_configured(tmp_path, users):
    site = JobSite(tmp_path, users)
    with site.running():
        wait_for(lambda: len(site.windows()) >= 3, 120, "no windows of the job table")
        done = site.tokioctl("top", "fs", "--by", "write", "--json")
        found = json.loads(done.stdout)
        assert found["end"] - found["start"] == 2 * WINDOW
        assert found["lines"][0]["job"] == "4711"
        assert found["lines"][0]["rate"] == pytest.approx(10**9, rel=0.5)
        opens = json.loads(site.tokioctl("top", "fs", "--by", "metadata", "--target", "MDT0002", "--json").stdout)
        assert opens["lines"][0]["command"] == ("secretcmd" if users == "names" else opens["lines"][0]["command"])
        assert opens["lines"][0]["rate"] == pytest.approx(5000, rel=0.5)
        texts = [done.stdout, site.tokioctl("top", "fs").stdout, *outputs(site, users)]
        with site.served(f"{time.time()}@{time.time()}x1"):
            for by in ("write", "open"):
                answer = site.get(f"/api/v1/jobs?system=fs&start=-1h&by={by}")
                assert answer.status == 200, answer.body
                texts.append(answer.body.decode())
    if users == "names":
        assert all(any(secret in text for text in texts) for secret in SECRETS)
        return
    texts += [path.read_bytes().decode("latin-1") for path in tmp_path.rglob("*") if path.is_file() and path.name != "lctl"]
    assert not [secret for secret in SECRETS for text in texts if secret in text]
    rows = json.loads(texts[0])["lines"]
    of = {one["job"]: one["user"] for one in rows}
    if users == "hashed":
        assert of["4711"] == of["4712"] != of["4713"]
        assert len(of["4711"]) == 16
    else:
        assert set(of.values()) == {""}


def outputs(site, users):
    """What other commands print."""
    yield site.tokioctl("export", "fs", "jobs/operations", "--start", "1h").stdout
    yield site.tokioctl("export", "fs", "jobs/operations", "--start", "1h", "--json").stdout
    yield site.tokioctl("top", "fs", "--user", code=None if users == "no" else 0).stdout
    yield site.tokioctl("status", "--json", code=None).stdout
