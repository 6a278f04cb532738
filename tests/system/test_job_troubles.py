"""A daemon polls job_stats of six file systems: what is wrong with one of them is a state with a sentence, and the others go on."""

import json
import subprocess
import sys
import time

import pytest
from waiting import wait_for

from tokiod.jobs.rows import read

pytestmark = pytest.mark.system

WINDOW = 4
CONFIG = """\
timezone = "UTC"
[archive]
path = "{0}/tts/%Y-%m-%d/{{system}}.hdf5"
[bus]
endpoint = "ipc://{0}/run/private/bus"
[feed]
endpoint = "ipc://{0}/run/feed"
"""
SOURCE = """\
[[source]]
name = "{1}"
kind = "lustre_jobstats"
system = "{1}"
servers = ["{1}-oss1", "{1}-oss2"]
lctl = ["{0}/lctl", "{{server}}"]
window = "4s"
settle = "0s"
timeout = "3s"
command_timeout = "1s"
"""
# The second server of a file system is in the trouble that gives the file system its name; `moved`: OST0001 moves after some seconds.
LCTL = """\
#!{python}
import sys, time
begin, now = {begin}, time.time()
system, _, server = sys.argv[1].partition("-")
is_troubled = server == "oss2"
if "interval" in sys.argv[3]:
    if is_troubled:
        print(f"obdfilter.{{system}}-OST0001.job_cleanup_interval={{5 if system == 'short' else 600}}")
    sys.exit()
if is_troubled and system == "refuses":
    sys.exit("Permission denied (publickey)")
if is_troubled and system == "hangs":
    time.sleep(600)
def target(name):
    print(f"obdfilter.{{name}}.job_stats=\\njob_stats:")
    if is_troubled and system == "unknown":
        return print("- job_id: 4711\\n  work: {{ much: 1 }}")
    print(f"- job_id: 4711\\n  snapshot_time: {{int(now)}}.000000000 secs.nsecs\\n  start_time: {{begin}}.000000000 secs.nsecs")
    print(f"  write_bytes: {{{{ samples: {{int(now) - begin}}, unit: bytes, min: 1, max: 1, sum: {{10**6 * (int(now) - begin)}} }}}}")
is_moved = system == "moved" and int(now) // {window} % 4 == 3
if not is_troubled:
    target(f"{{system}}-OST0000")
if is_troubled != is_moved:
    target(f"{{system}}-OST0001")
"""
SENTENCES = {
    "healthy": "",
    "short": "1 targets, such as short-OST0001, remove idle jobs after 5 s: window must be at most half of that",
    "refuses": "Permission denied (publickey)",
    "hangs": "lctl has not ended within 1 s",
    "moved": "moved-OST0001 moved from moved-oss",
    "unknown": "unknown-OST0001: unknown format of job_stats",
}


class Troubles:
    def __init__(self, directory):
        self.directory, self.path, self.log = directory, directory / "tokiod.toml", directory / "log"
        (directory / "run").mkdir()
        self.path.write_text("\n".join([CONFIG.format(directory), *(SOURCE.format(directory, name) for name in SENTENCES)]))
        self.begin = int(time.time())
        (directory / "lctl").write_text(LCTL.format(python=sys.executable, begin=self.begin, window=WINDOW))
        (directory / "lctl").chmod(0o755)

    def tokioctl(self, *words):
        command = [sys.executable, "-P", "-m", "tokiod.cli.tokioctl", *words, "--config", str(self.path)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=100).stdout

    def windows(self, system):
        """The ends of the windows that are stored."""
        return [int(path.name.partition("@")[0].partition("-")[2]) for path in (self.directory / "tts/jobs" / system).rglob("*.jobs")]


def test_each_trouble_of_one_file_system_is_a_state_with_a_sentence_and_leaves_the_others_undisturbed(tmp_path):
    site = Troubles(tmp_path)
    command = [sys.executable, "-P", "-m", "tokiod.cli.tokiod", "run", "--config", str(site.path), "--log-level", "info"]
    with site.log.open("ab") as log:
        daemon = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        shown = {}

        def are_all_shown():
            """Return whether each source has had its sentence in the status, and stored some windows."""
            for line in json.loads(site.tokioctl("status", "--json"))["sources"]:
                sentence = SENTENCES[line["name"]]
                if line["state"] == "running" and line["trouble"] == ("partial" if sentence else "") and sentence in line["reason"]:
                    shown[line["name"]] = line
            return shown.keys() == SENTENCES.keys() and all(len(site.windows(name)) > 4 for name in SENTENCES)

        wait_for(are_all_shown, 60, f"not all sentences are shown; see {site.log}")
    finally:
        daemon.terminate()
        daemon.wait(100)
    # The server without trouble is read in each window, and what the other one counted is not lost: its next answer has it.
    assert shown["healthy"]["dropped"] == {}
    assert shown["refuses"]["dropped"].keys() == {"refuses-oss2: no answer"}
    assert shown["hangs"]["dropped"].keys() == {"hangs-oss2: no answer in time"}
    assert shown["unknown"]["dropped"].keys() == {"target with an unknown format of job_stats"}
    for name in SENTENCES:
        rows = read([*(site.directory / "tts/jobs" / name).iterdir()], 0, 2**40)
        targets = {f"{name}-OST0000", *([f"{name}-OST0001"] if name in {"healthy", "short", "moved"} else [])}
        assert {target.decode() for target in rows.targets[rows.target]} == targets
