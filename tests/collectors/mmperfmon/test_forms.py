"""The forms that mmperfmon and its relatives print: each is stored right, or refused with what was found and what helps."""

import datetime as dt
import os
from pathlib import Path

import pytest
from mmperfmon_outputs import output, stamps

from collectors.mmperfmon import Saved, saved
from tokiod.clock import SystemClock
from tokiod.collector import Site
from tokiod.errors import Fatal
from tokiod.testing.collector_contract import within
from tokiod.window import Calendar, Window

FIRST = dt.datetime.fromisoformat("2024-06-01T08:31:00")
START = 1_717_230_600
WINDOW = Window(START, START + 600)
CPU, NET, NSD = "n1|CPU|cpu_user", "n1|Network|ib0|net_r", "n1|GPFSNSDDisk|ddn1|gpfs_nsdds_bytes_read"


def stored(path):
    """({dataset: {(row, column): value}}, the data of the window) of a saved output."""
    data = within(saved([path], Saved(), Site(Calendar("UTC"), SystemClock())), lambda c: c.collect(WINDOW))
    found = {}
    for batch in data.batches:
        rows = (batch.time - START) // 60
        found[batch.dataset] = {
            (row, batch.columns[i]): value for row, i, value in zip(rows.tolist(), batch.column, batch.value.tolist(), strict=True)
        }
    return found, data


def refused(path):
    with pytest.raises(Fatal) as error:
        stored(path)
    return str(error.value).replace(str(path), "FILE")


@pytest.fixture
def stranger():
    place = Path(os.environ.get("TOKIOD_SHARED", Path(__file__).parents[3].parent / "shared")) / "data" / "strangers" / "servers"
    if not place.is_dir():
        pytest.skip(f"the inputs of other sites are not here: {place}")
    return lambda name: place / name


@pytest.fixture
def written(tmp_path):
    def write(text):
        (tmp_path / "a").write_bytes(text)
        return tmp_path / "a"

    return write


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_row_that_was_cut_within_a_file_is_counted(written, cut):
    """The cut row has as many words as before, as long as its last number is cut inside."""
    text = output({CPU: [0.16, 0.23, 0.36], NSD: [123456, 234567, 345678]}, stamps(FIRST, 3))
    lines = text.split(b"\n")
    place = next(n for n, line in enumerate(lines) if line.startswith(b"  2 "))
    lines[place] = lines[place].rstrip()[:-cut]
    found, data = stored(written(b"\n".join(lines)))
    assert found["datatargets/readbytes"] == {(0, "n1:ddn1"): 123456, (2, "n1:ddn1"): 345678}
    assert found["dataservers/cpuuser"] == {(0, "n1"): 0.16, (2, "n1"): 0.36}
    assert data.dropped == {"truncated": 1}


@pytest.mark.parametrize("lost", ["row", "table", "header", "legend"])
def test_the_sum_of_a_server_is_missing_where_an_adapter_is_lost(written, lost):
    """At 30 columns each adapter has its own table, and a part of a sum would look like a sum."""
    keys = ["n1|Network|eth0|net_r", "n1|Network|ib0|net_r"]
    text = output({CPU: [0.5, 0.25], keys[0]: [1, 2], keys[1]: [4, 8]}, stamps(FIRST, 2), 30).decode()
    head, cpu, eth0, ib0 = text.split("Row  ")
    row = ib0.splitlines(keepends=True)[2]
    damaged = {
        "row": [head, cpu, eth0, ib0.replace(row, row[:20] + "\n")],
        "table": [head, cpu, eth0],
        "header": [head, cpu, eth0, ib0.replace("net_r", "net_x")],
        "legend": [head.replace("n1|Network|ib0|net_r", "n1"), cpu, eth0, ib0],
    }
    found, data = stored(written("Row  ".join(damaged[lost]).encode()))
    assert found.get("dataservers/netinbytes", {}) == ({(0, "n1"): 5.0} if lost == "row" else {})
    assert found["dataservers/cpuuser"] == {(0, "n1"): 0.5, (1, "n1"): 0.25}
    assert sum(data.dropped.values())


COMPARED = """
Legend:
 1:\tnode-11.example.com|CPU|cpu_user
 2:\tnode-12.example.com|CPU|cpu_user

Row           Timestamp {} {}
  1 2024-06-01-08:31:00    0.16    0.23
"""


@pytest.mark.parametrize("names", [("node-11", "node-12"), ("node-11.example.com", "node-12.example.com"), ("cpu_user", "cpu_user")])
def test_columns_may_be_named_after_their_hosts(written, names):
    """compareNodes shows one metric of all nodes."""
    text = COMPARED.format(*names).replace("0.16    0.23", f"{'0.16':>{len(names[0]) - 3}} {'0.23':>{len(names[1])}}")
    found, data = stored(written(text.encode()))
    both = {(0, "node-11.example.com"): 0.16, (0, "node-12.example.com"): 0.23}
    assert (found, data.dropped) == ({"dataservers/cpuuser": both}, {})


