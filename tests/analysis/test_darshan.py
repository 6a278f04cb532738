"""Darshan logs: what a job moved, by which interface, where; which OSTs are slow. tests/data has two logs of pytokio's tests, BSD-licensed.

vpicio.darshan: a run of vpicio_uni that writes one file; ior.darshan: a run of IOR with a file for each of 48 ranks, each on one OST.
"""

import datetime as dt
import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from click.testing import CliRunner

from tokiod.analysis import darshan_log, darshan_worker
from tokiod.analysis.bad_ost import correlations, striped_files
from tokiod.analysis.darshan_job import moved, span_of, summarize_darshan
from tokiod.analysis.darshan_log import DarshanLog, FileTransfers, NotDarshan, Performance, Statistics, logs_of, read_logs
from tokiod.cli.tokioctl import main
from tokiod.reader.errors import NotInstalled
from tokiod.reader.span import Span
from tokiod.runtime.process_setup import python_command
from tokiod.tts.live.create import create
from tokiod.tts.live.live_file import LiveFile
from tokiod.tts.spec import FileSpec, GroupSpec, MatrixSpec

DATA = Path(__file__).parents[1] / "data"
VPICIO, IOR = DATA / "vpicio.darshan", DATA / "ior.darshan"
REFERENCE = Path(__file__).parents[3] / "shared" / "data" / "reading"
START, END = 1_490_000_867, 1_490_000_984
WRITTEN = 2_199_023_259_968
needs_darshan = pytest.mark.skipif(importlib.util.find_spec("darshan") is None, reason="pydarshan is not installed")


def read(path):
    (log,) = read_logs([path])
    return log


def test_the_logs_of_a_job_are_found_by_their_names_in_the_directories_of_its_days(tmp_path):
    names = ("alice_vpic_id4478544_3-20-123-1.darshan", "alice_ior_id4478544-77_3-21-9-1.darshan")
    others = ("alice_vpic_id44785441_3-20-1-1.darshan", "alice_vpic_id447854_3-20-1-1.darshan", "alice_vpic_id4478544_3-20-123-1.txt")
    for day, name in zip(("20", "21", "20", "20", "20"), (*names, *others), strict=True):
        (tmp_path / "2017" / "3" / day).mkdir(parents=True, exist_ok=True)
        (tmp_path / "2017" / "3" / day / name).touch()
    span = Span(START, START + 86400)
    found = logs_of("4478544", f"{tmp_path}/%Y/%-m/%-d", span, ZoneInfo("UTC"))
    assert sorted(path.name for path in found) == sorted(names)
    assert logs_of("4478544", f"{tmp_path}/none", span, ZoneInfo("UTC")) == []


@pytest.mark.parametrize(
    ("start", "end", "days"),
    [(0, 86400, (1, 1)), (86399, 86401, (1, 2)), (0, 30 * 86400 + 1, (1, 31)), (0, 50 * 86400, (1, 31)), (-7200, 1, (1, 2))],
)
def test_logs_are_looked_for_in_the_days_of_the_span_but_31_at_the_most(tmp_path, start, end, days):
    zone = ZoneInfo("Asia/Tokyo") if start < 0 else ZoneInfo("UTC")
    midnight = int(dt.datetime(2018, 1, 1, tzinfo=zone).timestamp()) + (86400 if start < 0 else 0)
    for day in range(60):
        directory = tmp_path / str(dt.date(2018, 1, 1) + dt.timedelta(day))
        directory.mkdir()
        (directory / "a_b_id7_1.darshan").touch()
    found = logs_of("7", f"{tmp_path}/%Y-%m-%d", Span(midnight + start, midnight + end), zone)
    assert [path.parent.name for path in found] == [f"2018-01-{day:02}" for day in range(days[0], days[1] + 1)]


@needs_darshan
def test_a_log_has_the_facts_that_pydarshan_prints():
    log = read(VPICIO)
    assert (log.jobid, log.nprocs, log.start, log.end, log.seconds) == (4478544, 2048, START, END - 1, 117)
    assert (log.apis, len(log.files), span_of(log)) == (["posix", "mpi-io", "stdio"], 4, (START, END))
    (name,) = log.osts
    assert len(log.osts[name]) == 24
    assert log.mount_of(name) == "/scratch2"
    assert {one.api: one.written_bytes for one in log.files if one.name == name} == {"posix": WRITTEN, "mpi-io": WRITTEN}


