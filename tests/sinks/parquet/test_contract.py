"""Sealed days as Parquet files: the contract of sinks of days, in a directory and in a bucket of moto's server."""

import asyncio
import datetime as dt
import json
import threading
from pathlib import Path

import pyarrow.fs
import pyarrow.parquet as pq
import pytest
from s3_server import ACCESS, SECRET, checked_rights, s3_server
from users import as_another_user

from sinks import parquet
from sinks.parquet.store import Bucket, store_of
from tokiod.change_sink import SinkSite
from tokiod.errors import Fatal, Transient
from tokiod.simulator.sources import free_port
from tokiod.testing.sink_contract import STEPS, SYSTEM, Day, DaySinkContract
from tokiod.tts.parquet import part_path

SECRETS = {"file:access": ACCESS, "file:secret": SECRET}
SITE = SinkSite(SECRETS.__getitem__, Path())
DATE = dt.date(2026, 1, 1)


def made(**options):
    return parquet.sink(parquet.Config(name="p", kind="parquet", **options), SITE)


def held_in(files, root):
    """What the files of a store hold of a day, by pyarrow alone."""

    def held(date):
        found = {}
        for dataset in STEPS:
            path = f"{root}/{part_path(Path(), SYSTEM, dataset, date)}"
            if files.get_file_info(path).type != pyarrow.fs.FileType.NotFound:
                table = pq.read_table(path, filesystem=files, partitioning=None)
                times = [int(time.timestamp()) for time in table["time"].to_pylist()]
                found[dataset] = times, {name: table[name].to_pylist() for name in table.column_names if name != "time"}
        return found

    return held


class TestDirectory(DaySinkContract):
    @pytest.fixture
    def sink(self, tmp_path):
        return lambda: made(path=str(tmp_path / "out"))

    @pytest.fixture
    def held(self, tmp_path):
        return held_in(pyarrow.fs.LocalFileSystem(), str(tmp_path / "out"))


@pytest.fixture(scope="module")
def server():
    with s3_server("telemetry") as address:
        yield address


def files_of(server):
    return pyarrow.fs.S3FileSystem(
        access_key=ACCESS, secret_key=SECRET, region="us-east-1", scheme="http", endpoint_override=server.removeprefix("http://")
    )


def bucket_options(server, prefix, bucket="telemetry"):
    return {"path": f"s3://{bucket}/{prefix}", "endpoint": server, "access_key_file": "access", "secret_key_file": "secret"}


@pytest.mark.system
class TestBucket(DaySinkContract):
    @pytest.fixture
    def prefix(self, request):
        return request.node.name

    @pytest.fixture
    def sink(self, server, prefix):
        return lambda: made(**bucket_options(server, prefix))

    @pytest.fixture
    def held(self, server, prefix):
        return held_in(files_of(server), f"telemetry/{prefix}")


def run(sink, *work):
    async def use():
        try:
            await sink.open()
            for one in work:
                await one(sink)
        finally:
            await sink.close()

    asyncio.run(use())


def manifest(root, date=DATE):
    return json.loads((root / f"_tokiod/system={SYSTEM}/date={date}.json").read_text())


