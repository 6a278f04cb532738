"""The LMT collector on a real MariaDB with LMT's real schema."""

import asyncio
import itertools
import os
import random
import shutil
import signal
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import lmt_database
import numpy as np
import pytest

from collectors import lmt
from collectors.lmt import client_mysql
from collectors.lmt.client import RowRange
from collectors.lmt.datasets import DATASETS, NULL_INTEGER, TABLES
from tokiod.collector import Site
from tokiod.errors import Fatal, NotYet, Transient
from tokiod.testing.clock import FakeClock
from tokiod.testing.collector_contract import CollectorContract, collected, samples, within
from tokiod.window import Calendar, Window

pytestmark = pytest.mark.system

SCHEMA = Path(__file__).with_name("lmt_schema.sql")
START, STEP, ZONE = lmt_database.START, lmt_database.STEP, lmt_database.ZONE
PASSWORD = "correct horse"
names = (f"filesystem_{i}" for i in itertools.count())


def make(mariadb, content, name=None):
    """Make a database of LMT's schema, and the user that LMT's scripts make for readers."""
    name = name or next(names)
    statements = [s for s in SCHEMA.read_text().split(";") if s.strip()]

    async def fill():
        await mariadb.execute(
            f"CREATE DATABASE {name}",
            f"CREATE USER IF NOT EXISTS lwatchclient@'%' IDENTIFIED BY '{PASSWORD}'",
            f"GRANT SELECT ON {name}.* TO lwatchclient@'%'",
        )
        await mariadb.execute(*statements, database=name)
        await add(mariadb, name, content)

    asyncio.run(fill())
    return name


async def add(mariadb, name, content):
    for table, rows in content.items():
        if rows:
            statement = f"INSERT INTO {table} VALUES ({', '.join(['%s'] * len(rows[0]))})"
            await mariadb.execute(statement, rows=rows, database=name)


def live(mariadb, name, *, user="lwatchclient", password=PASSWORD, site_zone=ZONE, **options):
    options = {"timezone": ZONE, "password_env": "LMT"} | options
    config = lmt.Config(name="lmt", kind="lmt", system="lc1", url=f"mysql://{user}@127.0.0.1:{mariadb.port}/{name}", **options)
    assert config.faults() == []
    return lmt.live(config, Site(Calendar(site_zone), FakeClock(), {"env:LMT": password}.__getitem__))


@pytest.fixture(scope="module")
def content():
    return lmt_database.tables(steps=25)


@pytest.fixture(scope="module")
def database(mariadb, content):
    return make(mariadb, content)


class TestContract(CollectorContract):
    @pytest.fixture
    def collector(self, mariadb, database):
        return lambda: live(mariadb, database)

    @pytest.fixture
    def saved(self, content, tmp_path):
        path = lmt_database.save(tmp_path / "copy.sqlite3", content)
        return lambda: lmt.saved([path], lmt.Saved(), Site(Calendar(ZONE), FakeClock()))

    @pytest.fixture
    def window(self):
        return Window(START, START + 24 * STEP)

    @pytest.fixture
    def datasets(self):
        return DATASETS


def test_a_window_means_what_its_rows_mean(mariadb, database, content):
    window = Window(START + 10, START + 100)
    found = within(live(mariadb, database), lambda c: collected(c, window))
    assert lmt_database.samples_of(found, window) == lmt_database.meaning(content, window)


def test_the_rows_of_the_capture_give_what_the_capture_gives(mariadb):
    path = Path(os.environ.get("TOKIOD_SHARED", Path(__file__).parents[2].parent / "shared")) / "data/lmt/snx11025_2018-01-28.sqlite3"
    if not path.is_file():
        pytest.skip(f"the capture is not here: {path}")
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as db:
        rows = {table: db.execute(f"SELECT * FROM {table}").fetchall() for table in lmt_database.COLUMNS}
    name = make(mariadb, rows)
    window = Window(1_517_126_400, 1_517_126_700)
    copy = lmt.saved([path], lmt.Saved(), Site(Calendar(ZONE), FakeClock()))
    found, copied = (
        lmt_database.samples_of(within(collector, lambda c: collected(c, window)), window) for collector in (live(mariadb, name), copy)
    )
    # The copy has the six digits that its server showed of a FLOAT.
    assert copied == {
        dataset: {cell: float(f"{value:.6g}") if "servers/" in dataset else value for cell, value in cells.items()}
        for dataset, cells in found.items()
    }