@needs_darshan
def test_the_keys_are_those_of_pytokio():
    found = summarize_darshan(read(VPICIO))
    expected = {
        "walltime": 117, "end_time": END - 1, "start_time": START, "jobid": 4478544, "nprocs": 2048,
        "app": "/global/project/projectdirs/m888/glock/tokio-abc-results/bin.edison/vpicio_uni",
        "biggest_write_api": "posix", "biggest_write_api_bytes": WRITTEN, "biggest_write_api_files": 1,
        "biggest_read_api": "posix", "biggest_read_api_bytes": 0, "biggest_read_api_files": 0,
        "biggest_write_fs": "/scratch2", "biggest_write_fs_bytes": WRITTEN, "biggest_read_fs": "/scratch2", "biggest_read_fs_bytes": 0,
        "tot_opens_posix": 2049, "tot_bytes_written_posix": WRITTEN, "tot_writes_posix": 16402, "num_opens_posix": 1,
    }  # fmt: skip
    assert {key: found[f"darshan_{key}"] for key in expected} == expected
    assert found["darshan_total_gibs_posix"] * 2**30 == WRITTEN
    assert found["darshan_agg_perf_by_slowest_posix"] == pytest.approx(found["darshan_total_gibs_posix"] * 1024 / found["darshan_io_time"])
    names, hows = ("f_read_time", "seq_reads", "stats"), ("tot", "ave", "num", "min", "max")
    statistics = {f"darshan_{how}_{name}_posix" for how in hows for name in names}
    assert statistics <= found.keys()


@needs_darshan
@pytest.mark.skipif(not REFERENCE.exists(), reason="the reference answers are not part of the project")
def test_a_log_without_posix_has_no_key_of_it_and_its_interface_is_stdio():
    log = read(REFERENCE / "noposix.darshan")
    found = summarize_darshan(log)
    assert [key for key in found if key.endswith("_posix")] == []
    assert (found["darshan_biggest_read_api"], found["darshan_biggest_read_fs"], found["darshan_biggest_write_fs"]) == (
        "stdio",
        "/global/cscratch1",
        "_unknown",
    )
    assert (len(log.osts), striped_files([log])) == (519, [])
    assert read(REFERENCE / "sample.darshan") == read(VPICIO)


@needs_darshan
def test_a_log_that_darshan_marked_incomplete_says_so(tmp_path):
    data = bytearray(IOR.read_bytes())
    data[20] |= 1 << 1  # the flag of POSIX, in the header
    (tmp_path / "partial.darshan").write_bytes(data)
    found, whole = summarize_darshan(read(tmp_path / "partial.darshan")), summarize_darshan(read(IOR))
    note = "only a part of what posix did is in the log: Darshan's memory was too small (DARSHAN_MODMEM)"
    assert found == whole | {"darshan_partial_modules": "posix", "darshan_note": note}


class Report:
    """What pydarshan returns of a log with modules of DAOS and one that it does not know; each moved another number of bytes."""

    def __init__(self, *_, **__):
        self.modules = {name: {"partial_flag": name == "STDIO"} for name in ("STDIO", "DFS", "DAOS", "HEATMAP", "NEW")}
        numbers = ("jobid", "uid", "nprocs", "start_time_sec", "end_time_sec", "run_time")
        self.metadata = {"job": dict.fromkeys(numbers, 1), "exe": "a.out"}
        self.mounts, self.name_records = [("/", "overlay")], {1: "/x"}
        names = ["BYTES_READ", "BYTES_WRITTEN"]
        self.counters = {api: {"counters": [f"{api}_{name}" for name in names], "fcounters": []} for api in self.modules}
        values = {"STDIO": [1, 2], "DFS": [30, 40], "DAOS": [31, 41]}
        self.records = {api: [{"id": 1, "counters": np.array(of), "fcounters": np.array([])}] for api, of in values.items()}

    def mod_read_all_records(self, api, dtype, warnings):
        assert (api in self.records, dtype, warnings) == (True, "numpy", False)


def test_transfers_by_daos_count_once_and_other_modules_are_named():
    log = darshan_worker._read(SimpleNamespace(DarshanReport=Report), "x.darshan")
    assert [(one.api, one.name, one.read_bytes, one.written_bytes) for one in log.files] == [
        ("stdio", "/x", 1, 2),
        ("dfs", "dfs:/x", 30, 40),
    ]
    assert (log.apis, log.partial, log.unread) == (["stdio", "dfs"], ["stdio"], ["NEW"])
    found = summarize_darshan(log)
    assert (found["darshan_biggest_write_api"], found["darshan_biggest_write_fs"]) == ("dfs", "_unknown")


