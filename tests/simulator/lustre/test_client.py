import math
import re
from dataclasses import replace

import pytest

from collectors.lustre.datasets import AWAY
from tokiod.simulator.lustre import MOUNTS, SECOND, Lustre, LustreAnswers, LustreCommands
from tokiod.simulator.site import Site
from tokiod.window import Window

MIDNIGHT = 1_517_126_400
SITE = Site(MIDNIGHT - 1800, osts=18, osss=4, mdts=3)
FILE = Window(MIDNIGHT - 3600, MIDNIGHT + 7200)
STORED = [Window(FILE.start, MIDNIGHT), Window(MIDNIGHT + 600, MIDNIGHT + 6000)]
DF = [["lfs", "df", "-l", *inodes, mount] for mount in MOUNTS for inodes in ([], ["-i"])]
DL = ["lctl", "dl", "-t"]


def expected(site, stored):
    """Return {(dataset, column): {time: value}}, slowly, from what is printed at each moment."""
    commands, homes, found = LustreCommands(site), Lustre(site).homes(), {}
    times = [time for window in stored for time in range(window.start, window.end, site.moment)]
    for time in times:
        for argv in (*DF, DL):
            text = commands(argv, time + site.moment - 1).stdout
            for name, total, used in re.findall(r"^(\S+)_UUID +(\d+) +(\d+) .*\[(?:OST|MDT):\d+\]", text, re.MULTILINE):
                what = "inodes" if "-i" in argv else "bytes"
                found.setdefault((f"fullness/{what}", name), {})[time] = float(used)
                found.setdefault((f"fullness/{what}total", name), {})[time] = float(total)
            for name, nid in re.findall(r"^ *\d+ UP (?:osc|mdc) (\S+)-(?:osc|mdc)-ffff\S+ \S+ 5 (\d\S+)$", text, re.MULTILINE):
                kind = "failover/datatargets" if "-OST" in name else "failover/mdtargets"
                found.setdefault((kind, name), {})[time] = float(nid != homes[name])
                if "-OST" in name:
                    counts = found.setdefault(("failover/dataservers", nid), {})
                    counts[time] = counts.get(time, 0.0) + 1
    return found


@pytest.mark.parametrize(
    "site", [SITE, replace(SITE, seed=2), replace(SITE, moment=300), replace(SITE, trouble=False)], ids=["1", "2", "five", "calm"]
)
def test_every_cell_is_what_a_slow_reading_of_what_is_printed_makes_of_the_stored_windows(site):
    got = {}
    for name, answer in LustreAnswers(site, STORED).of(FILE).items():
        assert answer.timestamps.tolist() == list(range(FILE.start, FILE.end, site.moment))
        for column, values in zip(answer.columns, answer.values.T.tolist(), strict=True):
            cells = zip(answer.timestamps.tolist(), values, strict=True)
            got[name, column] = {time: value for time, value in cells if not math.isnan(value)}
    assert got == expected(site, STORED)
    away = {value for (name, _), cells in got.items() for value in cells.values() if name in AWAY}
    assert away == ({0.0, 1.0} if site.trouble else {0.0})
    assert len(got) == 4 * (18 + 3 + 6) + 18 + 3 + 6 + 4 + 2


def test_stored_windows_and_what_lies_before_the_first_are_determined():
    for answer in LustreAnswers(SITE, [Window(MIDNIGHT, MIDNIGHT + 120)], since=FILE.start + 60).of(FILE).values():
        assert answer.timestamps[answer.determined[:, 0]].tolist() == [FILE.start, MIDNIGHT, MIDNIGHT + 60]


def test_what_is_printed_stays_the_same_for_a_moment():
    commands = LustreCommands(SITE)
    for argv in (*DF, DL):
        assert len({commands(argv, MIDNIGHT + second) for second in range(60)}) == 1
        assert len({commands(argv, MIDNIGHT + 60 * minute) for minute in range(10)}) > 1


def test_everything_that_can_be_wrong_happens():
    commands = LustreCommands(SITE)
    replies = [commands(argv, MIDNIGHT + 60 * minute) for minute in range(600) for argv in DF]
    text = "".join(reply.stdout for reply in replies)
    for sign in (
        ": inactive device",
        ": Cannot send",
        "] D\n",
        "] RN\n",
        "filesystem summary:",
        "filesystem_summary:",
        f"{SECOND}-MDT0001_UUID",
    ):
        assert sign in text
    assert {reply.code for reply in replies} == {0, 5}
    assert any(reply.hangs for reply in replies)
    assert any(reply.code and not reply.stdout and reply.stderr for reply in replies)
    assert any(reply.code and reply.stdout for reply in replies)
    names = [set(re.findall(r"^snx1-OST\w+", commands(DF[0], MIDNIGHT + 60 * minute).stdout, re.MULTILINE)) for minute in range(600)]
    assert any(0 < len(rows) < 18 for rows in names)
    devices = [commands(DL, MIDNIGHT + 60 * minute) for minute in range(600)]
    assert any("<none>" in reply.stdout for reply in devices)
    assert {reply.hangs for reply in devices} == {True, False}
    assert "-OST0011-osc-ffff" in devices[0].stdout
    assert "[OST:17]" in text


@pytest.mark.parametrize("wrong", [["lfs"], ["lctl", "dl"], ["lfs", "df", "-l", "/home"]])
def test_what_they_do_not_know_they_refuse(wrong):
    reply = LustreCommands(SITE)(wrong, MIDNIGHT)
    assert reply.code
    assert not reply.stdout
    assert reply.stderr