def test_floats_have_all_digits_that_the_server_stores(mariadb):
    content = lmt_database.tables(steps=1)
    stored = [float(np.float32(number)) for number in (2.669021234, 98.43290001, 1.2345678e-5)]
    content["OSS_DATA"] = [(1, lmt_database.FIRST_TS_ID, *stored[:2]), (2, lmt_database.FIRST_TS_ID, stored[2], 100.0)]
    window = Window(START, START + STEP)
    found = lmt_database.samples_of(
        within(live(mariadb, make(mariadb, content | next_stamp(content))), lambda c: collected(c, window)), window
    )
    assert found["dataservers/cpuload"] == {("oss1", 0): stored[0], ("oss2", 0): stored[2]}
    assert found["dataservers/memused"] == {("oss1", 0): stored[1], ("oss2", 0): 100.0}


def next_stamp(content):
    """The time stamp that lets the last one's rows be final."""
    ts_id, shown = content["TIMESTAMP_INFO"][-1]
    return {"TIMESTAMP_INFO": [*content["TIMESTAMP_INFO"], (ts_id + 1, lmt_database.local(lmt_database.instant(shown) + STEP))]}


def test_rows_that_stand_twice_null_and_missing_mean_the_same_as_in_a_copy(mariadb):
    content = lmt_database.tables(steps=8)
    content["MDS_OPS_DATA"] += [(*row[:3], row[3] + 5, 0, 0) for row in content["MDS_OPS_DATA"][::3]]
    content["OST_DATA"] = [
        (*row[:2], None, *row[3:]) if i % 3 else (*row[:5], None, *row[6:]) for i, row in enumerate(content["OST_DATA"]) if i % 5
    ]
    content["OSS_DATA"] = [(*row[:2], None, row[3]) for row in content["OSS_DATA"]]
    window = Window(START, START + 7 * STEP)
    found = lmt_database.samples_of(within(live(mariadb, make(mariadb, content)), lambda c: collected(c, window)), window)
    assert found == lmt_database.meaning(content, window)


def test_a_growing_database_gives_each_window_when_the_next_time_stamp_has_begun(mariadb):
    content = lmt_database.tables(steps=6)
    stamps = [row[0] for row in content["TIMESTAMP_INFO"]]
    name = make(mariadb, {table: [] if "DATA" in table or table == "TIMESTAMP_INFO" else rows for table, rows in content.items()})

    async def poll(collector):
        found = []
        for number, ts_id in enumerate(stamps):
            window = Window(START + (number - 1) * STEP, START + number * STEP)
            with pytest.raises(NotYet):
                await collected(collector, window)
            await add(mariadb, name, {table: [row for row in content[table] if row[place] == ts_id] for table, place in BY_STAMP})
            if number:
                found.append(lmt_database.samples_of(await collected(collector, window), window))
        return found

    windows = [Window(START + k * STEP, START + (k + 1) * STEP) for k in range(5)]
    assert within(live(mariadb, name), poll) == [lmt_database.meaning(content, window) for window in windows]


BY_STAMP = (("TIMESTAMP_INFO", 0), ("OST_DATA", 1), ("OSS_DATA", 1), ("MDS_DATA", 1), ("MDS_OPS_DATA", 1))