class Posix(Report):
    """A log of two ranks that shared a file, and one of them had another; the read time of the one was not recorded."""

    def __init__(self, path, *, read_all):
        assert (path, read_all) == ("x.darshan", False)
        self.modules = {"POSIX": {"partial_flag": False}, "LUSTRE": {"partial_flag": True}}
        numbers = ("jobid", "uid", "nprocs", "start_time_sec", "end_time_sec", "run_time")
        self.metadata = {"job": dict(zip(numbers, (11, 12, 13, 14, 15, 16.5), strict=True)), "exe": "a.out -x"}
        self.mounts, self.name_records = [("/a", "x"), ("/fs", "x"), ("/fs/b", "x"), ("/fs", "x")], {1: "/fs/x", 2: "/fs/y"}
        names = ["POSIX_F_READ_TIME", "POSIX_F_WRITE_TIME", "POSIX_F_META_TIME"]
        self.counters = {"POSIX": {"counters": ["POSIX_OPENS", "POSIX_BYTES_READ", "POSIX_BYTES_WRITTEN"], "fcounters": names}}
        found = ((1, [3, 100, 0], [1.5, -1.0, 0.25]), (1, [1, 50, 7], [0.5, 2.0, 0.5]), (2, [2, -1, 0], [0.0, 0.0, 0.0]))
        self.records = {"POSIX": [{"id": i, "counters": np.array(of), "fcounters": np.array(seconds)} for i, of, seconds in found]}
        self.records["LUSTRE"] = [{"id": 1, "components": [{"ost_ids": [5, -1, 3]}, {"ost_ids": [5, 0]}]}]

    def mod_read_all_records(self, api, dtype, warnings):
        assert (api, warnings) == ("POSIX", False)
        if dtype == "pandas":
            self.records[api] = [{"counters": "a frame"}]

    def mod_read_all_lustre_records(self, dtype, warnings):
        assert (dtype, warnings) == ("dict", False)


@pytest.mark.parametrize("is_combined", [True, False])
def test_all_records_of_a_log_are_added_up_by_file_and_by_counter(is_combined):
    def combine(records, api, nprocs):
        assert (records, api, nprocs) == ({"counters": "a frame"}, "POSIX", 13)
        if not is_combined:
            raise RuntimeError
        return SimpleNamespace(derived_metrics=SimpleNamespace(total_bytes=157.0, agg_perf_by_slowest=2.5, agg_time_by_slowest=4.0))

    backend = SimpleNamespace(cffi_backend=SimpleNamespace(accumulate_records=combine))
    assert darshan_worker._read(SimpleNamespace(DarshanReport=Posix, backend=backend), "x.darshan") == DarshanLog(
        jobid=11, nprocs=13, start=14, end=15, seconds=16, command="a.out -x", mounts=["/fs/b", "/fs", "/a"], apis=["posix"],
        files=[FileTransfers("posix", "/fs/x", 150, 7, 2, 1, 3.0), FileTransfers("posix", "/fs/y", 0, 0, 0, 0, 0.0)],
        osts={"/fs/x": [0, 3, 5]},
        counters={
            "BYTES_READ": Statistics(149, 3, -1, 100), "BYTES_WRITTEN": Statistics(7, 3, 0, 7), "OPENS": Statistics(6, 3, 1, 3),
            "F_READ_TIME": Statistics(2.0, 3, 0.0, 1.5), "F_WRITE_TIME": Statistics(1.0, 3, -1.0, 2.0),
            "F_META_TIME": Statistics(0.75, 3, 0.0, 0.5),
        },
        performance=Performance(157, 2.5, 4.0) if is_combined else None, partial=["lustre"], unread=[],
    )  # fmt: skip


def test_the_process_that_reads_is_limited():
    code = "import resource; from tokiod.analysis.darshan_worker import _limit; _limit(); limit = resource.getrlimit; print("
    code += ", ".join(f"limit(resource.RLIMIT_{name})" for name in ("DATA", "AS", "CPU", "FSIZE", "CORE")) + ")"
    shown = subprocess.run([sys.executable, "-c", code], cwd=DATA.parents[1], capture_output=True, text=True, check=True).stdout
    assert shown == " ".join(str((most, most)) for most in (2**30, 2**33, 120, 2**28, 0)) + "\n"


@pytest.mark.parametrize(("end", "until"), [(100, 101), (90, 101), (107, 108)])
def test_the_span_of_a_log_has_its_last_second(end, until):
    assert span_of(a_log([], end=end)) == (100, until)


