"""Saved outputs of a small site; the contract, read from a directory and from an archive."""

import datetime as dt
import io
import os
import sys
import tarfile
from contextlib import closing
from zoneinfo import ZoneInfo

import mmperfmon_site as small
import numpy as np
import pytest
from mmperfmon_outputs import output, stamps

from collectors.mmperfmon import Config, Saved, parse_workers, saved
from collectors.mmperfmon.parse_workers import parsed
from collectors.mmperfmon.saved_files import Spool
from collectors.mmperfmon.to_batches import Rows
from tokiod.clock import SystemClock
from tokiod.collector import Site
from tokiod.config.watched_folder import watched
from tokiod.dropped import Why
from tokiod.errors import Fatal, TokiodError
from tokiod.testing.collector_contract import CollectorContract, within
from tokiod.window import Calendar, Window

ZONE = "America/Los_Angeles"
HALF_HOUR = Window(small.START, small.START + 1800)
MAPS = {"lun_map": small.LUN_MAP, "server_map": small.SERVER_MAP}


def opened(*inputs, zone=ZONE, **options):
    return saved(inputs, Saved(**options), Site(Calendar(zone), SystemClock()))


def written(directory, texts):
    for number, text in enumerate(texts):
        (directory / f"{number:02}.out").write_bytes(text)
    return directory


def of(collector, window=HALF_HOUR):
    """{dataset: {(time, column): value}} and the data of a window."""
    data = within(collector, lambda c: c.collect(window))
    found = {}
    for batch in data.batches:
        names = [batch.columns[i] for i in batch.column]
        found[batch.dataset] = dict(zip(zip(batch.time.tolist(), names, strict=True), batch.value.tolist(), strict=True))
    return found, data


class TestSavedOutputs(CollectorContract):
    @pytest.fixture
    def window(self):
        return HALF_HOUR

    @pytest.fixture
    def datasets(self):
        return small.DATASETS

    @pytest.fixture
    def texts(self):
        return [text for n in range(3) for text in small.texts(small.START + 600 * n, 10, ZoneInfo(ZONE))]

    @pytest.fixture
    def collector(self, tmp_path, texts):
        (tmp_path / "directory").mkdir()
        directory = written(tmp_path / "directory", texts)
        return lambda: opened(directory, **MAPS)

    @pytest.fixture
    def saved(self, tmp_path, texts):
        path = tmp_path / "outputs.tgz"
        with tarfile.open(path, "w:gz") as archive:
            for number, text in enumerate(texts):
                member = tarfile.TarInfo(f"{number:02}")
                member.size = len(text)
                archive.addfile(member, io.BytesIO(text))
        return lambda: opened(path, **MAPS)


def expected():
    """Every cell of the small site, reckoned one by one."""
    found = {}
    for time in range(HALF_HOUR.start, HALF_HOUR.end, 60):
        for host, kind in (("md1", "md"), ("nsd1", "data")):
            user, system = (small.value(f"CPU|cpu_{name}", time) for name in ("user", "sys"))
            found |= {(f"{kind}servers/cpuuser", time, host): user, (f"{kind}servers/cpusys", time, host): system}
            found[f"{kind}servers/cpuload", time, host] = None if None in (user, system) else user + system
            for name, way in (("netinbytes", "r"), ("netoutbytes", "s")):
                parts = [small.value(f"Network|{interface}|net_{way}", time) for interface in ("eth0", "ib0")]
                found[f"{kind}servers/{name}", time, host] = None if None in parts else sum(map(printed, parts))
            for name in ("total", "free"):
                value = small.value(f"Memory|mem_{name}", time)
                found[f"{kind}servers/mem{name}", time, host] = None if value is None else printed(value)
        for host, kind, nsds in (("md1", "md", ("na07md01", "na07md02")), ("nsd1", "data", ("ddn1dt00", "ddn1dt01", "ddn1dt02"))):
            for nsd in nsds:
                for name, counter in zip(("readbytes", "writebytes", "readops", "writeops"), small.TARGET, strict=True):
                    found[f"{kind}targets/{name}", time, f"{host}:{nsd}"] = small.value(f"{host}|GPFSNSDDisk|{nsd}|{counter}", time)
    return {key: value for key, value in found.items() if value is not None}


def printed(value):
    """Bytes, as far as one decimal of kB tells them."""
    return float(f"{value:.1f}") if value < 1024 else float(f"{value / 1024:.1f}") * 1024


