"""Text as `mmperfmon query` prints it, at any width of the terminal."""

from __future__ import annotations

import datetime as dt

UNITS = ("mem_total", "mem_free", "net_r", "net_s")


def stamps(first, count, bucket=60):
    """Time stamps of `count` buckets, the first of which ends at the naive datetime `first`."""
    return [(first + dt.timedelta(seconds=bucket * n)).strftime("%Y-%m-%d-%H:%M:%S") for n in range(count)]


def shown(key, value):
    """A value as it is printed: None is null; bytes of memory and network have a unit and one decimal."""
    if value is None:
        return "null"
    if key.rpartition("|")[2] not in UNITS:
        return str(value)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1024 or unit == "GB":
            return f"{value:.1f} {unit}"
        value /= 1024
    return None


def output(columns, times, width=80, separator="\t"):
    """columns: {key: [value]}, as in a legend; times: the stamps of the rows."""
    lines = ["", "Legend:", *(f"{number:>2}:{separator}{key}" for number, key in enumerate(columns, 1)), " "]
    for block in blocks(columns, width):
        names = [key.rpartition("|")[2] for key in block]
        cells = [[shown(key, value) for value in columns[key]] for key in block]
        widths = [max(len(name), *map(len, column)) + 1 for name, column in zip(names, cells, strict=True)]
        lines.append("Row           Timestamp" + "".join(f"{name:>{w}}" for name, w in zip(names, widths, strict=True)) + " ")
        for number, row in enumerate(zip(times, *cells, strict=True), 1):
            lines.append(f"{number:>3} {row[0]}" + "".join(f"{cell:>{w}}" for cell, w in zip(row[1:], widths, strict=True)) + " ")
        lines.append(" ")
    return ("\n".join(lines[:-1]) + "\n").encode()


def blocks(columns, width):
    """Which keys a terminal's width puts into one table; one at least."""
    found, used = [[]], 23
    for key, values in columns.items():
        wide = max(len(key.rpartition("|")[2]), *(len(shown(key, value)) for value in values)) + 1
        if found[-1] and used + wide > width:
            found.append([])
            used = 23
        found[-1].append(key)
        used += wide
    return found