def test_modules_that_are_not_read_are_named():
    found = summarize_darshan(a_log([], unread=["NEW", "S3"], partial=["dfs"]))
    assert (found["darshan_unread_modules"], found["darshan_partial_modules"]) == ("NEW,S3", "dfs")
    assert "; what NEW, S3 moved is in no figure: " in found["darshan_note"]


STRANGERS = REFERENCE.parent / "strangers" / "nodes" / "d01_darshan_dfs"


@needs_darshan
@pytest.mark.skipif(not STRANGERS.is_dir(), reason="the inputs of strangers are not part of the project")
def test_what_was_moved_by_dfs_of_daos_counts_once_and_is_on_no_mount_point():
    log = read(next(STRANGERS.glob("*.darshan")))
    found = summarize_darshan(log)
    assert {how: (found[f"darshan_biggest_{how}_api"], found[f"darshan_biggest_{how}_api_bytes"]) for how in ("read", "write")} == {
        "read": ("dfs", 16 << 20),
        "write": ("dfs", 16 << 20),
    }
    assert (found["darshan_biggest_write_fs"], found["darshan_biggest_write_fs_bytes"]) == ("_unknown", 16 << 20)
    assert (log.apis, log.partial, log.unread) == (["posix", "stdio", "dfs"], [], [])


def a_log(files, osts=(), **fields):
    whole = {"jobid": 1, "nprocs": 2, "start": 100, "end": 100, "seconds": 1, "command": "a.out -x", "mounts": ["/fs/b", "/fs"]}
    apis = list(dict.fromkeys(one.api for one in files))
    return DarshanLog(**whole | {"apis": apis, "files": files, "osts": dict(osts), "counters": {}, "performance": None} | fields)


def test_the_biggest_interface_counts_once_and_streams_are_on_no_mount():
    files = [
        FileTransfers("posix", "/fs/a", 5, 10, 1, 2, 1.0),
        FileTransfers("posix", "/fs/b/c", 0, 7, 0, 1, 1.0),
        FileTransfers("mpi-io", "/fs/a", 4, 9, 1, 2, 1.0),
        FileTransfers("stdio", "<STDOUT>", 0, 30, 0, 1, 1.0),
    ]
    found = summarize_darshan(a_log(files, counters={"OPENS": Statistics(6, 3, 1, 3)}))
    assert found == {
        "darshan_walltime": 1, "darshan_end_time": 100, "darshan_start_time": 100, "darshan_jobid": 1, "darshan_nprocs": 2,
        "darshan_app": "a.out",
        "darshan_tot_opens_posix": 6, "darshan_ave_opens_posix": 2.0, "darshan_num_opens_posix": 3, "darshan_min_opens_posix": 1,
        "darshan_max_opens_posix": 3,
        "darshan_biggest_read_api": "posix", "darshan_biggest_read_api_bytes": 5, "darshan_biggest_read_api_files": 1,
        "darshan_biggest_write_api": "stdio", "darshan_biggest_write_api_bytes": 30, "darshan_biggest_write_api_files": 1,
        "darshan_biggest_read_fs": "/fs", "darshan_biggest_read_fs_bytes": 5,
        "darshan_biggest_write_fs": "_unknown", "darshan_biggest_write_fs_bytes": 30,
    }  # fmt: skip
    assert [one.name for one in moved(a_log(files))] == ["<STDOUT>", "/fs/a", "/fs/b/c"]
    assert moved(a_log([FileTransfers("posix", f"/fs/{n}", n, 0, n, 0, 1.0) for n in (0, 1)])) == [
        FileTransfers("posix", "/fs/1", 1, 0, 1, 0, 1.0)
    ]
    assert summarize_darshan(a_log([])).keys() == {
        f"darshan_{key}" for key in ("walltime", "end_time", "start_time", "jobid", "nprocs", "app")
    }