class TestRefusals:
    """What only a person can mend is Fatal, and its text says how."""

    window = Window(START, START + STEP)

    def refused(self, collector):
        with pytest.raises(Fatal) as caught:
            within(collector, lambda c: collected(c, self.window))
        assert PASSWORD not in str(caught.value)
        return str(caught.value)

    def test_a_wrong_password(self, mariadb, database):
        said = self.refused(live(mariadb, database, password="battery staple"))
        assert "rejects user lwatchclient" in said
        assert "check the user in url, its password" in said
        assert "battery staple" not in said

    def test_no_permission_for_the_database(self, mariadb):
        asyncio.run(mariadb.execute("CREATE DATABASE filesystem_secret"))
        assert "GRANT SELECT ON `filesystem_secret`.*" in self.refused(live(mariadb, "filesystem_secret"))

    def test_no_permission_for_a_table(self, mariadb, content):
        name = make(mariadb, content)
        revoke = f"REVOKE SELECT ON {name}.* FROM lwatchclient@'%'"
        others = [f"GRANT SELECT ON {name}.{table} TO lwatchclient@'%'" for table in content if table != "OST_DATA"]
        asyncio.run(mariadb.execute(revoke, *others))
        assert "has no OST_DATA: is it a whole LMT database of schema 1.1, and may its user read it?" in self.refused(live(mariadb, name))

    def test_a_database_that_is_not_there(self, mariadb):
        asyncio.run(mariadb.execute("GRANT SELECT ON filesystem_typo.* TO lwatchclient@'%'"))
        assert "filesystem_typo on 127.0.0.1" in self.refused(live(mariadb, "filesystem_typo"))

    def test_a_database_of_something_else(self, mariadb):
        name = next(names)
        asyncio.run(
            mariadb.execute(
                f"CREATE DATABASE {name}", f"CREATE TABLE {name}.users (id INT)", f"GRANT SELECT ON {name}.* TO lwatchclient@'%'"
            )
        )
        assert "has no TIMESTAMP_INFO, OST_INFO" in self.refused(live(mariadb, name))

    def test_what_was_refused_works_as_soon_as_it_is_mended(self, mariadb, content):
        name = make(mariadb, content)
        asyncio.run(mariadb.execute(f"RENAME TABLE {name}.OST_DATA TO {name}.OST_GONE"))

        async def mended(collector):
            with pytest.raises(Fatal):
                await collected(collector, self.window)
            await mariadb.execute(f"RENAME TABLE {name}.OST_GONE TO {name}.OST_DATA")
            return lmt_database.samples_of(await collected(collector, self.window), self.window)

        assert within(live(mariadb, name), mended) == lmt_database.meaning(content, self.window)


class TestTrouble:
    """A server that is away, restarting or silent is Transient, and the same collector goes on once it is back."""

    window = Window(START, START + 10 * STEP)

    def test_an_empty_database_has_not_got_that_far(self, mariadb):
        name = make(mariadb, lmt_database.tables(steps=0))
        with pytest.raises(NotYet, match="no time stamps"):
            within(live(mariadb, name), lambda c: collected(c, self.window))

    def test_a_killed_server_and_its_restart(self, mariadb, database, content):
        async def through_a_kill(collector):
            before = await samples(collector, self.window)
            mariadb.signal(signal.SIGKILL)
            for _ in range(2):
                with pytest.raises(Transient, match="does not answer"):
                    await collected(collector, self.window)
            mariadb.start()
            return before, lmt_database.samples_of(await collected(collector, self.window), self.window)

        before, after = within(live(mariadb, database), through_a_kill)
        assert before
        assert after == lmt_database.meaning(content, self.window)

    def test_a_restart_between_polls_costs_one_attempt(self, mariadb, database):
        async def through_a_restart(collector):
            before = await samples(collector, self.window)
            mariadb.stop()
            mariadb.start()
            with pytest.raises(Transient):
                await collected(collector, self.window)
            return before == await samples(collector, self.window)

        assert within(live(mariadb, database), through_a_restart)

    def test_a_frozen_server_is_given_up_after_the_read_time_limit(self, mariadb, database):
        async def through_a_freeze(collector):
            before = await samples(collector, self.window)
            mariadb.signal(signal.SIGSTOP)
            try:
                for _ in range(2):
                    begun = asyncio.get_running_loop().time()
                    with pytest.raises(Transient):
                        await collected(collector, self.window)
                    assert asyncio.get_running_loop().time() - begun < 5
            finally:
                mariadb.signal(signal.SIGCONT)
            return before == await samples(collector, self.window)

        assert within(live(mariadb, database, read_timeout=1), through_a_freeze)

    def test_a_connection_that_the_server_kills_is_replaced(self, mariadb, database):
        async def through_kills(collector):
            before = await samples(collector, self.window)
            for (number,) in await mariadb.execute("SELECT ID FROM information_schema.PROCESSLIST WHERE USER = 'lwatchclient'"):
                await mariadb.execute(f"KILL {number}")
            with pytest.raises(Transient):
                await collected(collector, self.window)
            return before == await samples(collector, self.window)

        assert within(live(mariadb, database), through_kills)

    def test_nobody_answers_at_the_port(self):
        config = lmt.Config(name="lmt", kind="lmt", system="lc1", url="mysql://u@127.0.0.1:1/lc1", timezone=ZONE)
        with pytest.raises(Transient, match=r"lc1 on 127\.0\.0\.1:1 does not answer"):
            within(lmt.live(config, Site(Calendar(ZONE), FakeClock())), lambda c: collected(c, self.window))

    def test_it_leaves_no_connection_behind(self, mariadb, database):
        within(live(mariadb, database), lambda c: collected(c, self.window))
        left = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = 'lwatchclient' AND COMMAND <> 'Killed'"

        async def none():
            async with asyncio.timeout(5):
                while (await mariadb.execute(left))[0][0]:
                    await asyncio.sleep(0.02)

        asyncio.run(none())


