"""The subreaper ends the orphans of a killed child, and no other process."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from waiting import wait_for

GRANDPARENT = """
import json, signal, subprocess, sys, time
from tokiod.supervisor import subreaper
preexisting = subprocess.Popen(["sleep", "600"])
before = subreaper.become_subreaper()
child = subprocess.Popen([sys.executable, "-c", '''
import subprocess, sys
group = subprocess.Popen(["sh", "-c", "sleep 600 & echo $! $$; wait"], stdout=subprocess.PIPE, start_new_session=True)
print(group.stdout.readline().decode(), flush=True)
group.wait()
'''], stdout=subprocess.PIPE)
part, leader = map(int, child.stdout.readline().split())
own = {*before, child.pid}
untouched = subreaper.end_orphans(own)
child.kill()
child.wait()
killed = subreaper.end_orphans(own)
time.sleep(0.5)
subreaper.reap_orphans(own)
print(json.dumps({"preexisting": preexisting.pid, "before": list(before), "untouched": untouched, "part": part,
                  "leader": leader, "killed": killed}),
      flush=True)
time.sleep(600)
"""


def is_there(pid):
    return Path(f"/proc/{pid}").exists()


def test_a_command_whose_collectors_were_killed_is_ended_with_its_process_group_and_no_other_process_is():
    with subprocess.Popen([sys.executable, "-c", GRANDPARENT], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as grandparent:
        seen = json.loads(next(line for line in grandparent.stdout if line.startswith(b"{")))
        try:
            assert (seen["before"], seen["untouched"], seen["killed"]) == ([seen["preexisting"]], [], [seen["leader"]])
            wait_for(lambda: not is_there(seen["leader"]) and not is_there(seen["part"]), 5, "what it left behind is still there")
            assert is_there(seen["preexisting"])
        finally:
            grandparent.kill()
            os.kill(seen["preexisting"], signal.SIGKILL)
