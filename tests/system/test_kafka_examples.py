"""The examples that write topics into databases: killed at any update they go on, and end with each cell once."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import duckdb
import postgresql_server
import psycopg
import pytest
from kafka_sink import new_sink, sent

from tokiod.testing.sink_contract import START, SYSTEM, held_of, missing_of, span_of
from tokiod.window import Window

pytestmark = pytest.mark.system

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
SPANS = [Window(START + 120 * n, START + 120 * n + 120) for n in range(4)]


def example(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def held(rows):
    """Return rows of (system, dataset, time, name, value) as the contract's Held, none of them twice."""
    found = {}
    for system, dataset, time, name, value in rows:
        assert system == SYSTEM
        assert found.setdefault((dataset, time), {}).setdefault(name, value) == value
    assert sum(map(len, found.values())) == len(rows)
    return found


@pytest.fixture
def changes(kafka, topic):
    """Send rows, some of them again with another revision, one after the other; yield what is held after each."""

    def play():
        told = []
        steps = [span_of(one, 10 + n) for n, one in enumerate(SPANS)]
        steps += [span_of(SPANS[1], 20, seed=3), missing_of(steps[2], 21), span_of(SPANS[0], 22, columns=4)]
        for blocks in steps:
            sent(new_sink(kafka, topic), blocks)
            told += blocks
            yield held_of(told)

    return play


def run(name, *arguments):
    done = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py", *arguments, "--once"], check=False, capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_duckdb_has_each_cell(kafka, topic, changes, tmp_path):
    path = tmp_path / f"{topic}.duckdb"
    for number, expected in enumerate(changes()):
        if number % 3 == 0 or number == 6:
            run("topics_to_duckdb", kafka.address, topic, str(path))
            with duckdb.connect(str(path), read_only=True) as database:
                assert held(database.execute("SELECT * FROM cells").fetchall()) == expected


def test_duckdb_killed_between_two_updates_goes_on(kafka, topic, changes, tmp_path, monkeypatch):
    *_, expected = changes()
    module = example("topics_to_duckdb")
    monkeypatch.setattr(module, "UPDATES_AT_ONCE", 5)
    store, path = module.store, tmp_path / f"{topic}.duckdb"

    class Killed(BaseException):
        pass

    for after in (0, 1, 2, 0, 3):
        left = [after]

        def kill(*arguments, left=left):
            if left[0] == 0:
                raise Killed
            left[0] -= 1
            store(*arguments)

        monkeypatch.setattr(module, "store", kill)
        with pytest.raises(Killed):
            module.main(kafka.address, topic, str(path), follow=False)
    monkeypatch.setattr(module, "store", store)
    module.main(kafka.address, topic, str(path), follow=False)
    with duckdb.connect(str(path), read_only=True) as database:
        assert held(database.execute("SELECT * FROM cells").fetchall()) == expected


def test_postgresql_has_each_cell(kafka, topic, changes):
    if postgresql_server.programs() is None:
        pytest.skip("initdb is not installed: apt-get install postgresql")
    *_, expected = changes()
    with postgresql_server.PostgreSql() as server:
        run("topics_to_postgresql", kafka.address, topic, server.connection)
        run("topics_to_postgresql", kafka.address, topic, server.connection)
        with psycopg.connect(server.connection) as database:
            assert held(database.execute("SELECT * FROM cells").fetchall()) == expected


def test_an_older_revision_changes_no_table(kafka, topic, tmp_path):
    """The tables hold revisions, so that a consumer which begins anew is right at every moment."""
    new, old = span_of(SPANS[0], 11, seed=1), span_of(SPANS[0], 10)
    path = tmp_path / f"{topic}.duckdb"
    sent(new_sink(kafka, topic), new)
    run("topics_to_duckdb", kafka.address, topic, str(path))
    sent(new_sink(kafka, topic), old)
    run("topics_to_duckdb", kafka.address, topic, str(path))
    with duckdb.connect(str(path), read_only=True) as database:
        assert held(database.execute("SELECT * FROM cells").fetchall()) == held_of(new)