@pytest.mark.parametrize(
    ("names", "second"),
    [
        (("node-12", "node-11"), "node-12.example.com|CPU|cpu_user"),
        (("node-11", "node-12.example.com"), "node-12.example.com|CPU|cpu_user"),
        (("node-11", "node-12"), "node-12.example.com|CPU|cpu_sys"),
        (("node-11", "node-11"), "node-11.example.com|CPU|cpu_user"),
    ],
)
def test_hosts_that_may_be_those_of_other_columns_are_refused(written, names, second):
    text = COMPARED.format(*names).replace("node-12.example.com|CPU|cpu_user", second).replace("0.23", "0.23" + " " * 12)
    assert "2 x no such column in the legend, for example" in refused(written(text.encode()))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"Row;Timestamp;n1|CPU|cpu_user\n1;2024-06-01-08:31:00;0.16\n", "file in CSV"),
        (b"Row,Timestamp,cpu_user\n1,2024-06-01-08:31:00,0.16\n", "file in CSV"),
        (b'"Row","Timestamp","cpu_user"\n', "file in CSV"),
        (b'\n {"header":{}, "legend":[], "rows":[]}', "file in JSON, as the performance collector and the REST API return it"),
        (b"mmperfmon: Error: No data available for query: 3169.\n", "answer without data"),
        (b"No data available for the given query.\n", "answer without data"),
        (b"hello\n", "file without a legend"),
        (b"", "file without a legend"),
        (b"Row           Timestamp cpu_user\n  1 2024-06-01-08:31:00     0.16\n", "file without a legend"),
    ],
)
def test_a_file_of_another_form_is_refused_with_that(written, text, sentence):
    found = refused(written(text))
    assert found.startswith(f"FILE: nothing could be read: 1 x {sentence}")
    assert ("mmhealth node show PERFMON" if sentence == "answer without data" else "mmperfmon query") in found


def test_decimal_commas_and_unknown_units_are_named(written):
    text = output({NET: [1700, 5], CPU: [0.16, 0.36]}, stamps(FIRST, 2))
    sentence = refused(written(text.replace(b".", b",")))
    assert '2 x row with decimal commas, for example "1 2024-06-01-08:31:00 1,7 kB     0,16" (query with LC_ALL=C)' in sentence
    _, data = stored(written(text.replace(b"1.7 kB", b"1.7 Ki")))
    assert data.dropped == {"row with an unknown unit": 1}


@pytest.mark.parametrize(
    ("key", "right", "wrong"),
    [
        (CPU, ["0", "100", "99.99"], ["-0.01", "100.01", "1e9", "-1"]),
        (NSD, ["0", "9.2e18"], ["-1", "9223372036854775808", "18446744073709551615", "1e300"]),
    ],
)
def test_values_that_no_sensor_measures_are_counted(written, key, right, wrong):
    for values, dropped in ((right, {}), ([*wrong, "1"], {"impossible value": len(wrong)})):
        found, data = stored(written(output({key: values}, stamps(FIRST, len(values)))))
        (cells,) = found.values()
        assert (len(cells), data.dropped) == (len(values) - len(wrong) * bool(dropped), dropped)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("mm_csv.txt", "1 x file in CSV"),
        ("mm_zimon.json", "1 x file in JSON"),
        ("mm_rest_v2.json", "1 x file in JSON"),
        ("mm_nodata.txt", "1 x answer without data"),
        ("mm_error3169.txt", "1 x answer without data"),
        ("mm_comma.txt", "2 x row with decimal commas"),
    ],
)
def test_files_of_other_sites_that_give_nothing_are_refused_with_what_they_are(stranger, name, sentence):
    assert f"nothing could be read: {sentence}" in refused(stranger(name))


def test_outputs_of_other_sites_are_read_right(stranger):
    found, data = stored(stranger("mm_compareNodes.txt"))
    hosts = ("node-11.localnet.com", "node-12.localnet.com")
    cells = zip([(row, host) for row in (0, 1) for host in hosts], [0.16, 0.23, 0.36, 0.1], strict=True)
    assert (found, data.dropped) == ({"dataservers/cpuuser": dict(cells)}, {})
    assert sum(map(len, stored(stranger("mm_usage_nulls.txt"))[0].values())) == 7
    assert sum(map(len, stored(stranger("mm_fs.txt"))[0].values())) == 3


def test_a_column_whose_number_lost_a_digit_is_not_taken_for_another(written):
    keys = [f"n1|GPFSNSDDisk|ddn{n}|gpfs_nsdds_bytes_read" for n in range(1, 12)]
    text = output({key: [number] for number, key in enumerate(keys)}, stamps(FIRST, 1), 30000)
    assert "no such column in the legend" in refused(written(text.replace(b"11:\t", b"1:\t")))


def test_a_table_that_lost_its_header_is_not_taken_for_the_next_one(written):
    """Its row is shorter than the header before, and the next table has the same names."""
    keys = ["n1|CPU|cpu_user", NSD, "n1|GPFSNSDDisk|ddn2|gpfs_nsdds_bytes_read", "n1|GPFSNSDDisk|ddn3|gpfs_nsdds_bytes_read"]
    head, *tables = output({key: [number] for number, key in enumerate(keys)}, stamps(FIRST, 1), 56).decode().split("Row  ")
    tables[1] = tables[1].replace("         Timestamp gpfs_nsdds_bytes_read", "gpfs_nsdds_bytes_read").replace(" " * 20, " " * 8)
    found, data = stored(written("Row  ".join([head, *tables]).replace("Row  gpfs", "gpfs").encode()))
    assert found["datatargets/readbytes"] == {(0, "n1:ddn1"): 1.0}
    assert data.dropped["no such column in the legend"] == 1


def test_a_header_that_was_joined_with_the_only_row_is_counted(written):
    text = output({CPU: [0.5], NSD: [7]}, stamps(FIRST, 1), 30000).replace(b"gpfs_nsdds_bytes_read \n", b"gpfs_nsdds_bytes_read ")
    assert "no such column in the legend" in refused(written(text))


def test_headers_without_rows_are_of_a_time_without_data(written):
    text = output({CPU: [0.5], NET: [3], NSD: [7]}, stamps(FIRST, 1), 40)
    bare = "\n".join(line for line in text.decode().splitlines() if " 2024-06-01" not in line) + "\n"
    assert bare.count("Row") > 1
    found, data = stored(written(bare.encode() + text))
    assert (found["datatargets/readbytes"], data.dropped) == ({(0, "n1:ddn1"): 7.0}, {})
