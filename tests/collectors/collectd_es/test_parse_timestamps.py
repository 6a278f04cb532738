"""Time stamps of documents against datetime, one by one."""

import datetime as dt
import re

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from collectors.collectd_es.parse_timestamps import INVALID, milliseconds

ISO = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:Z|([+-])(\d\d)(?::?(\d\d))?)", re.ASCII)


def reference(text):
    """The time of a time stamp, or INVALID."""
    match = ISO.fullmatch(text)
    if match is None:
        return INVALID
    whole, fraction, sign, hours, minutes = match.groups()
    try:
        time = dt.datetime.strptime(whole, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=dt.UTC)
        offset = dt.timedelta(hours=dt.time(int(hours or 0)).hour, minutes=dt.time(minute=int(minutes or 0)).minute)
    except ValueError:
        return INVALID
    seconds = (time - dt.datetime(1970, 1, 1, tzinfo=dt.UTC) - (offset if sign == "+" else -offset)) // dt.timedelta(seconds=1)
    return seconds * 1000 + int(f"{fraction or 0:0<3}"[:3])


@st.composite
def time_stamps(draw):
    time = draw(st.datetimes(min_value=dt.datetime(1, 1, 2), max_value=dt.datetime(9999, 12, 30)))  # noqa: DTZ001 - the zone is drawn
    fraction = draw(st.text("0123456789", max_size=9))
    sign, hours, minutes = draw(st.sampled_from("+-")), draw(st.integers(0, 23)), draw(st.integers(0, 59))
    zone = draw(st.sampled_from(["Z", f"{sign}{hours:02}:{minutes:02}", f"{sign}{hours:02}{minutes:02}", f"{sign}{hours:02}"]))
    return f"{time:%Y-%m-%dT%H:%M:%S}".zfill(19) + (f".{fraction}" if fraction else "") + zone


@st.composite
def broken_time_stamps(draw):
    text = draw(time_stamps())
    first = draw(st.integers(0, len(text)))
    last = draw(st.integers(first, min(first + 2, len(text))))
    return text[:first] + draw(st.text("0123456789T:-+.Zz \n,é٣", max_size=3)) + text[last:]


@given(time_stamps())
@example("2017-12-31T23:59:59.999Z")
@example("2018-01-01T00:00:00Z")
@example("2016-02-29T00:00:00.000000001+23:59")
@example("1969-12-31T23:59:59.9999Z")
def test_any_time_stamp_is_read_as_datetime_reads_it(text):
    wanted = reference(text)
    assert wanted != INVALID
    assert milliseconds([text]).tolist() == [wanted]
    if len(ISO.fullmatch(text)[2] or "") <= 6:
        exact = dt.datetime.fromisoformat(text) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
        assert wanted == exact // dt.timedelta(milliseconds=1)


@given(st.lists(time_stamps() | broken_time_stamps() | st.text(), max_size=30))
@example([])
@example(["2017-12-13T08:30:43Z\n2017-12-13T08:30:43Z", ""])
@example(["2017-12-13T08:30:43.951Z", "2017-12-13T08:30:43.95Z", "2017-12-13T08:30:43.9511Z"])
@example(["2017-12-13T08:30:43.951Z2017-12-13T08:30:43.951Z", ""])
@example(["2017-12-13T08:30:43.951Z", "2017-12-13T08:30:43.951Z\nabc", "x" * 20])
@example(["2017-12-13T08:30:43.951é", "é" * 24, "2017-12-13T08:30:43.951Z"])
def test_each_of_many_time_stamps_is_what_it_is_alone_whatever_the_others_are(texts):
    found = milliseconds(texts)
    assert found.dtype == np.int64
    assert found.tolist() == [reference(text) for text in texts]


@pytest.mark.parametrize("days", [1, 2, 700])
def test_a_page_of_one_form_is_read_in_any_order_of_days(days):
    times = [1_513_123_200_000 + (i * 7_919_333) % (days * 86_400_000) for i in range(5000)]
    texts = [f"{dt.datetime.fromtimestamp(t // 1000, dt.UTC):%Y-%m-%dT%H:%M:%S}.{t % 1000:03d}Z" for t in times]
    assert milliseconds(texts).tolist() == times


@pytest.mark.parametrize(
    "text",
    [
        "2017-13-01T00:00:00.000Z",
        "2017-00-01T00:00:00.000Z",
        "2017-02-29T00:00:00.000Z",
        "2017-12-00T00:00:00.000Z",
        "2017-12-13T24:00:00.000Z",
        "2017-12-13T08:60:00.000Z",
        "2017-12-13T08:30:60.000Z",
        "2017-12-13T08:30:00.000+24:00",
        "2017-12-13T08:30:00.000+01:60",
        "2017-12-13T08:30:00.Z",
        "2017-12-13T08:30:00.1234567890Z",
        "2017-12-13T08:30:00.000",
        "2017-12-13 08:30:00.000Z",
        "2017-12-13T08:30:00,000Z",
        "2017-12-13T08:30Z",
        "0000-12-13T08:30:00Z",
        "1513153843951",
        "",
    ],
)
def test_what_is_no_time_of_any_calendar_or_has_no_zone_is_bad_and_never_a_number(text):
    good = "2017-12-13T08:30:43.951Z"
    assert milliseconds([text]).tolist() == [INVALID]
    assert milliseconds([good, text, good]).tolist() == [1_513_153_843_951, INVALID, 1_513_153_843_951]
