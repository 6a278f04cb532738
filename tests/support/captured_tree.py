"""Captured files of nodes, tests/agent/trees/*.ttar, in the text form of prometheus/procfs."""

from pathlib import Path

from tokiod.agent.sampler import Sampler
from tokiod.agent.sensors import SENSORS
from tokiod.agent.tree import Tree

TREES = Path(__file__).parents[1] / "agent" / "trees"
NAMES = sorted(path.stem for path in TREES.glob("*.ttar"))
TICKS = {"cpu": (100,), "paging": (4096,)}
"""Of the machines that were captured."""


def sampler(root):
    """Return a sampler of all sensors that reads a tree."""
    return Sampler([sensor(Tree(str(root)), *TICKS.get(sensor.name, ())) for sensor in SENSORS])


def unpack(name, root):
    """Write the files of a captured tree below a directory, and return it."""
    lines = iter((TREES / f"{name}.ttar").read_text().splitlines())
    for line in lines:
        if line.startswith("#"):
            continue
        path = root / line.removeprefix("Path: ")
        path.parent.mkdir(parents=True, exist_ok=True)
        kind, _, rest = next(lines).partition(": ")
        if kind == "SymlinkTo":
            path.symlink_to(rest)
        else:
            path.write_text("".join(f"{next(lines)}\n" for _ in range(int(rest))))
    return root