def test_a_slow_ost_has_a_coefficient_near_minus_one():
    pytest.importorskip("scipy")
    generator = np.random.default_rng(4)
    files = [FileTransfers("posix", f"/{n}", 0, 1000, 0, 1, (10.0 if n % 4 == 3 else 1.0) + 0.1 * generator.random()) for n in range(40)]
    osts = {f"/{n}": [n % 4] for n in range(40)} | {"/9": [0, 1]}
    extra = [FileTransfers("posix", "/idle", 0, 0, 0, 0, 0.0), FileTransfers("posix", "/nowhere", 1, 1, 1, 1, 1.0)]
    found = correlations(striped_files([a_log([*files, *extra], {**osts, "/idle": [2]})]))
    assert [one.ost_name for one in found][:1] == ["OST#3"]
    assert found[0].coefficient == pytest.approx(-1, abs=0.02)
    assert found[0].p_value < 1e-20
    rates = [one.written_bytes / one.seconds for one in files]
    shares = [0.5 if n == 9 else float(n % 4 == 1) for n in range(40)]
    of_one = next(one for one in found if one.ost_name == "OST#1")
    assert of_one.coefficient == pytest.approx(np.corrcoef(rates, shares)[0, 1])


def test_a_files_rate_is_its_bytes_of_posix_over_the_time_and_each_log_has_its_own_files():
    files = [
        FileTransfers("posix", "/a", 30, 60, 1, 1, 2.0), FileTransfers("stdio", "/a", 500, 500, 1, 1, 1.0),
        FileTransfers("posix", "/still", 1, 1, 1, 1, 0.0), FileTransfers("posix", "/short", 4, 0, 1, 0, 0.5),
        FileTransfers("posix", "/nowhere", 1, 1, 1, 1, 1.0),
    ]  # fmt: skip
    osts = {"/a": [3, 5], "/still": [1], "/short": [2], "/nowhere": []}
    found = striped_files([a_log(files, osts), a_log(files[:1], {"/a": [7]})])
    assert [(one.rate, one.osts) for one in found] == [(45.0, [3, 5]), (8.0, [2]), (45.0, [7])]


def test_without_a_difference_there_is_no_correlation():
    pytest.importorskip("scipy")
    same = [FileTransfers("posix", f"/{n}", 1, 1, 1, 1, 1.0) for n in range(4)]
    assert correlations(striped_files([a_log(same, {f"/{n}": [n] for n in range(4)})])) == []
    different = [FileTransfers("posix", f"/{n}", n, 1, 1, 1, 1.0) for n in range(4)]
    assert correlations(striped_files([a_log(different, {f"/{n}": [7] for n in range(4)})])) == []
    assert correlations([]) == []


def badost(*arguments):
    return CliRunner().invoke(main, ["badost", *map(str, arguments)])


@needs_darshan
def test_healthy_osts_have_no_likely_correlation_and_pytokios_threshold_finds_some_by_chance():
    done = badost(IOR, "--p-threshold", "0.01")
    assert (done.exit_code, done.stdout) == (0, "no OST stands out: 48 files of 1 logs, no correlation below the threshold\n")
    found = json.loads(badost(IOR, "--json").stdout)
    assert [one["ost_name"] for one in found][:3] == ["OST#22", "OST#16", "OST#4"]
    assert found[0] == {
        "ost_name": "OST#22",
        "coefficient": pytest.approx(-0.3297088658917363),
        "p-value": pytest.approx(0.02210947494148564),
    }
    assert badost(IOR, "--c-warning", "0.3").exit_code == 1
    assert badost(VPICIO).stdout == "1 files of 1 logs have both POSIX and LUSTRE records; a correlation needs two or more\n"


@needs_darshan
def test_what_is_no_log_is_a_sentence_and_the_others_count(tmp_path):
    (tmp_path / "other").write_text("jobid,start\n")
    done = badost(tmp_path / "other", tmp_path / "absent", IOR, "--json")
    assert (done.exit_code, len(json.loads(done.stdout)) > 0) == (0, True)
    assert done.stderr.splitlines() == [
        f"tokioctl: {tmp_path}/other is no Darshan log, or is damaged: Failed to open file.",
        f"tokioctl: {tmp_path}/absent: No such file or directory",
    ]
    assert badost(tmp_path / "other").exit_code == 2


def test_a_pipe_among_the_logs_is_an_error_of_its_own_and_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(darshan_log, "find_spec", lambda _: object())
    monkeypatch.setattr(darshan_log, "python_command", lambda *_: [sys.executable, "-c", "print('{')"])
    os.mkfifo(tmp_path / "pipe.darshan")
    pipe, other = read_logs([tmp_path / "pipe.darshan", VPICIO])
    assert str(pipe) == f"{tmp_path}/pipe.darshan: not a regular file"
    assert str(other).startswith(f"{VPICIO} is no Darshan log")


