"""Tables in terminals of any width, and in none."""

import io
import sys

import pytest
from rich.console import Console

from tokiod.cli.common import tables

ROWS = [("a-source-with-a-name", "2018-01-28T00:00:00Z", "12", "no route to host " * 8), ("b", "2018-01-28T00:00:05Z", "123456", "")]


def made():
    table = tables.table("source", "start", "cells", "reason", right={"cells"}, folded={"reason"})
    for row in ROWS:
        table.add_row(*row)
    return table


def printed(monkeypatch, columns):
    out = io.StringIO()
    out.isatty = lambda: columns is not None
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(columns or 40))
    tables.show(made(), "and so on " * 30)
    return out.getvalue().replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines()


@pytest.mark.parametrize("columns", [None, 20, 40, 60, 79, 80, 81, 132, 300])
def test_no_name_time_or_figure_is_ever_cut(monkeypatch, columns):
    said = "\n".join(printed(monkeypatch, columns))
    assert "…" not in said
    assert [cell for row in ROWS for cell in row[:3] if cell not in said] == []
    assert said.split().count("host") == 8


def test_what_may_be_folded_is_folded_so_that_the_rest_has_its_place(monkeypatch):
    lines = printed(monkeypatch, 80)
    assert max(map(len, lines)) <= 80
    assert lines[1].startswith("a-source-with-a-name  2018-01-28T00:00:00Z      12  no route to host")
    assert lines[2].startswith(" " * 50)


@pytest.mark.parametrize("columns", [None, 80])
def test_where_there_is_nothing_to_fold_no_line_ends_in_blanks_that_a_terminal_would_wrap(monkeypatch, columns):
    monkeypatch.setattr(sys.modules[__name__], "ROWS", ROWS[1:])
    assert max(map(len, printed(monkeypatch, columns)[:2])) < 50


def test_in_a_pipe_a_row_of_short_cells_is_one_line(monkeypatch):
    assert [line.split() for line in printed(monkeypatch, None) if "123456" in line] == [["b", "2018-01-28T00:00:05Z", "123456"]]


def test_in_a_narrow_terminal_long_text_is_below_its_row_and_then_a_row_is_a_paragraph(monkeypatch):
    assert printed(monkeypatch, 60)[:4] == [
        "source                start                  cells",
        "a-source-with-a-name  2018-01-28T00:00:00Z      12",
        "  no route to host no route to host no route to host no",
        "  route to host no route to host no route to host no route",
    ]
    assert printed(monkeypatch, 40)[:4] == [
        "a-source-with-a-name",
        "  start 2018-01-28T00:00:00Z  cells 12",
        "  reason no route to host no route to",
        "  host no route to host no route to host",
    ]


def test_what_is_spare_is_left_out_where_the_table_would_not_fit_otherwise():
    made = tables.table("source", "state", "last window", spare=["last window"])
    made.add_row("cscratch-lmt", "running", "2018-01-28T00:00:05Z")
    drawn = {width: rendered(made, width).splitlines()[0].split() for width in (60, 30)}
    assert drawn == {60: ["source", "state", "last", "window"], 30: ["source", "state"]}


def rendered(made, width):
    console = Console(width=width, file=io.StringIO())
    console.print(tables.fitted(made, width))
    return console.file.getvalue()
