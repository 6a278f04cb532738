"""Labels of a time axis are the site's: hours, also across a clock change, and dates."""

from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from tokiod.reports.time_axis import ends, labels

ZONE = ZoneInfo("America/Los_Angeles")
EPOCH = 1_517_212_800
"""2018-01-29T00:00 in Los Angeles."""
HOUR, DAY = 3600, 86400


@pytest.mark.parametrize(
    ("start", "seconds", "count", "wanted"),
    [
        (EPOCH, DAY, 4, ["00:00", "06:00", "12:00", "18:00", "00:00"]),
        (1_541_314_800, 25 * HOUR, 4, ["00:00", "11:00", "23:00"]),  # an autumn's day of 25 hours
        (EPOCH + 1800, DAY, 4, ["06:00", "12:00", "18:00", "00:00"]),
        (EPOCH, 60, 4, ["00:00:00", "00:00:15", "00:00:30", "00:00:45", "00:01:00"]),
        (EPOCH, 13 * HOUR, 1, ["00:00", "12:00"]),
        (EPOCH, 4 * DAY, 4, ["01-29", "01-30", "01-31", "02-01", "02-02"]),
        (EPOCH + HOUR, 30 * DAY, 5, ["01-30", "02-06", "02-13", "02-20", "02-27"]),
    ],
)
def test_labels_are_on_round_times(start, seconds, count, wanted):
    found = list(labels(start, start + seconds, ZONE, count))
    assert [text for _, text in found] == wanted
    assert all(0 <= place <= 1 for place, _ in found)


def test_dates_are_at_midnight_also_after_the_clocks_have_changed():
    march = 1_520_668_800 - 9 * HOUR  # 2018-03-10T00:00, the day before summer time
    places = [place * 3 * DAY for place, _ in labels(march, march + 3 * DAY, ZONE, 3)]
    assert [later - earlier for earlier, later in pairwise(places)] == pytest.approx([DAY, 23 * HOUR])


@pytest.mark.parametrize(
    ("start", "end", "text"),
    [
        (EPOCH, EPOCH + DAY, "2018-01-29 00:00 to 2018-01-30 00:00 PST"),
        (EPOCH + 5, EPOCH + 60, "2018-01-29 00:00:05 to 2018-01-29 00:01:00 PST"),
        (EPOCH, EPOCH + 180 * DAY, "2018-01-29 00:00 PST to 2018-07-28 01:00 PDT"),
    ],
)
def test_both_ends_are_named_with_their_zone(start, end, text):
    assert ends(start, end, ZONE) == text
