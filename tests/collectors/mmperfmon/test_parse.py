import datetime as dt
import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mmperfmon_outputs import output, shown, stamps

from collectors.mmperfmon.parse import parse
from collectors.mmperfmon.parse_legend import Output

HOUR = dt.datetime.fromisoformat("2019-05-15T12:01:00")
SCALE = {"B": 1, "kB": 1024, "MB": 1024**2, "GB": 1024**3}
KEYS = [
    "nsd1.example.gov|CPU|cpu_user",
    "nsd1.example.gov|Memory|mem_free",
    "nsd1.example.gov|Network|eth0|net_r",
    "nsd1.example.gov|GPFSNSDDisk|ddn1dt00|gpfs_nsdds_bytes_read",
    "nsd1.example.gov|GPFSNSDDisk|ddn1dt01|gpfs_nsdds_bytes_read",
    "nsd2.example.gov|GPFSFilesystem|cluster.example.gov|project|gpfs_fs_bytes_written",
]
amounts = st.none() | st.integers(0, 10**12)
percents = st.none() | st.floats(0, 100).map(lambda value: round(value, 2))


def filled(rows, keys=KEYS, value=7):
    return {key: [value + n for n in range(rows)] for key in keys}


def cells(found: Output):
    """{(key, stamp): value} of all tables."""
    there = {}
    for table in found.tables:
        times = [table.stamps[n : n + 19].decode() for n in range(0, len(table.stamps), 19)]
        for column, values in enumerate(table.value.T.tolist(), table.first):
            metric = table.legend.metrics[column]
            key = "|".join([metric.host, metric.sensor, *metric.ids, metric.counter])
            there |= {(key, time): value for time, value in zip(times, values, strict=True) if value == value}  # noqa: PLR0124 - no NaN
    return there


def wanted(columns, times):
    """The same, of what was printed: a reference that reads one cell at a time."""
    there = {}
    for key, values in columns.items():
        for time, value in zip(times, values, strict=True):
            if value is not None:
                number, _, unit = shown(key, value).partition(" ")
                there[key, time] = float(number) * SCALE.get(unit, 1)
    return there


@given(st.data(), st.integers(1, 12), st.integers(20, 200))
def test_what_was_printed_is_read_at_any_width(data, rows, width):
    columns = {key: data.draw(st.lists(percents if "CPU" in key else amounts, min_size=rows, max_size=rows)) for key in KEYS}
    times = stamps(HOUR, rows)
    found = parse(output(columns, times, width))
    assert (cells(found), found.dropped.counts) == (wanted(columns, times), Counter())


@pytest.mark.parametrize("width", [20, 72, 80, 222, 30000])
def test_a_regular_output_is_one_table_whatever_its_width(width):
    (table,) = parse(output(filled(3), stamps(HOUR, 3), width)).tables
    assert table.value.shape == (3, len(KEYS))


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace(b"\n", b"\r\n"),
        lambda text: text.replace(b":\t", b": "),
        lambda text: b"\n".join(b"    " + line for line in text.split(b"\n")) + b"\n",
        lambda text: re.sub(rb" +\n", b"\n", text),
        lambda text: re.sub(rb"\n\s*\n", b"\n", text),
    ],
    ids=["carriage returns", "a blank after the number", "indented", "no trailing blanks", "no blank lines"],
)
def test_other_blanks_say_the_same(change):
    columns, times = filled(4), stamps(HOUR, 4)
    assert cells(parse(change(output(columns, times)))) == wanted(columns, times)


def test_outputs_in_a_row_are_each_read_with_their_own_legend():
    first, second = filled(3, KEYS[:2]), filled(2, KEYS[2:], value=100)
    times = stamps(HOUR, 3)
    found = parse(output(first, times) + output(second, times[:2]))
    assert cells(found) == wanted(first, times) | wanted(second, times[:2])


def test_a_value_wider_than_its_column_pushes_the_rest_to_the_right():
    text = output(filled(3), stamps(HOUR, 3), 30000).replace(b"  8 ", b" 123456789012345 ", 1)
    found = parse(text)
    assert (len(cells(found)), found.dropped.counts) == (3 * len(KEYS), Counter())
    assert 123456789012345.0 in cells(found).values()