def test_the_manifest_states_revision_and_files_and_that_a_day_changes(tmp_path):
    day = Day(DATE, 10)
    run(made(path=str(tmp_path)), lambda sink: sink.store(day))
    found = manifest(tmp_path)
    assert (found["revision"], found["state"], set(found["datasets"])) == (10, "stored", set(STEPS))
    for name, entry in found["datasets"].items():
        path = part_path(tmp_path, SYSTEM, name, DATE)
        assert entry == {"rows": 86400 // STEPS[name], "columns": 7, "bytes": path.stat().st_size}
        assert pq.read_schema(path).metadata[b"revision"] == b"10"
    run(made(path=str(tmp_path)), lambda sink: sink.reopened(SYSTEM, DATE, 11))
    assert (manifest(tmp_path)["revision"], manifest(tmp_path)["state"]) == (11, "changing")


def test_a_dataset_that_the_sealed_day_no_longer_has_is_removed(tmp_path):
    class Shorter(Day):
        @property
        def datasets(self):
            return ("fullness/bytes",)

    run(made(path=str(tmp_path)), lambda sink: sink.store(Day(DATE, 10)), lambda sink: sink.store(Shorter(DATE, 11)))
    assert [path.parent.parent.name for path in tmp_path.rglob("part.parquet")] == ["dataset=bytes"]


def test_readers_find_the_old_file_or_the_new_one_while_it_is_replaced(tmp_path):
    run(made(path=str(tmp_path)), lambda sink: sink.store(Day(DATE, 10)))
    path, seen, stop = part_path(tmp_path, SYSTEM, "fullness/bytes", DATE), set(), threading.Event()

    def read():
        while not stop.is_set():
            seen.add(pq.read_schema(path).metadata[b"revision"])

    reader = threading.Thread(target=read)
    reader.start()
    try:
        run(made(path=str(tmp_path)), *[lambda sink, n=n: sink.store(Day(DATE, n)) for n in range(11, 15)])
    finally:
        stop.set()
        reader.join()
    assert seen <= {b"%d" % n for n in range(10, 15)}


@pytest.mark.system
def test_a_dataset_that_the_sealed_day_no_longer_has_is_removed_from_a_bucket(server):
    class Shorter(Day):
        @property
        def datasets(self):
            return ("fullness/bytes",)

    options = bucket_options(server, "shorter")
    run(made(**options), lambda sink: sink.store(Day(DATE, 10)), lambda sink: sink.store(Shorter(DATE, 11)))
    assert set(held_in(files_of(server), "telemetry/shorter")(DATE)) == {"fullness/bytes"}


def test_a_malformed_manifest_is_replaced(tmp_path):
    run(made(path=str(tmp_path)), lambda sink: sink.store(Day(DATE, 10)))
    path = tmp_path / f"_tokiod/system={SYSTEM}/date={DATE}.json"
    path.write_text('{"revision": 10, "epoch"')
    run(made(path=str(tmp_path)), lambda sink: sink.store(Day(DATE, 11)))
    assert manifest(tmp_path)["revision"] == 11


def test_a_sink_that_is_not_open_stores_nothing(tmp_path):
    with pytest.raises(RuntimeError, match="not open"):
        asyncio.run(made(path=str(tmp_path)).store(Day(DATE, 10)))


def test_a_directory_without_permission_is_fatal(tmp_path):
    tmp_path.chmod(0o500)
    with as_another_user(), pytest.raises(Fatal, match="no permission to write"):
        run(made(path=str(tmp_path)))


def test_a_path_that_is_no_directory_is_transient(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Transient, match="can't be written"):
        run(made(path=str(tmp_path / "file")))


@pytest.mark.system
def test_a_bucket_that_does_not_exist_is_fatal(server):
    with pytest.raises(Fatal, match=r"^s3://other/x: the bucket does not exist"):
        run(made(**bucket_options(server, "x", "other")))


@pytest.mark.system
def test_a_key_that_the_server_does_not_know_is_fatal(server):
    with checked_rights(server), pytest.raises(Fatal, match=r"^s3://telemetry/x: no permission; its key needs s3:GetObject"):
        run(made(**bucket_options(server, "x")))


def test_a_server_that_does_not_answer_is_transient():
    with pytest.raises(Transient, match=r"^s3://telemetry/x: "):
        run(made(**bucket_options(f"http://127.0.0.1:{free_port()}", "x")))


def test_a_bucket_of_a_region_needs_no_endpoint_and_its_authorities_may_be_named(tmp_path):
    """It connects with the first file, so that this one asks no server."""
    store = store_of(
        parquet.Config(name="p", kind="parquet", path="s3://telemetry", region="eu-west-1", tls_ca=str(tmp_path / "ca.pem")), str
    )
    assert isinstance(store, Bucket)


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"path": "out"}, "path: expected an absolute path"),
        ({"path": "s3://"}, "path: expected s3://BUCKET/PREFIX"),
        ({"path": "/out", "region": "x"}, "region: it is of a bucket"),
        ({"path": "s3://bucket", "endpoint": "s3.example.org"}, "endpoint: expected"),
        ({"path": "s3://bucket", "access_key_file": "a"}, "access_key_file: the access key and the secret key"),
        ({"path": "s3://bucket", "access_key_file": "a", "access_key_env": "A", "secret_key_env": "B"}, "access_key_env: access_key_file"),
    ],
)
def test_contradictions_of_the_section_are_faults(options, fault):
    assert any(one.startswith(fault) for one in parquet.Config(name="p", kind="parquet", **options).faults())


def test_a_bucket_without_tls_is_warned_of():
    config = parquet.Config(name="p", kind="parquet", path="s3://bucket", endpoint="http://s3.example.org")
    assert "without https" in config.warnings()[0]
    assert not parquet.Config(name="p", kind="parquet", path="s3://bucket", endpoint="http://127.0.0.1:9").warnings()
