"""Random SQLite copies with tables, columns, rows, types and numbers that are missing, changed or damaged: each gives the right cells, with
what is not there counted, or is refused with a sentence that names what was found. `TOKIOD_SEED=n` begins with another seed.
"""

import copy
import os
import random
import re
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field

import lmt_database
import pytest

from collectors import lmt
from tokiod.collector import Site
from tokiod.errors import Fatal, TokiodError
from tokiod.testing.clock import FakeClock
from tokiod.testing.collector_contract import within
from tokiod.window import Calendar, Window

START, STEP, FIRST = lmt_database.START, lmt_database.STEP, lmt_database.FIRST_TS_ID
SITE = Site(Calendar(lmt_database.ZONE), FakeClock())
FIRST_SEED = int(os.environ.get("TOKIOD_SEED", "53000"))
DATA = ("OST_DATA", "OSS_DATA", "MDS_DATA", "MDS_OPS_DATA")
READ = {"OST_DATA": (2, 3, 5, 6, 7, 8), "OSS_DATA": (2, 3), "MDS_DATA": (2,), "MDS_OPS_DATA": (3,)}
"""Columns of numbers that are read."""
KEYS = {"OST_DATA": (0, 1), "OSS_DATA": (0, 1), "MDS_DATA": (0, 1), "MDS_OPS_DATA": (0, 1, 2)}
STEPS = 40
NO_INTEGER, NO_NUMBER = "value that is not an integer of 64 bits", "value that is not a number"
ODD = ["", "n/a", "12 GB", "1,5", "NULL", "0x1F", "1 2", b"\x00\x01", b"12", 1.2e19, 1e30, float("inf"), 7.25, " 17 ", "18", "19.0", "2e1"]


@dataclass
class Copy:
    """What is written into a file, and its truth. refused: patterns, one of which the refusal has; counted: reasons that must be there."""

    rng: random.Random
    written: lmt_database.Tables
    columns: dict = field(default_factory=lambda: dict(lmt_database.COLUMNS))
    types: dict = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    counted: dict[str, int] = field(default_factory=dict)
    gone: set = field(default_factory=set)
    cut: float = 1.0

    def count(self, reason, number=1):
        self.counted[reason] = self.counted.get(reason, 0) + number


def without_a_table(made):
    table = made.rng.choice(sorted(made.written))
    del made.written[table]
    if table != "FILESYSTEM_INFO":
        made.refused.append(rf"has no .*{table}")


def without_a_column(made):
    table = made.rng.choice(DATA)
    place = made.rng.choice(READ[table] + KEYS[table][:1])
    names = list(made.columns[table])
    name, names[place] = names[place], "OTHER_" + names[place]
    made.columns[table] = tuple(names)
    if place in READ[table]:
        made.count("missing column or operation")
        made.gone.add((table, place))
    else:
        made.refused.append(rf"has no .*{table}\.{name}")


def of_other_types(made):
    table = made.rng.choice(DATA)
    for place in KEYS[table] + READ[table]:
        if made.rng.random() < 0.5:
            made.types[table, place] = made.rng.choice(["INTEGER", "REAL", "TEXT", "NUMERIC", "BLOB", "FLOAT", "BIGINT UNSIGNED"])
    if made.types.get((table, 1)) == "TEXT":
        made.refused.append(f"TS_ID of {table} is declared as TEXT")


def without_rows(made):
    table = made.rng.choice(DATA)
    first, last = sorted(made.rng.choices(range(FIRST, FIRST + STEPS), k=2))
    made.written[table] = [row for row in made.written[table] if not first <= row[1] <= last and made.rng.random() < 0.9]


def with_rows_again(made):
    table = made.rng.choice(DATA)
    made.written[table] += made.rng.choices(made.written[table], k=20) if made.written[table] else []


def in_another_order(made):
    made.rng.shuffle(made.written[made.rng.choice(DATA)])


def with_nulls(made):
    _replace(made, lambda: None)


def with_odd_values(made):
    _replace(made, lambda: made.rng.choice(ODD))


def _replace(made, value):
    table = made.rng.choice(DATA)
    rows = made.written[table]
    for _ in range(made.rng.choice((1, 3, 30)) if rows else 0):
        index, place = made.rng.randrange(len(rows)), made.rng.choice(READ[table])
        rows[index] = (*rows[index][:place], value(), *rows[index][place + 1 :])


def with_a_huge_part(made):
    rows = made.written["OST_DATA"]
    if rows:
        index = made.rng.randrange(len(rows))
        rows[index] = (*rows[index][:5], made.rng.choice((2**63 - 1, -5, 2**62)), *rows[index][6:])


def with_iso_stamps(made):
    made.written["TIMESTAMP_INFO"] = [(ts_id, shown.replace(" ", "T") + ".250") for ts_id, shown in made.written["TIMESTAMP_INFO"]]


def with_odd_stamps(made):
    stamps = made.written["TIMESTAMP_INFO"]
    for index in made.rng.sample(range(STEPS), 3):
        ts_id, shown = stamps[index]
        odd = made.rng.choice([shown + "Z", shown + "-08:00", "yesterday", None, 1_517_126_400, shown[:10] + " noon"])
        stamps[index] = ts_id, odd


def without_a_component(made):
    table = made.rng.choice(["OST_INFO", "OSS_INFO", "MDS_INFO"])
    if table in made.written:
        del made.written[table][made.rng.randrange(len(made.written[table]))]


def without_an_operation(made):
    number = made.rng.choice(range(69, 81))
    made.written["OPERATION_INFO"] = [row for row in made.written["OPERATION_INFO"] if row[0] != number]
    made.count("missing column or operation")


