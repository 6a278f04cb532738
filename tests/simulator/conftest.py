"""What tests of the simulator share: a small site around a midnight, and a plain reader of its database."""

import sqlite3
from contextlib import closing

import pytest

from tokiod.simulator.lmt.database import SCHEMA
from tokiod.simulator.site import Site

MIDNIGHT = 1_517_126_400  # 2018-01-28T00:00 in Los Angeles


@pytest.fixture
def site():
    return Site(epoch=MIDNIGHT - 1800, osts=9, osss=4, mdts=3)


def read_only(path):
    return closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=0))


@pytest.fixture
def dump():
    """Return a reader of every row of every table, in the order of the rows' own values."""

    def read(path):
        with read_only(path) as db:
            return {table: sorted(db.execute(f"SELECT * FROM {table}").fetchall(), key=repr) for table in SCHEMA}

    return read
