"""`make nodes`: agents with real sockets and keys while hub, writer, collectors and network are killed; every cell compared."""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from node_agents import STEP
from node_site import NodeSite

VICTIMS = ("hub", "writer", "collectors", "network")
LIMIT_SECONDS = 3600


def run(directory, nodes, processes, kills, seed, rate):
    """Kill at random instants, wait until all is healed, and return what was compared, lost and different, and the rates.

    The rates are those after the first kill: all agents start in one moment, before the hub.
    """
    chance = random.Random(seed)
    site = NodeSite(directory, nodes, processes, rate)
    try:
        _until(lambda: site.stored_until() > site.first, "no window was stored")
        done, begun = 0, time.time()
        while done < kills:
            time.sleep(chance.uniform(0.2, 3.0))
            done += site.kill(chance.choice(VICTIMS))
        # The last recount is 45 minutes after a window was stored.
        end = int(site.clock.time()) // STEP * STEP
        _until(lambda: site.stored_until() >= end, f"windows before {end} were not stored")
        _until(lambda: site.wrong(end)[1:] == (0, 0) or site.clock.time() > end + 3600, "wrong cells", pause=2.0)
        return (*site.wrong(end), {second: of for second, of in site.rates().items() if second > begun})
    finally:
        site.close()


def _until(condition, message, pause=0.3):
    deadline = time.monotonic() + LIMIT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(message)
        time.sleep(pause)


def main():
    """Run the command line."""
    parser = argparse.ArgumentParser()
    for name, default in (("--nodes", 2000), ("--processes", 20), ("--kills", 100), ("--seed", random.randrange(10**6))):
        parser.add_argument(name, type=int, default=default)
    parser.add_argument("--rate", type=float, default=20.0)
    given = parser.parse_args()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="nodes") as directory:
        site = Path(directory), given.nodes, given.processes
        compared, lost, different, rates = run(*site, given.kills, given.seed, given.rate)
    dials, answers = (sorted(of[index] for of in rates.values()) for index in (0, 1))
    print(f"nodes {given.nodes} kills {given.kills} seed {given.seed} cells {compared} lost {lost} different {different}", end=" ")
    print(
        f"dials/s most {dials[-1]} answers/s most {answers[-1]}, at {given.rate:g} times the speed; seconds {time.monotonic() - begun:.0f}"
    )
    return 1 if lost or different else 0


if __name__ == "__main__":
    sys.exit(main())