@pytest.mark.parametrize(("offset", "shown_in"), [("-07:00", "Etc/GMT+7"), ("+00:00", "UTC")])
def test_time_stamps_are_in_the_servers_zone_where_it_has_one(mariadb, offset, shown_in):
    content = lmt_database.tables(steps=3, zone=shown_in)
    window = Window(START, START + 2 * STEP)
    collector = live(mariadb, make(mariadb, content), timezone=None, site_zone="Europe/Berlin")
    asyncio.run(mariadb.execute(f"SET GLOBAL time_zone = '{offset}'"))
    try:
        found = lmt_database.samples_of(within(collector, lambda c: collected(c, window)), window)
    finally:
        asyncio.run(mariadb.execute("SET GLOBAL time_zone = 'SYSTEM'"))
    assert found == lmt_database.meaning(content, window, zone=shown_in)


@pytest.fixture
def certificates(tmp_path):
    """An authority, and the server's and a client's certificate by it: PEM files by name."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed: apt-get install openssl")

    def openssl(line):
        subprocess.run(["openssl", *line.split()], cwd=tmp_path, check=True, capture_output=True)

    openssl("req -x509 -newkey rsa:2048 -nodes -subj /CN=authority -days 2 -keyout ca.key -out ca.pem")
    for name in ("server", "client"):
        openssl(f"req -newkey rsa:2048 -nodes -subj /CN={name} -addext subjectAltName=IP:127.0.0.1 -keyout {name}.key -out {name}.csr")
        openssl(f"x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -copy_extensions copy -out {name}.pem")
    openssl("req -x509 -newkey rsa:2048 -nodes -subj /CN=stranger -days 2 -keyout other.key -out other.pem")
    return {name: str(tmp_path / name) for name in ("ca.pem", "server.pem", "server.key", "client.pem", "client.key", "other.pem")}


def test_tls_encrypts_checks_the_server_and_shows_our_certificate(mariadb, database, certificates):
    window = Window(START, START + 10)
    plain = within(live(mariadb, database), lambda c: samples(c, window))
    own = {"tls": True, "tls_ca": certificates["ca.pem"], "tls_cert": certificates["client.pem"], "tls_key": certificates["client.key"]}
    mariadb.stop()
    mariadb.start(
        *(f"--ssl-{what}={certificates[name]}" for what, name in (("ca", "ca.pem"), ("cert", "server.pem"), ("key", "server.key")))
    )
    try:
        asyncio.run(mariadb.execute("ALTER USER lwatchclient@'%' REQUIRE X509"))
        assert within(live(mariadb, database, **own), lambda c: samples(c, window)) == plain
        with pytest.raises(Fatal, match="rejects user lwatchclient"):
            within(live(mariadb, database), lambda c: samples(c, window))
        with pytest.raises(Fatal, match="the server's certificate is not trusted"):
            within(live(mariadb, database, tls=True, tls_ca=certificates["other.pem"]), lambda c: samples(c, window))
    finally:
        asyncio.run(mariadb.execute("ALTER USER lwatchclient@'%' REQUIRE NONE"))
        mariadb.stop()
        mariadb.start()


@pytest.mark.parametrize("table", ["OST_DATA", "OSS_DATA", "MDS_DATA", "MDS_OPS_DATA"])
def test_the_server_reads_ranges_of_an_index_in_its_order_and_never_a_whole_table(mariadb, table):
    content = lmt_database.tables(steps=400)
    name = make(mariadb, content)
    (table,) = [known for known in TABLES if known.name == table]
    operations = (80, 79) if table.by_operation else ()
    keys = tuple(sorted({row[0] for row in content[table.name]}))
    columns = tuple(column for column in table.columns if column in lmt_database.COLUMNS[table.name])
    ask = RowRange(table, columns, keys, operations, lmt_database.FIRST_TS_ID + 200, lmt_database.FIRST_TS_ID + 211)

    async def plan(collector):
        await collected(collector, Window(START, START + STEP))
        session = collector._database._idle[0]
        return await mariadb.execute(f"EXPLAIN {client_mysql._joined_select(session, ask)}", database=name)

    ((_, _, _, how, _, key, *_, extra),) = within(live(mariadb, name), plan)
    assert (how, key) == ("range", "TS_ID" if table.by_operation else "PRIMARY")
    assert "temporary" not in extra
    assert "filesort" not in extra


@pytest.fixture
def packets(mariadb):
    """Limit what the server sends, or joins, at a time."""
    ((usual,),) = asyncio.run(mariadb.execute("SELECT @@global.max_allowed_packet"))
    yield lambda size: asyncio.run(mariadb.execute(f"SET GLOBAL max_allowed_packet = {size}"))
    asyncio.run(mariadb.execute(f"SET GLOBAL max_allowed_packet = {usual}"))


def test_a_long_window_is_asked_for_in_parts_that_the_server_can_join(mariadb, packets):
    content = lmt_database.tables(steps=200)
    largest = 2**63 - 1
    content["OST_DATA"] = [(*row[:2], *(largest if value is not None else None for value in row[2:])) for row in content["OST_DATA"]]
    name = make(mariadb, content)
    window = Window(START, START + 190 * STEP)
    whole = within(live(mariadb, name), lambda c: samples(c, window))
    packets(16384)
    assert within(live(mariadb, name), lambda c: samples(c, window)) == whole
    assert {value for _, _, value in whole["datatargets/readbytes"]} == {largest}


def test_more_rows_of_a_ts_id_than_the_server_can_join_are_refused_and_not_cut_short(mariadb, packets):
    content = lmt_database.tables(steps=5)
    content["MDS_OPS_DATA"] *= 200
    name = make(mariadb, content)
    packets(16384)
    with pytest.raises(Fatal, match="MDS_OPS_DATA has more rows of a TS_ID than its server joins: increase its max_allowed_packet"):
        within(live(mariadb, name), lambda c: samples(c, Window(START, START + 4 * STEP)))


def numbers_of(mariadb, name, table):
    """The columns of a table by name, as they come."""
    first = lmt_database.FIRST_TS_ID
    ask = RowRange(table, table.columns, tuple(range(1, 6)), (80, 79) if table.by_operation else (), first, first + 10**6)
    return dict(zip(ask.named, within(live(mariadb, name), lambda collector: collector._database.numbers(ask)), strict=True))


@pytest.mark.parametrize("share", [0, 0.0005, 0.5, 1])
def test_numbers_of_any_size_come_as_they_are_stored(mariadb, share):
    chance = random.Random(share)
    first, count = lmt_database.FIRST_TS_ID, 4000

    def maybe(value):
        return None if chance.random() < share else value

    def integer():
        return maybe(chance.choice([chance.randrange(2**63), chance.randrange(2**53, 2**53 + 9), -chance.randrange(2**62), 0, 2**63 - 1]))

    def number():
        return maybe(chance.choice([chance.random() * 100, 10 ** chance.uniform(-4, 10), 0.0, float(chance.randrange(10**9))]))

    content = lmt_database.tables(steps=2)
    content["TIMESTAMP_INFO"] = [(first + n, lmt_database.local(START + n * STEP)) for n in range(count)]
    content["OST_INFO"] = content["OST_INFO"][:1]
    content["OST_DATA"] = [(1, first + n, integer(), integer(), 0.0, *(integer() for _ in range(4))) for n in range(count)]
    content["OSS_DATA"] = [(1, first + n, number(), number()) for n in range(count)]
    content["MDS_OPS_DATA"] = [(1, first + n, 80 - n % 3, integer(), 0, 0) for n in range(count)]
    name = make(mariadb, content)
    for table, dtype, missing in (
        (TABLES[0], np.int64, NULL_INTEGER),
        (TABLES[1], np.float32, np.nan),
        (TABLES[3], np.int64, NULL_INTEGER),
    ):
        found = numbers_of(mariadb, name, table)
        places = [lmt_database.COLUMNS[table.name].index(column) for column in found]
        rows = [row for row in content[table.name] if not table.by_operation or row[2] in {80, 79}]
        stored = np.array([[missing if row[place] is None else row[place] for place in places] for row in rows], dtype)
        # A FLOAT has 24 bits of what was written; the columns of keys are small.
        found = np.array(list(found.values()))
        assert np.array_equal(np.sort(found, axis=1), np.sort(stored.T.astype(found.dtype), axis=1), equal_nan=dtype is np.float32)


def test_a_double_has_all_its_digits(mariadb):
    content = lmt_database.tables(steps=2)
    content["OSS_DATA"] = []
    name, first = make(mariadb, content), lmt_database.FIRST_TS_ID
    asyncio.run(mariadb.execute("ALTER TABLE OSS_DATA MODIFY PCT_CPU DOUBLE", database=name))
    asyncio.run(add(mariadb, name, {"OSS_DATA": [(1, first, 1 / 3, 2.5), (1, first + 1, 1e-300, None)]}))
    found = numbers_of(mariadb, name, TABLES[1])
    cpu, memory = found["PCT_CPU"], found["PCT_MEMORY"]
    assert cpu.tolist() == [1 / 3, 1e-300]
    assert (memory[0], np.isnan(memory[1])) == (2.5, True)


def test_what_is_no_number_in_a_column_of_another_type_is_missing_and_counted(mariadb):
    """2^64 - 1 was stored as -1, and a text ended the row's numbers."""
    content = lmt_database.tables(steps=8, osts=1)
    name, first = make(mariadb, content), lmt_database.FIRST_TS_ID
    changes = {
        "READ_BYTES": ("BIGINT UNSIGNED", (2**64 - 1, 2**63)),
        "WRITE_BYTES": ("VARCHAR(40)", ("'12 GB'", "''")),
        "KBYTES_FREE": ("DECIMAL(30, 2)", (10**25, 7.5)),
        "KBYTES_USED": ("DOUBLE", ("1.2e19", "7.5")),
        "INODES_USED": ("BLOB", ("'x'", "'1,5'")),
    }
    for column, (kind, strange) in changes.items():
        statements = [f"ALTER TABLE OST_DATA MODIFY {column} {kind}"]
        statements += [f"UPDATE OST_DATA SET {column} = {value} WHERE TS_ID = {first + n}" for n, value in enumerate(strange, 1)]
        asyncio.run(mariadb.execute(*statements, database=name))
    percent = ["ALTER TABLE OSS_DATA MODIFY PCT_CPU VARCHAR(20)", f"UPDATE OSS_DATA SET PCT_CPU = 'n/a' WHERE TS_ID = {first + 1}"]
    asyncio.run(mariadb.execute(*percent, database=name))
    window = Window(START, START + 7 * STEP)
    data = within(live(mariadb, name), lambda c: c.collect(window))
    strange = (first + 1, first + 2)
    content["OST_DATA"] = [
        (*row[:2], None, None, 0.0, None, None, row[7], None) if row[1] in strange else row for row in content["OST_DATA"]
    ]
    content["OSS_DATA"] = [(*row[:2], None, row[3]) if row[1] == first + 1 else row for row in content["OSS_DATA"]]
    assert lmt_database.samples_of(data.batches, window) == lmt_database.meaning(content, window)
    assert data.dropped == {"value that is not an integer of 64 bits": 10, "value that is not a number": 2}
    assert {why.example for why in data.why.values()} == {
        f"OST_DATA.READ_BYTES of OST_ID 1, TS_ID {first + 1}: {2**64 - 1}",
        f"OSS_DATA.PCT_CPU of OSS_ID 1, TS_ID {first + 1}: n/a",
    }


def test_a_column_of_another_type_has_the_same_numbers(mariadb, content):
    name = make(mariadb, content)
    changes = ["ALTER TABLE OSS_DATA MODIFY PCT_CPU DECIMAL(8, 4)", "ALTER TABLE OST_DATA MODIFY READ_BYTES VARCHAR(40)"]
    asyncio.run(mariadb.execute(*changes, "ALTER TABLE OST_DATA MODIFY WRITE_BYTES BIGINT UNSIGNED", database=name))
    window = Window(START + 10, START + 100)
    found = within(live(mariadb, name), lambda c: collected(c, window))
    assert lmt_database.samples_of(found, window) == lmt_database.meaning(content, window)


def test_an_error_of_a_statement_is_that_of_the_server(mariadb, content):
    name = make(mariadb, content)
    window = Window(START + 10, START + 100)

    async def without_a_column(collector):
        await collected(collector, window)
        await mariadb.execute("ALTER TABLE OST_DATA DROP COLUMN READ_BYTES", database=name)
        with pytest.raises(Fatal, match=r"is not an LMT database: .*READ_BYTES"):
            await collected(collector, window)

    within(live(mariadb, name), without_a_column)
