"""A writer process for tests: stores each window as one synced line of a file, and can die at a given step of its work.

usage: echo_writer.py ENDPOINT FILE [STEP AFTER]    STEP: received, stored or acknowledged; AFTER: so many windows
"""

import json
import os
import signal
import sys
import time
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

from tokiod.bus.receiver import Arrived, Receiver


def line(arrived: Arrived) -> str:
    collected = arrived.collected
    digest = sha256()
    for batch in collected.batches:
        digest.update(f"{batch.dataset} {batch.form} {batch.step} {batch.columns}".encode())
        for array in (batch.time, batch.column, batch.value):
            digest.update(array.tobytes())
    return json.dumps([collected.meta.source, collected.meta.window.start, collected.meta.window.end, digest.hexdigest()])


def main(endpoint: str, path: Path, step: str = "", after: int = 0) -> None:
    def at(here: str) -> None:
        nonlocal after
        if here == step:
            after -= 1
            if after == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    with Receiver(endpoint, uuid4().hex) as receiver, path.open("a") as file:
        beaten = 0.0
        while True:
            for arrived in receiver.poll(50):
                at("received")
                file.write(line(arrived) + "\n")
                file.flush()
                os.fsync(file.fileno())
                at("stored")
                receiver.ack(arrived, sum(len(batch) for batch in arrived.collected.batches), {})
                at("acknowledged")
            if time.monotonic() - beaten > 0.05:
                beaten = time.monotonic()
                receiver.beat()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:4], *map(int, sys.argv[4:5]))