def cut_short(made):
    made.cut = made.rng.uniform(0.05, 0.98)
    made.refused.append("is not a SQLite copy of an LMT database, or is damaged")


FAULTS = [
    without_a_column, of_other_types, without_rows, with_rows_again, in_another_order, with_nulls, with_odd_values, with_a_huge_part,
    with_iso_stamps, with_odd_stamps, without_a_component, without_an_operation, cut_short, without_a_table,
]  # fmt: skip


def save(path, made):
    """Write the file; return what it holds, as Python's own SQLite reads it."""
    with closing(sqlite3.connect(path)) as db, db:
        for table, rows in made.written.items():
            names = made.columns[table]
            declared = [f"{name} {made.types.get((table, place), '')}" for place, name in enumerate(names)]
            own = [row[: lmt_database.KEYS[table]] for row in rows]
            if made.rng.random() < 0.5 and len(set(own)) == len(own):
                declared.append(f"PRIMARY KEY ({', '.join(names[: lmt_database.KEYS[table]])})")
            db.execute(f"CREATE TABLE {table} ({', '.join(declared)})")
            lmt_database.add(db, {table: rows})
        held = {table: db.execute(f"SELECT * FROM {table}").fetchall() for table in made.written}
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * made.cut)])
    return held


NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")


def integer(value):
    """Return the integer that a value means, None for NULL, "odd" for none."""
    if isinstance(value, str):
        # 2e1 is left out: SQLite alone reads digits like that as a whole number.
        value = float(value) if NUMBER.fullmatch(value) and "e" not in value and "." in value else value
        value = int(value) if isinstance(value, str) and re.fullmatch(r"\s*[+-]?\d+\s*", value) else value
    if value is None or isinstance(value, int):
        return value
    return int(value) if isinstance(value, float) and abs(value) < 2**63 and value == int(value) else "odd"


def number(value):
    """Return the number that a value means, None for NULL, "odd" for none."""
    value = float(value) if isinstance(value, str) and NUMBER.fullmatch(value) else value
    return value if value is None or (isinstance(value, int | float) and abs(value) != float("inf")) else "odd"


def truth(made, held):
    """Return the meaning of what a file holds, and count what it has that gives no cell."""
    plain = copy.deepcopy(held)
    stamps = [(ts_id, shown) for ts_id, shown in held["TIMESTAMP_INFO"] if re.fullmatch(r"\d{4}-\d\d-\d\d[ T][\d:.]{8,12}", str(shown))]
    plain["TIMESTAMP_INFO"] = [(ts_id, shown[:19].replace("T", " ")) for ts_id, shown in stamps]
    made.count("time stamp that is not a local time", len(held["TIMESTAMP_INFO"]) - len(stamps))
    known = {ts_id for ts_id, _ in stamps}
    for table in DATA:
        read = number if table in ("OSS_DATA", "MDS_DATA") else integer
        listed = {row[0] for row in held[{"OST": "OST_INFO", "OSS": "OSS_INFO", "MDS": "MDS_INFO"}[table[:3]]]}
        operations = {row[0] for row in held["OPERATION_INFO"] if row[1] in lmt_database.DATASETS}
        rows, with_a_row = [], set()
        for row in held[table]:
            values = [integer(value) if place in KEYS[table] else value for place, value in enumerate(row)]
            is_wanted = values[1] in known and values[0] in listed and (len(KEYS[table]) < 3 or values[2] in operations)
            with_a_row |= {values[1]} if is_wanted else set()
            for place in READ[table]:
                values[place] = None if (table, place) in made.gone else read(row[place])
                if values[place] == "odd":
                    values[place] = None
                    made.count(NO_NUMBER if read is number else NO_INTEGER, is_wanted)
            if table == "OST_DATA" and values[5] is not None and not 0 <= values[5] <= 2**61:
                values[5] = None  # it is a part of a sum alone
                made.count("implausible", values[6] is not None and is_wanted)
            rows.append(tuple(values))
        made.count(f"step without a row of {table}", len(known - with_a_row) if listed else 0)
        plain[table] = rows
    plain.setdefault("FILESYSTEM_INFO", [])
    return lmt_database.meaning(plain, Window(START, START + STEPS * STEP))


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + 60))
def test_a_copy_of_any_form_gives_the_right_cells_or_a_sentence(tmp_path, seed):
    rng = random.Random(seed)
    made = Copy(rng, lmt_database.tables(steps=STEPS))
    for fault in sorted(rng.sample(FAULTS, rng.choice((1, 2, 3, 5))), key=FAULTS.index):
        fault(made)
    path = tmp_path / "copy.sqlite3"
    held, window = save(path, made), Window(START, START + STEPS * STEP)
    print(f"TOKIOD_SEED={seed}")

    def collect():
        return within(lmt.saved([path], lmt.Saved(), SITE), lambda collector: collector.collect(window))

    if made.refused:
        with pytest.raises((Fatal, TokiodError), match="|".join(made.refused)):
            collect()
        return
    data = collect()
    assert lmt_database.samples_of(data.batches, window) == truth(made, held), seed
    for reason, count in made.counted.items():
        # Rows of steps and components that are not known are read too, and have values of their own.
        is_exact = reason not in (NO_INTEGER, NO_NUMBER)
        assert data.dropped.get(reason, 0) == count if is_exact else data.dropped.get(reason, 0) >= count, (seed, reason, count)
    assert data.dropped.keys() <= {*(reason for reason, _ in made.counted.items()), "row of an unlisted component", NO_INTEGER, NO_NUMBER}