@needs_darshan
@pytest.mark.parametrize("seed", range(6))
def test_a_damaged_log_is_an_error_of_that_log_or_another_log(tmp_path, seed):
    """Bytes that are changed, or an end that is missing. The library may die of it."""
    choose, whole = random.Random(seed), bytearray(IOR.read_bytes())
    for _ in range(20):
        whole[choose.randrange(len(whole))] = choose.randrange(256)
    path = tmp_path / "damaged.darshan"
    path.write_bytes(whole[: choose.randrange(len(whole))] if seed % 2 else whole)
    log = read(path)
    assert isinstance(log, DarshanLog | NotDarshan)
    if isinstance(log, NotDarshan):
        assert str(log).startswith(f"{path} is no Darshan log, or is damaged: ")


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (f"import os; os.kill(os.getpid(), {int(signal.SIGSEGV)})", "the process that read it was ended by signal 11"),
        ("raise SystemExit('out of memory')", "the process that read it ended with status 1: out of memory"),
        ("print('{')", "the process that read it printed "),
    ],
)
def test_the_death_of_the_process_that_reads_is_an_error_of_the_log(monkeypatch, code, reason):
    monkeypatch.setattr(darshan_log, "python_command", lambda *_: [sys.executable, "-c", code])
    monkeypatch.setattr(darshan_log, "find_spec", lambda _: object())
    assert str(read(VPICIO)).startswith(f"{VPICIO} is no Darshan log, or is damaged: {reason}")


def test_the_process_that_reads_does_not_outlive_its_parent():
    line = python_command("tokiod.analysis.darshan_worker", "1", str(VPICIO))
    done = subprocess.run(line, capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_without_pydarshan_the_sentence_names_the_extra(monkeypatch):
    monkeypatch.setattr(darshan_log, "find_spec", lambda _: None)
    with pytest.raises(NotInstalled, match=r"a Darshan log needs darshan: pip install '\.\[darshan\]' in a checkout of tokiod"):
        read(VPICIO)


@pytest.fixture
def job(tmp_path):
    """`tokioctl job` at a site whose scratch2 has a day in which the OST reads 5 bytes in each row."""
    day = START // 86400 * 86400
    path = tmp_path / "edison2-2017-03-20.hdf5"
    spec = FileSpec(
        day, day + 86400, {"datatargets": GroupSpec(5, "lmt")}, {"datatargets/readbytes": MatrixSpec(("OST0000",), counter=False)}
    )
    create(path, spec, created=day)
    file = LiveFile.open(path)
    file.cells["datatargets/readbytes"].write_rows(0, np.full((17280, 1), 5.0))
    file.commit()
    file.close()
    config = tmp_path / "tokiod.toml"
    config.write_text(f"""\
timezone = "UTC"
[archive]
path = "{tmp_path}/{{system}}-%Y-%m-%d.hdf5"
[site]
mounts = {{ "/scratch2" = "edison2", "/scratch1" = "edison1" }}
""")
    return lambda *words: CliRunner().invoke(main, ["job", *map(str, words), "--config", str(config)])


@needs_darshan
def test_a_log_gives_the_span_and_the_system_of_its_job(job):
    done = job("--darshan", VPICIO, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    head = ("_jobid", "_file_system", "_datetime_start", "_datetime_end")
    assert [found[key] for key in head] == ["4478544", "edison2", START, END]
    rows = len(range(-(-START // 5), -(-END // 5)))
    assert (found["fs_tot_bytes_read"], found["darshan_tot_opens_posix"]) == (5.0 * rows, 2049)
    assert json.loads(job("--darshan", VPICIO, "--system", "edison2", "--json").stdout) == found


@needs_darshan
def test_each_log_has_a_row_and_one_without_data_its_reason(job, tmp_path):
    (tmp_path / "x").touch()
    done = job("--darshan", VPICIO, "--darshan", IOR, "--darshan", tmp_path / "x", "--json")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.exit_code, [row["_file_system"] for row in rows]) == (1, ["edison2", "edison1", ""])
    assert ["reason" in row for row in rows] == [False, True, True]
    assert (rows[1]["darshan_nprocs"], rows[2]["reason"].startswith(f"{tmp_path}/x is no Darshan log")) == (48, True)


@needs_darshan
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--darshan", IOR, "4478544"], "JOBID and --darshan name jobs in different ways; give one of them"),
        (["--darshan", "/nowhere"], "/nowhere: No such file or directory"),
        (["--darshan", IOR], "no files of system 'edison1', did you mean edison2?"),
    ],
)
def test_errors_are_sentences(job, words, sentence):
    done = job(*words)
    assert (done.exit_code, sentence in done.stderr) == (2, True), done.output