@settings(max_examples=300)
@given(st.data(), st.sampled_from([60, 100, 30000]))
def test_an_output_cut_anywhere_gives_no_value_that_was_not_there(data, width):
    columns, times = filled(5, value=12345), stamps(HOUR, 5)
    text = output(columns, times, width)
    cut = text[: data.draw(st.integers(0, len(text)))]
    whole = wanted(columns, times)
    assert cells(parse(cut)).items() <= whole.items()
    again = parse(cut + b"\n" + output(columns, times, width))
    assert cells(again) == whole


def test_half_a_number_is_counted_and_no_cell():
    columns, times = filled(2, KEYS[3:4], value=12345), stamps(HOUR, 2)
    text = output(columns, times).rstrip()
    for shorter in (text, text[:-1], text[:-3]):
        found = parse(shorter)
        assert found.dropped.counts == {"truncated": 1}
        assert cells(found) == wanted({KEYS[3]: [12345]}, times[:1])
        assert parse(shorter + b"\n" + text + b"\n").dropped.counts["truncated"] == (shorter != text)


def test_rows_that_do_not_agree_with_those_before_are_counted():
    columns, times = filled(3, KEYS[3:5]), stamps(HOUR, 3)
    text = output(columns, times, 40)
    place = text.rindex(times[1].encode())
    found = parse(text[:place] + b"2019-05-15-23:02:00" + text[place + 19 :])
    assert found.dropped.counts == {"contradicting time stamps": 1}
    assert found.dropped.why["contradicting time stamps"].example == f"row 2 of {times[1]} and 2019-05-15-23:02:00"
    there = wanted(columns, times)
    del there[KEYS[4], times[1]]
    assert cells(found) == there


def test_tables_after_one_that_the_legend_does_not_know_are_not_assigned():
    columns, times = filled(2, [*KEYS[3:5], KEYS[0]]), stamps(HOUR, 2)
    text = output(columns, times, 40)
    head, _, tail = text.partition(b"gpfs_nsdds_bytes_read \n")
    found = parse(head + b"gpfs_nsdds_bytes_rued \n" + tail)
    assert (cells(found), found.dropped.counts) == ({}, {"no such column in the legend": 6})


@pytest.mark.parametrize("broken", [0, 1, 2])
@pytest.mark.parametrize("instead", [b"Row           Tmestamp gpfs_nsdds_bytes_read", b"Row", b""], ids=["misspelt", "cut", "gone"])
def test_a_broken_header_drops_its_table_and_those_after_it(broken, instead):
    keys = [KEYS[3], KEYS[4], KEYS[4].replace("dt01", "dt02")]
    columns, times = filled(2, keys), stamps(HOUR, 2)
    parts = output(columns, times, 40).split(b"Row           Timestamp gpfs_nsdds_bytes_read")
    text = b"Row           Timestamp gpfs_nsdds_bytes_read".join(parts[: broken + 1])
    text += instead + b"Row           Timestamp gpfs_nsdds_bytes_read".join(parts[broken + 1 :])
    found = parse(text)
    assert cells(found) == wanted({key: columns[key] for key in keys[:broken]}, times)
    assert found.dropped.counts.total() > 0


def test_a_table_without_a_legend_is_counted():
    text = output(filled(2, KEYS[:1]), stamps(HOUR, 2))
    found = parse(text[text.index(b"Row") :])
    assert (cells(found), found.dropped.counts, found.legends) == ({}, {"no such column in the legend": 2}, [])


@pytest.mark.parametrize("word", ["nan", "inf", "1_0", "0x10", "--1", "+1", "-5", "1e999", "9" * 400, "٣", "12B", "1.7 k", "1.7 parsec"])
def test_what_is_no_amount_is_no_cell_and_is_counted(word):
    columns, times = filled(3, KEYS[3:4], value=42), stamps(HOUR, 3)
    text = output(columns, times).replace(b" 43 ", f" {word} ".encode())
    found = parse(text)
    assert cells(found) == {(KEYS[3], times[0]): 42.0, (KEYS[3], times[2]): 44.0}
    assert found.dropped.counts.total() == 1


