"""The chart in characters has a line for each window on one scale, fits its width, and needs no colour."""

import pytest
from recorded_stages import START

from tokiod.reports.stages import ORDER, StagedWork, StageSpan
from tokiod.reports.stages_text import LETTERS, draw_stages, format_seconds


def staged(name, *lengths, state="stored", is_open=False):
    spans = [StageSpan(stage, START, length, open=is_open and place == len(lengths) - 1) for place, (stage, length) in enumerate(lengths)]
    return StagedWork("window", name, START, START + 60, state, START, sum(length for _, length in lengths), 0, spans)


WORKS = [
    staged("fs-lmt", ("due", 5), ("fetch", 20), ("bus", 0.01), ("sync", 15)),
    staged("fs-collectd", ("fetch", 10), ("bus", 10), state="open", is_open=True),
]


def test_a_bar_shows_each_stage_by_its_letter_as_long_as_it_lasted_and_what_is_open_by_an_arrow():
    assert list(draw_stages(WORKS, 85)) == [
        "fs-lmt 2018-01-29T00:00:00Z      dddddffffffffffffffffffffsssssssssssssss 40.0 s",
        "fs-collectd 2018-01-29T00:00:00Z ffffffffffbbbbbbbbb>                     20.0 s open",
        "d due  f fetch  b bus  s sync",
    ]


def test_of_the_waiting_of_a_healed_window_as_much_is_drawn_as_the_window_is_long():
    healed = staged("fs-lmt", ("due", 7200), ("fetch", 20))
    assert list(draw_stages([healed, WORKS[0]], 85)) == [
        "fs-lmt 2018-01-29T00:00:00Z <dddddddddddddddddddddddddddddddddddddffffffffffff 7220 s",
        "fs-lmt 2018-01-29T00:00:00Z dddfffffffffffffsssssssss                          40.0 s",
        "d due  f fetch  b bus  s sync",
        "< waited longer: healed",
    ]


def test_in_a_narrow_terminal_bars_stand_below_their_names():
    assert list(draw_stages(WORKS, 60))[:2] == [
        "fs-lmt 2018-01-29T00:00:00Z",
        " ddddddfffffffffffffffffffffffssssssssssssssssss 40.0 s",
    ]


@pytest.mark.parametrize("width", range(60, 200, 7))
def test_every_width_from_60_columns_on_is_kept(width):
    works = [*WORKS, staged("a-source-with-a-rather-long-name", *((stage, 1e-4) for stage in ORDER), state="failed")]
    lines = list(draw_stages(works, width))
    assert max(map(len, lines)) <= width
    assert sum(name in line for name in ("fs-lmt 2018", "fs-collectd 2018", "rather-long-name 2018") for line in lines) == 3


def test_each_stage_has_a_letter_of_its_own():
    assert len({*LETTERS.values()}) == len(ORDER)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0.00 ms"), (0.000123, "0.12 ms"), (0.0999, "99.9 ms"), (0.5, "500 ms"), (1, "1.00 s"), (3600, "3600 s")]
)
def test_times_have_three_digits(seconds, text):
    assert format_seconds(seconds) == text