@pytest.mark.parametrize("width", [60, 80, 222, 30000])
def test_every_cell_is_right_at_every_width(tmp_path, width):
    found, data = of(opened(written(tmp_path, small.texts(small.START, 30, ZoneInfo(ZONE), width)), **MAPS))
    assert {(dataset, *cell): value for dataset, cells in found.items() for cell, value in cells.items()} == pytest.approx(
        expected(), rel=1e-15
    )
    assert set(data.dropped) == {"loopback"}
    whole = [*small.usage("md1", small.START, 30).values(), *small.usage("nsd1", small.START, 30).values()]
    whole += [value for host, nsds in small.HOSTS.items() for value in small.disks(host, nsds, small.START, 30).values()]
    assert data.records == sum(value is not None for values in whole for value in values)


def one(column, values, begin="2019-05-15T00:00:00", bucket=60):
    times = stamps(dt.datetime.fromisoformat(begin) + dt.timedelta(seconds=bucket), len(values), bucket)
    return output({column: values}, times)


NSD = "nsd1|GPFSNSDDisk|ddn1|gpfs_nsdds_bytes_read"


def test_a_time_stamp_is_the_end_of_its_bucket(tmp_path):
    found, data = of(opened(written(tmp_path, [one(NSD, [5, 6])])))
    assert found == {"datatargets/readbytes": {(small.START, "nsd1:ddn1"): 5.0, (small.START + 60, "nsd1:ddn1"): 6.0}}
    assert (data.records, data.dropped) == (2, {})


def test_of_two_values_of_a_cell_the_later_counts_but_null_never_does(tmp_path):
    texts = [one(NSD, [1, 2, None]), one(NSD, [None, 3, 4])]
    found, _ = of(opened(written(tmp_path, texts)))
    assert list(found["datatargets/readbytes"].values()) == [1.0, 3.0, 4.0]


def test_interfaces_in_files_of_their_own_are_summed_too_and_only_where_all_are_there(tmp_path):
    texts = [
        one(f"nsd1|Network|{name}|net_r", values) for name, values in {"eth0": [1, 2, 3], "ib0": [10, None, 30], "lo": [7, 7, 7]}.items()
    ]
    found, data = of(opened(written(tmp_path, texts)))
    assert found == {"dataservers/netinbytes": {(small.START, "nsd1"): 11.0, (small.START + 120, "nsd1"): 33.0}}
    assert data.dropped == {"loopback": 3}


@pytest.mark.parametrize("form", ["files", "archive"])
def test_files_of_the_hour_that_occurs_twice_are_of_the_pass_in_which_they_were_written(tmp_path, form):
    """A folder that a script fills every few minutes: the second hour replaced the first, and was missing itself."""
    back = int(dt.datetime(2026, 11, 1, 9, 0, tzinfo=dt.UTC).timestamp())
    begins = {f"{n}.out": back - 3600 + 600 * n for n in range(12)}
    (tmp_path / "in").mkdir()
    with tarfile.open(tmp_path / "in.tar", "w") as archive:
        for value, (name, begin) in enumerate(begins.items()):
            first = dt.datetime.fromtimestamp(begin + 60, ZoneInfo(ZONE)).replace(tzinfo=None)
            text = output({"nsd1|CPU|cpu_user": [value] * 6}, stamps(first, 6))
            (tmp_path / "in" / name).write_bytes(text)
            os.utime(tmp_path / "in" / name, (begin + 420, begin + 420))
            archive.add(tmp_path / "in" / name, name)
    window = Window(back - 3600, back + 3600)
    found, _ = of(opened(tmp_path / ("in" if form == "files" else "in.tar"), step=60), window)
    cells = {time: value for (time, _), value in found["dataservers/cpuuser"].items()}
    expected = {begin + 60 * row: float(value) for value, begin in enumerate(begins.values()) for row in range(6)}
    assert cells == expected


