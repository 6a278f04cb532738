import math
import re
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from tokiod.simulator.gpfs import GpfsAnswers, Mmperfmon
from tokiod.simulator.site import Site
from tokiod.window import Window

MIDNIGHT = 1_517_126_400
EPOCH = MIDNIGHT - 1795
SITE = Site(EPOCH, nsds=7, nsd_servers=3)
FILE = Window(MIDNIGHT - 3600, MIDNIGHT + 3600)
DISKS = "gpfs_nsdds_bytes_read,gpfs_nsdds_bytes_written,gpfs_nsdds_read_ops,gpfs_nsdds_write_ops"
NAMES = {
    "cpu_user": "cpuuser", "cpu_sys": "cpusys", "mem_total": "memtotal", "mem_free": "memfree", "net_r": "netinbytes",
    "net_s": "netoutbytes", "gpfs_nsdds_bytes_read": "readbytes", "gpfs_nsdds_bytes_written": "writebytes",
    "gpfs_nsdds_read_ops": "readops", "gpfs_nsdds_write_ops": "writeops",
}  # fmt: skip
BYTES = {"kB": 1024, "MB": 1024**2, "GB": 1024**3}
LATER = MIDNIGHT + 10_000


def line(query, begin=FILE.start, end=FILE.end):
    times = [datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d-%H:%M:%S") for time in (begin, end)]
    return ["mmperfmon", "query", query, *times, "-b", "60"]


def states(site):
    """Return what the command does at many moments, by what is wrong."""
    tell = Mmperfmon(site)
    found = {}
    for now in range(LATER, LATER + 60 * 300, 60):
        reply = tell(line("cpu_user", MIDNIGHT, MIDNIGHT), now)
        whole = reply.stdout.endswith("\n")
        found.setdefault("hang" if reply.hangs else "error" if reply.code else "whole" if whole else "cut", (now, reply))
    return found


def printed(site, query):
    """Return what is printed at a time at which nothing is wrong, of all tables: legend, and rows of (stamp, cells)."""
    now = states(site)["whole"][0]
    text = Mmperfmon(site)(line(query), now).stdout
    legend = re.findall(r"^ *\d+:\t(\S+)$", text, re.MULTILINE)
    tables = [
        re.findall(r"^ +(\d+) (\S+) (.*) $", table, re.MULTILINE) for table in re.split(r"^Row +Timestamp ", text, flags=re.MULTILINE)[1:]
    ]
    assert len({tuple(row[:2] for row in table) for table in tables}) == 1
    rows = [
        (parts[0][1], [cell for part in parts for cell in re.findall(r"(?:null|[\d.]+)(?: [kMG]B)?", part[2])])
        for parts in zip(*tables, strict=True)
    ]
    assert {len(cells) for _, cells in rows} == {len(legend)}
    return legend, rows


def number(text):
    value, _, unit = text.partition(" ")
    return math.nan if value == "null" else float(value) * BYTES.get(unit, 1)


def expected(site, stored):
    """Return {(dataset, column): {begin of the bucket: value}}, slowly, from what is printed."""
    parts = {}
    for query in ("usage", DISKS):
        legend, rows = printed(site, query)
        for stamp, cells in rows:
            begin = int(datetime.strptime(stamp, "%Y-%m-%d-%H:%M:%S").replace(tzinfo=UTC).timestamp()) - 60
            if FILE.start <= begin < FILE.end and any(window.start <= begin < window.end for window in stored):
                for key, cell in zip(legend, cells, strict=True):
                    host, sensor, *ids, metric = key.split("|")
                    if ids != ["lo"]:
                        kind = "md" if (ids[0] if "Disk" in sensor else host).startswith(("md", "na")) else "data"
                        name, column = ("targets", f"{host}:{ids[0]}") if "Disk" in sensor else ("servers", host)
                        parts.setdefault((f"{kind}{name}/{NAMES[metric]}", column), {}).setdefault(begin, {})[tuple(ids)] = number(cell)
    found = {key: {begin: sum(values.values()) for begin, values in cells.items()} for key, cells in parts.items()}
    for (dataset, column), cells in list(found.items()):
        if dataset.endswith("cpuuser"):
            other = found[dataset.replace("user", "sys"), column]
            found[dataset.replace("user", "load"), column] = {begin: value + other[begin] for begin, value in cells.items()}
    return {key: {begin: value for begin, value in cells.items() if not math.isnan(value)} for key, cells in found.items()}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_cell_is_what_a_slow_reading_of_what_is_printed_makes_of_the_stored_windows(seed):
    site = replace(SITE, seed=seed)
    stored = [Window(FILE.start, MIDNIGHT), Window(MIDNIGHT + 600, MIDNIGHT + 1200)]
    want = expected(site, stored)
    got = {}
    for name, answer in GpfsAnswers(site, stored).of(FILE).items():
        for column, values in zip(answer.columns, answer.values.T.tolist(), strict=True):
            cells = zip(answer.timestamps.tolist(), values, strict=True)
            got[name, column] = {time: value for time, value in cells if not math.isnan(value)}
    assert got == want
    assert min(min(cells) for cells in got.values()) >= EPOCH
    assert len(got) == 7 * 3 + 4 * 7


def test_stored_windows_and_what_lies_before_the_first_are_determined():
    for answer in GpfsAnswers(SITE, [Window(MIDNIGHT, MIDNIGHT + 120)]).of(FILE).values():
        known = answer.timestamps[answer.determined[:, 0]]
        assert known.tolist() == [*range(FILE.start, EPOCH, 60), MIDNIGHT, MIDNIGHT + 60]


def test_it_fails_hangs_and_breaks_off_at_times_and_never_at_a_calm_site():
    found = states(SITE)
    assert found.keys() == {"whole", "hang", "error", "cut"}
    assert found["error"][1].stderr
    assert found["hang"][1].stdout == ""
    now, reply = found["cut"]
    assert not reply.stdout.endswith("\n")
    assert states(replace(SITE, trouble=False)).keys() == {"whole"}
    assert Mmperfmon(SITE)(line("cpu_user", MIDNIGHT, MIDNIGHT), now) == reply


def test_nothing_is_printed_of_a_bucket_that_is_not_over_and_nothing_of_what_is_not_asked_for():
    site = replace(SITE, trouble=False)
    stamps = re.findall(r"^ +\d+ (\S+)", Mmperfmon(site)(line("cpu_user"), MIDNIGHT + 119).stdout, re.MULTILINE)
    assert stamps[-1] == "2018-01-28-08:01:00"
    asked = Mmperfmon(site)(line("cpu_user", MIDNIGHT, MIDNIGHT + 120), LATER).stdout
    assert "Legend" in asked
    assert "cpu_sys" not in asked
    assert sorted(set(re.findall(r"2018\S+", asked))) == ["2018-01-28-08:00:00", "2018-01-28-08:01:00", "2018-01-28-08:02:00"]


def test_tables_are_as_wide_as_some_terminal_and_rows_repeat_at_times():
    tell, found, repeated = Mmperfmon(SITE), set(), 0
    for now in range(LATER, LATER + 3600, 60):
        text = tell(line("usage", MIDNIGHT, MIDNIGHT + 300), now).stdout
        found.add(text.count("Timestamp"))
        first = text.partition("Timestamp")[2].partition("Timestamp")[0]
        stamps = re.findall(r"^ +\d+ (2018\S+)", first, re.MULTILINE)
        repeated += len(stamps) > len(set(stamps))
    assert len(found) > 3
    assert 5 < repeated < 40


@pytest.mark.parametrize("wrong", [["mmperfmon"], ["mmperfmon", "query", "usage"], [*line("usage")[:-1], "30"], ["mmperfmon", "config"]])
def test_what_it_does_not_know_it_refuses(wrong):
    reply = Mmperfmon(SITE)(wrong, LATER)
    assert (reply.code, reply.stdout) == (2, "")
    assert " ".join(wrong) in reply.stderr


def test_numbers_have_the_digits_that_are_printed():
    answers = GpfsAnswers(SITE, [FILE]).of(FILE)
    tenths = answers["dataservers/memfree"].values / 1024**2 * 10
    assert np.nanmax(np.abs(tenths - np.round(tenths))) < 1e-6
