"""Exported datasets are the cells of tokiod.open, in every form; a missing cell is null, NaN or empty."""

import datetime as dt
import json
import os
import subprocess
import sys
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from click.testing import CliRunner
from stitched_days import READ, SITE, save, slot

import tokiod
from tokiod.analysis.export import csv_pieces, json_pieces, parquet_files, zarr_stores
from tokiod.cli.tokioctl import main
from tokiod.tts.live.create import create
from tokiod.tts.spec import FileSpec, GroupSpec, MatrixSpec

RATES = "datatargets/readrates"
ZONE = "America/Los_Angeles"
CLOCK = "1600000000@0x0"


@pytest.fixture
def site(tmp_path):
    """Two days of a system, a sealed and a live one with another column, and a day without a file between them."""
    generator = np.random.default_rng(5)
    (tmp_path / "tts").mkdir()
    for day, columns in ((1, ["OST0000", 'a,"b']), (3, ["OST0000", "OST0001"])):
        values = np.round(generator.random((24, 2)) * 1e6)
        values[generator.random(values.shape) < 0.3] = np.nan
        values[0] = 0
        save(tmp_path, day, columns, values, is_sealed=day == 1).path.rename(tmp_path / "tts" / f"fs-2018-01-0{day}.hdf5")
    path = tmp_path / "tokiod.toml"
    path.write_text(
        f'timezone = "{ZONE}"\n[archive]\npath = "{tmp_path}/tts/{{system}}-%Y-%m-%d.hdf5"\n'
        '[[source]]\nname = "lmt"\nkind = "lmt"\nsystem = "fs"\nurl = "mysql://u@db/filesystem_fs"\n'
    )
    return path