def test_a_file_that_is_read_alone_as_in_a_watched_folder_has_the_sum_of_its_own_interfaces(tmp_path):
    for name, value in {"eth0": 1, "ib0": 10}.items():
        (tmp_path / name).write_bytes(one(f"nsd1|Network|{name}|net_r", [value]))
        found, _ = of(opened(tmp_path / name))
        assert found == {"dataservers/netinbytes": {(small.START, "nsd1"): float(value)}}


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        ("nsd1|GPFSNSDDisk|other|gpfs_nsdds_bytes_read", "NSD that lun_map does not match"),
        ("nsd1|GPFSNSDDisk|gpfs_nsdds_bytes_read", "unknown metric"),
        ("nsd1|CPU|cpu_wait", "unknown metric"),
        ("nsd1|Network|net_r", "unknown metric"),
        ("nsd1", "no such column in the legend"),
    ],
)
def test_a_column_that_gives_no_cells_is_counted(tmp_path, column, reason):
    found, data = of(opened(written(tmp_path, [one(column, [5, 6]), one(NSD, [7])]), lun_map=("ddn=datatarget",)))
    assert (list(found), data.dropped[reason]) == (["datatargets/readbytes"], 2)
    (tmp_path / "01.out").unlink()
    with pytest.raises(Fatal, match=f"nothing could be read.*2 x {reason}, for example"):
        of(opened(tmp_path, lun_map=("ddn=datatarget",)))


@pytest.mark.parametrize(("bucket", "reason"), [(1, "buckets shorter than the step"), (300, "buckets longer than the step")])
def test_buckets_of_another_length_are_not_put_into_rows(tmp_path, bucket, reason):
    with pytest.raises(Fatal, match=rf"nothing could be read: 4 x {reason} \(set the buckets' length: bucket, --step of saved outputs\)$"):
        of(opened(written(tmp_path, [one(NSD, [5] * 4, bucket=bucket)])))
    found, data = of(opened(written(tmp_path, [one(NSD, [5] * 4, bucket=bucket)]), step=bucket))
    assert (len(found["datatargets/readbytes"]), data.dropped) == (4, {})


def test_rows_with_others_missing_between_them_are_stored(tmp_path):
    times = ["2019-05-15-08:01:00", "2019-05-15-08:03:00", "2019-05-15-08:05:00"]
    found, data = of(opened(written(tmp_path, [output({NSD: [5, 6, 7]}, times)])), Window(small.START, small.START + 86400))
    assert (list(found["datatargets/readbytes"].values()), data.dropped) == ([5, 6, 7], {})


def test_file_systems_of_one_name_in_two_clusters_are_two_columns(tmp_path):
    columns = {
        f"h1|GPFSFilesystem|{cluster}|fs1|gpfs_fs_bytes_read": [value] for cluster, value in (("A.nersc.gov", 1), ("B.nersc.gov", 2))
    }
    found, _ = of(opened(written(tmp_path, [output(columns, ["2019-05-15-00:01:00"])])))
    assert found["datatargets/readbytes"] == {(small.START, "h1:A.nersc.gov|fs1"): 1.0, (small.START, "h1:B.nersc.gov|fs1"): 2.0}


def test_cpu_figures_are_scaled_and_their_sum_with_them(tmp_path):
    texts = [one("nsd1|CPU|cpu_user", [0.25, 1.5]), one("nsd1|CPU|cpu_sys", [0.5, None])]
    found, _ = of(opened(written(tmp_path, texts), cpu_scale=100))
    assert list(found["dataservers/cpuload"].values()) == [75.0]
    assert list(found["dataservers/cpuuser"].values()) == [25.0, 150.0]


def test_an_hour_that_never_was_is_counted(tmp_path):
    text = one(NSD, [5, 6, 7], begin="2019-03-10T02:58:00")
    found, data = of(opened(written(tmp_path, [text])), Window(1552211940, 1552212600))
    assert (list(found["datatargets/readbytes"].values()), data.dropped) == ([6, 7], {"time stamp that does not exist": 1})
    assert data.why["time stamp that does not exist"] == Why("2019-03-10-02:59:00", "check --timezone")


def test_files_that_are_no_output_are_counted_next_to_outputs(tmp_path):
    found, data = of(opened(written(tmp_path, [b"some notes\n", one(NSD, [5]), b""])))
    assert (len(found), data.dropped) == (1, {"file without a legend": 2})


def test_an_input_without_any_output_is_refused(tmp_path):
    with pytest.raises(Fatal, match=r'00.out: nothing could be read: 1 x file without a legend, for example "some notes"'):
        of(opened(written(tmp_path, [b"some notes\n"]) / "00.out"))


def test_a_file_that_is_not_there_is_a_sentence(tmp_path):
    with pytest.raises(TokiodError, match=r"nothing can't be read: No such file"):
        opened(tmp_path / "nothing")