def test_a_negative_zero_is_a_zero():
    text = output(filled(1, KEYS[3:4], value=7), stamps(HOUR, 1)).replace(b"  7 ", b" -0 ")
    assert cells(parse(text)) == {(KEYS[3], "2019-05-15-12:01:00"): 0.0}


def test_a_blank_cell_is_found_by_the_columns_around_it():
    text = output(filled(3, KEYS[3:5], value=42), stamps(HOUR, 3), 100)
    lines = text.split(b"\n")
    line = lines.index(next(line for line in lines if line.startswith(b"  2 ")))
    lines[line] = lines[line].replace(b"43", b"  ", 1)
    found = parse(b"\n".join(lines))
    assert ((KEYS[3], "2019-05-15-12:02:00") in cells(found), cells(found)[KEYS[4], "2019-05-15-12:02:00"]) == (False, 43.0)


PIECES = [
    b"\n",
    b" ",
    b"null",
    b"Legend:\n",
    b"Row           Timestamp x\n",
    b"1",
    b"-",
    b"kB",
    b"|",
    b" 2:\ta|b|c\n",
    b"\0",
    b"\xff",
    b"\t",
    b"9" * 30,
]


@settings(max_examples=400)
@given(st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 40), st.sampled_from(PIECES)), max_size=12), st.sampled_from([60, 30000]))
def test_whatever_is_done_to_an_output_it_is_read_to_finite_amounts(changes, width):
    text = output(filled(6), stamps(HOUR, 6), width)
    for place, length, piece in changes:
        text = text[:place] + piece + text[place + length :]
    found = parse(text)
    for table in found.tables:
        assert table.value.shape[0] * 19 == len(table.stamps)
        assert table.first + table.value.shape[1] <= len(table.legend.metrics)
        assert not np.isinf(table.value).any()
        assert not (table.value < 0).any()


@given(st.binary(max_size=300))
def test_any_bytes_are_read(data):
    assert parse(data).tables == []


@pytest.mark.parametrize(
    "line", [b"1:\tx" + b" " * 200_000 + b"y", b" " * 200_000 + b"x", b"1:\t" + b"a|" * 100_000, b"Row " * 50_000, b"9" * 200_000]
)
@pytest.mark.timeout(10)
def test_long_lines_take_no_longer_than_they_are(line):
    text = output(filled(2, KEYS[:1]), stamps(HOUR, 2))
    for place in (0, text.index(b" 1:"), text.index(b"Row"), len(text)):
        parse(text[:place] + b"\n" + line + b"\n" + text[place:])


FOUR = {f"nsd1|GPFSNSDDisk|ddn{n}|gpfs_nsdds_bytes_read": [10 * n, 10 * n + 1] for n in range(4)}
"""Metrics of one name, a table each at 50 columns: only their order tells whose they are."""


def cells_and_dropped(text):
    """{key: amounts} of what is read."""
    read = parse(text)
    found = {}
    for table in read.tables:
        for metric, values in zip(table.legend.metrics[table.first :], table.value.T, strict=False):
            found.setdefault("|".join((metric.host, metric.sensor, *metric.ids, metric.counter)), []).extend(values.tolist())
    return found, read.dropped.counts


@pytest.mark.parametrize("twice", range(4))
def test_a_table_that_stands_there_twice_gives_its_rows_to_no_other(twice):
    text = output(FOUR, stamps(dt.datetime(2019, 5, 15, 12, 1), 2), width=50)  # noqa: DTZ001 - as it is printed
    head, *tables = re.split(rb"(?=\nRow )", text)
    assert len(tables) == 4
    found, dropped = cells_and_dropped(head + b"".join(tables[: twice + 1] + tables[twice:]))
    assert not any(value not in FOUR[key] for key, values in found.items() for value in values)
    assert sum(dropped.values())


def test_a_name_with_a_blank_at_its_end_is_invalid():
    text = output(FOUR, stamps(dt.datetime(2019, 5, 15, 12, 1), 2), width=500)  # noqa: DTZ001 - as it is printed
    assert parse(text.replace(b"|ddn1|", b"|ddn1 |")).legends[0].metrics[1] is None
