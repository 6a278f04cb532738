"""Random outputs of mmperfmon, damaged at random: each is stored right, or refused with what was found."""

import datetime as dt
import os
import random
import re
from collections import defaultdict

from mmperfmon_outputs import output, shown, stamps

from collectors.mmperfmon import Saved, saved
from tokiod.clock import SystemClock
from tokiod.collector import Site
from tokiod.errors import TokiodError
from tokiod.testing.collector_contract import within
from tokiod.window import Calendar, Window

FILES = 30
SEED = int(os.environ.get("TOKIOD_SEED", random.SystemRandom().randrange(10**6)))
FIRST = dt.datetime.fromisoformat("2024-06-01T08:31:00")
START = 1_717_230_600
SITE = Site(Calendar("UTC"), SystemClock())
SCALES = {"B": 1, "kB": 1024, "MB": 1024**2, "GB": 1024**3}
OF_SERVER = {"CPU|cpu_user": "cpuuser", "CPU|cpu_sys": "cpusys", "Memory|mem_free": "memfree", "Memory|mem_total": "memtotal"}
OF_ADAPTER = {"net_r": "netinbytes", "net_s": "netoutbytes"}
OF_NSD = {"gpfs_nsdds_bytes_read": "readbytes", "gpfs_nsdds_write_ops": "writeops"}


def keys(chance):
    """{key of a legend: (dataset, column)} of a random site."""
    found = {}
    for host in chance.sample(["n1", "n2.example.com", "ess-3"], chance.randint(1, 3)):
        found |= {f"{host}|{key}": (f"dataservers/{name}", host) for key, name in OF_SERVER.items() if chance.random() < 0.5}
        for adapter in chance.sample(["eth0", "ib0", "ib1"], chance.randint(0, 3)):
            found |= {f"{host}|Network|{adapter}|{key}": (f"dataservers/{name}", host) for key, name in OF_ADAPTER.items()}
        for nsd in chance.sample(["ddn1", "ddn2", "na07"], chance.randint(1, 3)):
            found |= {f"{host}|GPFSNSDDisk|{nsd}|{key}": (f"datatargets/{name}", f"{host}:{nsd}") for key, name in OF_NSD.items()}
    return found


def value(chance, key):
    if chance.random() < 0.05:
        return None
    return round(chance.uniform(0, 50), 2) if "CPU" in key else chance.choice([0, chance.randrange(10**4), chance.randrange(10**12)])


def cells(columns, places, rows):
    """{(dataset, column, row): value} of what was printed: a column of several adapters is their sum, missing if one is null."""
    parts = defaultdict(list)
    for key, values in columns.items():
        for row in range(rows):
            number, _, unit = shown(key, values[row]).partition(" ")
            parts[*places[key], row].append(None if number == "null" else float(number) * SCALES.get(unit, 1))
    found = {place: sum(some) for place, some in parts.items() if None not in some}
    for (dataset, column, row), user in list(found.items()):
        if dataset.endswith("cpuuser") and (system := found.get(("dataservers/cpusys", column, row))) is not None:
            found["dataservers/cpuload", column, row] = user + system
    return found


def damaged(chance, lines):
    """Lines with some damage, and what was done."""
    lines, place = list(lines), chance.randrange(len(lines))
    rows = [n for n, line in enumerate(lines) if re.match(rb" *\d+ \d{4}-", line)]
    kind = chance.choice(["cut", "cut left", "end", "begin", "lose", "again", "again but other", "join", "cell", "name", "unit", "comma"])
    if kind == "cut":
        lines[place] = lines[place][: chance.randrange(len(lines[place]) + 1)]
    elif kind == "cut left":
        lines[place] = lines[place][chance.randrange(len(lines[place]) + 1) :]
    elif kind == "again":
        lines.insert(place, lines[place])
    elif kind == "join" and place + 1 < len(lines):
        lines[place : place + 2] = [lines[place] + lines[place + 1]]
    elif kind in {"cell", "unit", "comma", "again but other"} and rows:
        damage_row(chance, lines, chance.choice(rows), kind)
    elif kind == "name" and (headers := [n for n, line in enumerate(lines) if b"Timestamp" in line]):
        at = chance.choice(headers)
        lines[at] = re.sub(chance.choice([rb" cpu_user| net_r", rb"Timestamp", rb"Row"]), b"", lines[at], count=1)
    else:
        lines = {"end": lines[:place], "begin": lines[place:]}.get(kind, lines[:place] + lines[place + 1 :])
    return lines, kind


def damage_row(chance, lines, at, kind):
    """Blank a number or remove it, change its unit or its point, or repeat the row with a time that is not its own."""
    head, rest = lines[at][:23], lines[at][23:]
    numbers = [found.span() for found in re.finditer(rb"[\d.]+(?: [kMG]?B)?|null", rest)]
    start, end = chance.choice(numbers)
    if kind == "cell":
        rest = rest[:start] + chance.choice([b"", b" " * (end - start)]) + rest[end:]
    elif kind == "unit":
        rest = rest[:start] + re.sub(rb"B$", chance.choice([b"iB", b"b", b"X"]), rest[start:end]) + rest[end:]
    elif kind == "comma":
        rest = rest.replace(b".", b",")
    else:
        lines.insert(at + 1, head[:-1] + b"0" + rest)
        return
    lines[at] = head + rest


def test_every_output_is_stored_right_or_refused(tmp_path):
    for number in range(FILES):
        chance = random.Random(f"{SEED} {number}")
        places, rows = keys(chance), chance.randint(1, 8)
        columns = {key: [value(chance, key) for _ in range(rows)] for key in places}
        text = output(columns, stamps(FIRST, rows), chance.choice([30, 60, 80, 120, 30000]))
        lines, done = text.split(b"\n"), []
        for _ in range(chance.choice([0, 1, 1, 2])):
            lines, kind = damaged(chance, lines or [b""])
            done.append(kind)
        what = f"TOKIOD_SEED={SEED}, file {number}, {done}:\n" + b"\n".join(lines).decode()
        check(tmp_path / "a", b"\n".join(lines), cells(columns, places, rows), what, done, is_whole=b"\n".join(lines) == text)


def check(path, text, right, what, done, *, is_whole):
    """Check what a file gives: every cell is right, and what is missing is counted or refused."""
    path.write_bytes(text)
    data, sentence = outcome(path)
    if data is None:
        assert not is_whole, (sentence, what)
        assert re.search(r": nothing could be read.*x ", sentence), (sentence, what)
        return
    found = {}
    for batch in data.batches:
        for time, column, number in zip(batch.time.tolist(), batch.column, batch.value.tolist(), strict=True):
            found[batch.dataset, batch.columns[column], (time - START) // 60] = number
    wrong = {place: number for place, number in found.items() if place not in right or abs(number - right[place]) > 1e-9 * right[place]}
    assert not wrong, (wrong, {place: right.get(place) for place in wrong}, what)
    assert right.keys() == found.keys() or data.dropped or {"lose", "end", "begin", "cut", "cut left", "cell"} & {*done}, (
        right.keys() - found.keys(),
        what,
    )
    assert not is_whole or (found.keys() == right.keys() and not data.dropped), (right.keys() - found.keys(), data.dropped, what)


def outcome(path):
    """The data of a window, or the sentence of a refusal."""
    try:
        return within(saved([path], Saved(), SITE), lambda c: c.collect(Window(START, START + 3600))), None
    except TokiodError as error:
        return None, str(error)