@pytest.mark.parametrize("text", ["ddn", "=datatarget", "ddn=dataservers", "(=mdtarget"])
def test_a_map_that_cannot_be_read_is_a_sentence_with_its_option(tmp_path, text):
    with pytest.raises(TokiodError, match=r"^--lun-map: "):
        opened(tmp_path, lun_map=(text,))
    assert [fault.partition(":")[0] for fault in Saved(lun_map=(text,), server_map=(text,)).faults()] == ["lun_map", "server_map"]


def test_expressions_may_hold_equals_signs_and_the_first_that_matches_counts(tmp_path):
    texts = [one(f"nsd1|GPFSNSDDisk|{name}|gpfs_nsdds_bytes_read", [5]) for name in ("a=b", "a", "ba")]
    found, data = of(opened(written(tmp_path, texts), lun_map=("a=b=mdtarget", "a=datatarget")))
    assert {dataset: [name for _, name in cells] for dataset, cells in found.items()} == {
        "mdtargets/readbytes": ["nsd1:a=b"],
        "datatargets/readbytes": ["nsd1:a"],
    }
    assert data.dropped == {"NSD that lun_map does not match": 1}


def test_spans_are_where_rows_are(tmp_path):
    collector = opened(written(tmp_path, [one(NSD, [5, 6]), one(NSD, [7], begin="2019-05-17T00:00:00")]))
    assert within(collector, lambda c: c.spans()) == [
        Window(small.START, small.START + 120),
        Window(small.START + 172800, small.START + 172860),
    ]


def test_a_large_input_is_read_as_a_small_one(tmp_path, monkeypatch):
    texts = [text for n in range(3) for text in small.texts(small.START + 600 * n, 10, ZoneInfo(ZONE))]
    directory = written(tmp_path, [*texts, b"nonsense\n"])
    alone, data = of(opened(directory, **MAPS))
    calls = []
    monkeypatch.setattr(parse_workers, "parsed", lambda *given: calls.append(given) or parsed(*given))
    monkeypatch.setattr(sys.modules["collectors.mmperfmon.saved_files"], "MIN_BYTES_FOR_WORKERS", 1)
    monkeypatch.setattr(sys.modules["collectors.mmperfmon.saved_files"], "worker_count", lambda: 1)
    found, in_workers = of(opened(directory, **MAPS))
    assert (found, in_workers.records, in_workers.dropped) == (alone, data.records, data.dropped)
    assert len(calls) == 1


@pytest.mark.parametrize("columns", [1, 4096])
def test_rows_of_files_with_the_same_times_come_back_in_their_order(monkeypatch, columns):
    monkeypatch.setattr(sys.modules["collectors.mmperfmon.saved_files"], "MAX_COLUMNS", columns)
    same, other = np.array([60, 0, 120]), np.array([60, 180])
    added = [(same, 2, 5.0), (same, 3, 6.0), (other, 2, 7.0), (same, 2, 8.0)]
    with closing(Spool()) as spool:
        for time, width, value in added:
            spool.add(Rows(time, np.arange(width), np.full((len(time), width), value) + time[:, np.newaxis], np.full(len(time), width)))
        found = {}
        for rows in spool.within(Window(0, 180)):
            for place, series in enumerate(rows.series.tolist()):
                found |= {(series, time): value for time, value in zip(rows.time.tolist(), rows.value[:, place].tolist(), strict=True)}
        records = sum(int(rows.records.sum()) for rows in spool.within(Window(0, 180)))
    assert found == {
        (0, 0): 8.0, (0, 60): 68.0, (0, 120): 128.0,
        (1, 0): 8.0, (1, 60): 68.0, (1, 120): 128.0, (2, 0): 6.0, (2, 60): 66.0, (2, 120): 126.0,
    }  # fmt: skip
    assert records == 3 * 2 + 3 * 3 + 1 * 2 + 3 * 2


def test_scaled_cpu_figures_have_other_units_so_that_the_bounds_of_percentages_do_not_hold():
    folder = watched(Saved)(name="a", kind="mmperfmon", system="s", watch="/in", cpu_scale=100)
    for options in (Saved(cpu_scale=100), Config(name="a", kind="mmperfmon", system="s", cpu_scale=100), folder):
        assert (options.units["dataservers/cpuuser"], options.units["mdservers/cpuload"]) == ("0.01 %", "0.01 %")
    assert (Saved().units, watched(Saved)(name="a", kind="mmperfmon", system="s", watch="/in").units) == ({}, {})