def exported(site, *arguments, code=0, clock=CLOCK):
    done = CliRunner().invoke(main, ["export", *map(str, arguments), "--config", str(site), "--clock", clock], catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done.stdout if code == 0 else done.stderr


def cells(site, dataset=READ):
    return tokiod.open("fs", "2018-01-01", "2018-01-04", config=site).frame(dataset, timezone="UTC")


PART = ("--start", "2018-01-01T10:00", "--end", "2018-01-01T11:00")
SPAN = ("fs", "--start", "2018-01-01", "--end", "2018-01-04")


def test_csv_is_a_line_for_each_row_with_its_time_in_utc(site, tmp_path):
    import pandas as pd  # noqa: PLC0415 - collected without it

    expected = cells(site)
    text = exported(site, *SPAN, READ)
    assert text.splitlines()[:2] == ['time,OST0000,OST0001,"a,""b"', "2018-01-01T08:00:00Z,0,,0"]
    exported(site, *SPAN, READ, "--csv", tmp_path / "x.csv")
    assert (tmp_path / "x.csv").read_text() == text
    found = pd.read_csv(tmp_path / "x.csv", index_col="time", parse_dates=True)
    np.testing.assert_array_equal(found.to_numpy(), expected.to_numpy())
    assert list(found.columns) == list(expected.columns)
    assert list(found.index) == list(expected.index)


def test_json_is_one_object_on_one_line_with_null_for_missing_cells(site, tmp_path):
    expected, text = cells(site), exported(site, *SPAN, "--json")
    assert text.count("\n") == 1
    found = json.loads(text)
    assert (found["system"], list(found["datasets"])) == ("fs", [READ])
    one = found["datasets"][READ]
    assert (one["units"], one["step"], one["columns"]) == ("bytes", 3600, list(expected.columns))
    assert one["times"] == [int(time.timestamp()) for time in expected.index]
    np.testing.assert_array_equal(np.array(one["values"], float), expected.to_numpy())
    exported(site, *SPAN, READ, RATES, "--json", tmp_path / "x.json")
    both = json.loads((tmp_path / "x.json").read_text())["datasets"]
    assert both[READ] == one
    np.testing.assert_array_equal(np.array(both[RATES]["values"], float), expected.to_numpy() / 3600)


def test_parquet_is_a_file_for_each_day_of_the_site_that_has_one(site, tmp_path):
    import pandas as pd  # noqa: PLC0415 - collected without it
    import pyarrow.parquet as pq  # noqa: PLC0415 - collected without it

    shown = exported(site, *SPAN, "--parquet", tmp_path / "out")
    paths = sorted((tmp_path / "out").rglob("*.parquet"))
    names = [f"system=fs/group=datatargets/dataset=readbytes/date=2018-01-0{day}/part.parquet" for day in (1, 3)]
    assert [str(path.relative_to(tmp_path / "out")) for path in paths] == names
    assert shown.splitlines() == [f"{path}: 24 rows, 3 columns" for path in paths]
    expected = cells(site)
    for path, day in zip(paths, (1, 3), strict=True):
        table = pq.read_table(path, partitioning=None)
        assert str(table.schema.field("time").type) == "timestamp[ms, tz=UTC]"
        midnight = pd.Timestamp(dt.date(2018, 1, day), tz=ZONE)
        wanted = expected[(expected.index >= midnight) & (expected.index < midnight + pd.Timedelta(days=1))]
        frame = table.to_pandas().set_index("time")
        assert list(frame.index) == list(wanted.index)
        np.testing.assert_array_equal(frame.to_numpy(), wanted.to_numpy())
        assert [table.column(name).null_count for name in wanted.columns] == wanted.isna().sum().tolist()
        column = pq.ParquetFile(path).metadata.row_group(0).column(1)
        assert (column.compression, "BYTE_STREAM_SPLIT" in column.encodings) == ("ZSTD", True)
    before = paths[0].stat().st_ino
    exported(site, *SPAN, "--parquet", tmp_path / "out")
    assert paths[0].stat().st_ino != before
    assert [path for path in (tmp_path / "out").rglob("*") if path.is_file() and path not in paths] == []


def hours(directory):
    """Return how many hours after the midnight of its date the first row of each Parquet file begins and the last one ends, by date."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - collected without it

    found = {}
    for path in sorted(directory.rglob("*.parquet")):
        date = dt.date.fromisoformat(path.parent.name.removeprefix("date="))
        midnight = dt.datetime.combine(date, dt.time(), ZoneInfo(ZONE))
        times = pq.read_table(path, partitioning=None)["time"].to_pylist()
        found[str(date)] = [(times[0] - midnight) // dt.timedelta(hours=1), (times[-1] - midnight) // dt.timedelta(hours=1) + 1]
    return found


def test_an_export_of_a_part_of_a_day_leaves_the_whole_day_until_now_in_its_parquet_file(site, tmp_path):
    out, now = tmp_path / "out", SITE.day_of_date(dt.date(2018, 1, 3)).start + 6 * 3600
    exported(site, "fs", "--start", "2d", "--parquet", out, clock=f"{now}@0x0")
    assert hours(out) == {"2018-01-01": [0, 24], "2018-01-03": [0, 6]}
    exported(site, "fs", "--start", "2018-01-01T10:00", "--end", "2018-01-01T11:00", "--parquet", out)
    exported(site, "fs:2018-01-03", "--end", "2018-01-03T05:00", "--parquet", out, clock=f"{now + 3600}@0x0")
    assert hours(out) == {"2018-01-01": [0, 24], "2018-01-03": [0, 7]}
    exported(site, "fs", "--start", "1h", "--timezone", "Asia/Tokyo", "--parquet", tmp_path / "far", clock=f"{now}@0x0")
    assert hours(tmp_path / "far") == {"2018-01-04": [-24, -18]}
    exported(tmp_path / "none.toml", tmp_path / "tts" / "fs-2018-01-01.hdf5", *PART, "--timezone", ZONE, "--parquet", tmp_path / "one")
    assert hours(tmp_path / "one") == {"2018-01-01": [0, 24]}


def test_an_export_of_a_part_of_a_file_of_several_days_leaves_whole_dates_in_parquet_files(tmp_path):
    first, last = (SITE.day_of_date(dt.date(2018, 1, day)) for day in (1, 3))
    spec = FileSpec(first.start + 7200, last.end, {"datatargets": GroupSpec(3600, "lmt")}, {READ: MatrixSpec(("a",), counter=False)})
    create(tmp_path / "days.hdf5", spec, created=first.start)
    span = ("--start", "2018-01-01T10:00", "--end", "2018-01-02T03:00", "--timezone", ZONE)
    exported(tmp_path / "none.toml", tmp_path / "days.hdf5", *span, "--parquet", tmp_path / "out")
    assert hours(tmp_path / "out") == {"2018-01-01": [2, 24], "2018-01-02": [0, 24]}


def test_zarr_is_read_by_xarray(site, tmp_path):
    import xarray as xr  # noqa: PLC0415 - collected without it

    exported(site, *SPAN, "--rates", "--zarr", tmp_path / "out")
    expected = cells(site, RATES)
    with xr.open_zarr(tmp_path / "out" / "datatargets" / "readrates", consolidated=False) as found:
        np.testing.assert_array_equal(found.readrates.values, expected.to_numpy())
        assert found.datatarget.to_numpy().tolist() == list(expected.columns)
        assert list(found.time.to_numpy()) == list(expected.index.tz_localize(None).to_numpy())
        assert found.readrates.encoding["chunks"] == (len(expected), 3)
    assert "the directory is not empty" in exported(site, *SPAN, "--zarr", tmp_path / "out", code=2)


def test_each_form_reports_all_rows_as_progress(site, tmp_path):
    with tokiod.open("fs", "2018-01-01", "2018-01-04", config=site) as archive:
        matrix, rows, told = archive.array(READ), len(cells(site)), []
        assert len(list(csv_pieces(matrix, told.append))) == rows + 1
        assert sum(told) == rows
        assert json.loads("".join(json_pieces("fs", [matrix, matrix], told.append)))["system"] == "fs"
        assert sum(told) == 3 * rows
        written = list(parquet_files("fs", [matrix], tmp_path / "parquet", ZoneInfo(ZONE), told.append))
        assert sum(told) == 3 * rows + sum(rows for _, rows, _ in written)
        told.clear()
        assert zarr_stores(archive, [READ], tmp_path / "zarr", told.append) == [(tmp_path / "zarr" / READ, rows, 3)]
        assert sum(told) == rows


@pytest.mark.parametrize(("package", "form", "extra"), [("zarr", "a Zarr store", "zarr"), ("pyarrow", "a Parquet file", "parquet")])
def test_a_form_whose_package_is_missing_names_it(site, tmp_path, monkeypatch, package, form, extra):
    monkeypatch.setitem(sys.modules, package, None)
    assert f"{form} needs {package}: pip install '.[{extra}]'" in exported(site, *SPAN, f"--{extra}", tmp_path / "out", code=2)


def test_a_file_needs_no_configuration_and_gives_its_name(tmp_path):
    place = save(tmp_path, 1, ["a"], [[1.5]])
    missing = tmp_path / "none.toml"
    found = json.loads(exported(missing, place.path, "--json"))
    assert (found["system"], found["datasets"][READ]["values"][:2]) == ("1", [[1.5], [None]])
    assert json.loads(exported(missing, place.path, "--system", "fs", "--json"))["system"] == "fs"


def test_what_can_not_be_exported_is_a_sentence(site, tmp_path):
    assert "has no 'datatargets/readbyte', did you mean datatargets/readbytes" in exported(site, *SPAN, "datatargets/readbyte", code=2)
    assert "--csv holds one dataset; name one of: " in exported(site, *SPAN, READ, RATES, code=2)
    assert "give one of --parquet, --zarr, --csv, --json, not 2" in exported(site, *SPAN, "--csv", "-", "--json", code=2)
    assert "would replace a file of an archive" in exported(site, "fs", "--csv", slot(tmp_path, 1).path, code=2)
    assert "can't be part of a path" in exported(site, *SPAN, "--system", "../x", "--json", code=2)
    assert f"directory {tmp_path}/none does not exist" in exported(site, *SPAN, READ, "--csv", tmp_path / "none" / "x.csv", code=2)
    assert "Is a directory" in exported(site, *SPAN, READ, "--csv", tmp_path, code=2)


def test_a_pipe_or_a_link_stays_what_it_is(site, tmp_path):
    text = exported(site, *SPAN, READ)
    os.mkfifo(tmp_path / "pipe")
    reader = subprocess.Popen(["cat", tmp_path / "pipe"], stdout=subprocess.PIPE, text=True)
    exported(site, *SPAN, READ, "--csv", tmp_path / "pipe")
    assert (reader.communicate()[0], (tmp_path / "pipe").is_fifo()) == (text, True)
    (tmp_path / "link.csv").symlink_to("real.csv")
    exported(site, *SPAN, READ, "--csv", tmp_path / "link.csv")
    assert ((tmp_path / "link.csv").is_symlink(), (tmp_path / "real.csv").read_text()) == (True, text)


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/Los_Angeles", "Pacific/Pago_Pago"])
def test_a_day_of_any_zone_is_one_parquet_file_of_its_date_without_a_configuration(tmp_path, zone):
    import pyarrow.parquet as pq  # noqa: PLC0415 - collected without it

    start = int(dt.datetime(2018, 1, 28, tzinfo=ZoneInfo(zone)).timestamp())
    spec = FileSpec(start, start + 86400, {"datatargets": GroupSpec(3600, "lmt")}, {READ: MatrixSpec(("a",), counter=False)})
    create(tmp_path / "day.hdf5", spec, created=start)
    exported(tmp_path / "none.toml", tmp_path / "day.hdf5", "--parquet", tmp_path / "out")
    (path,) = (tmp_path / "out").rglob("*.parquet")
    assert (path.parent.name, pq.read_metadata(path).num_rows) == ("date=2018-01-28", 24)


@pytest.mark.parametrize(("hours", "rows"), [(23, [23]), (25, [25]), (26, [25, 1])])
def test_a_file_of_25_hours_is_a_day_and_a_longer_one_is_divided_at_midnight(tmp_path, hours, rows):
    """Clocks were put back on this day."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - collected without it

    start = int(dt.datetime(2018, 11, 4, tzinfo=ZoneInfo(ZONE)).timestamp())
    spec = FileSpec(start, start + hours * 3600, {"datatargets": GroupSpec(3600, "lmt")}, {READ: MatrixSpec(("a",), counter=False)})
    create(tmp_path / "day.hdf5", spec, created=start)
    exported(tmp_path / "none.toml", tmp_path / "day.hdf5", "--timezone", ZONE, "--parquet", tmp_path / "out")
    assert [pq.read_metadata(path).num_rows for path in sorted((tmp_path / "out").rglob("*.parquet"))] == rows


def test_an_interrupted_zarr_leaves_nothing_and_may_be_repeated(site, tmp_path, monkeypatch):
    import xarray as xr  # noqa: PLC0415 - collected without it

    def interrupt(*_args, **_options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(xr.Dataset, "to_zarr", interrupt)
        done = CliRunner().invoke(main, ["export", *SPAN, "--zarr", str(tmp_path / "out"), "--config", str(site), "--clock", CLOCK])
        assert done.exit_code == 130
    assert not list(tmp_path.glob("*out*"))
    exported(site, *SPAN, "--zarr", tmp_path / "out")


def test_a_component_with_the_name_of_the_times_can_not_be_a_column_of_parquet(tmp_path):
    place = save(tmp_path, 1, ["time"], [[1.0]], is_sealed=True)
    assert "a component is named 'time'" in exported(tmp_path / "none.toml", place.path, "--parquet", tmp_path / "out", code=2)
