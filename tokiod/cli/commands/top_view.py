"""The table of `tokioctl top`."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from tokiod.analysis.top import METADATA, NODE_SUMS, SUMS
from tokiod.cli.common.tables import line, table
from tokiod.job_columns import USECS
from tokiod.reports.quantities import Quantity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from tokiod.analysis.top import Top, TopLine

BYTES, OPERATIONS = Quantity("B/s", 1.0), Quantity("/s", 1.0)
AMOUNTS = {"bytes/s": BYTES, "bytes": Quantity("B", 1.0), "cores": Quantity("", 1.0), "": Quantity("", 1.0)}
NAMED_TARGETS, LEAST_SHARE = 3, 0.01
RIGHT = {"jobs", "nodes", "read", "written", METADATA, "share"}


def parts(found: Top, label: str, zone: dt.tzinfo) -> Iterator[RenderableType]:
    """Yield a heading, the table, and what is missing. label: the system's name; zone: of times."""
    start, end = (dt.datetime.fromtimestamp(time, zone) for time in (found.start, found.end))
    until = f"{end:%H:%M:%S %Z}" if start.date() == end.date() else f"{end:%Y-%m-%d %H:%M:%S %Z}"
    rates = f"read {BYTES.text(found.read_bytes)}, written {BYTES.text(found.write_bytes)}"
    of_nodes = f" on local disks; {found.by} {_amount(found, found.total)}"
    rates += of_nodes if found.of == "nodes" else f", metadata {OPERATIONS.text(found.metadata)}"
    yield line(f"{label}, {start:%Y-%m-%d %H:%M:%S} to {until}: {rates}", "bold")
    if found.lines:
        yield _table_of_nodes(found) if found.of == "nodes" else _table(found)
        left = f", {found.left_off} more are not shown" if found.left_off else ""
        yield line(f"by {found.by}{left}")
    else:
        yield line(f"no job has done anything by {found.by} in this time")
    if found.note:
        yield line(found.note, "yellow")


def _table(found: Top) -> RenderableType:
    of_users = not any(one.job or one.command or one.id for one in found.lines)
    who = ("user", "jobs") if of_users else ("job", "user", "name")
    own = () if found.by in {*SUMS, METADATA} else (found.by,)
    made = table(
        *who, "nodes", "read", "written", METADATA, *own, "share", "targets",
        right=RIGHT | set(own), folded={"targets"}, spare=("nodes", "name", METADATA),
    )  # fmt: skip
    for one in found.lines:
        rates = (BYTES.text(one.read_bytes), BYTES.text(one.write_bytes), OPERATIONS.text(one.metadata))
        more = (OPERATIONS.text(one.rate),) if own else ()
        names = (_user(one), str(one.jobs)) if of_users else (_job(one), _user(one), one.name)
        made.add_row(*names, str(one.nodes or "-"), *rates, *more, f"{100 * one.share:.1f} %", _targets(one))
    return made


def _table_of_nodes(found: Top) -> RenderableType:
    of_users = not any(one.job or one.id for one in found.lines)
    who = ("user", "jobs") if of_users else ("job", "user", "name")
    own = () if found.by in NODE_SUMS else (found.by,)
    made = table(
        *who, "nodes", "cores", "memory", "read", "written", *own, "share", "busiest",
        right=RIGHT | {"cores", "memory", *own}, folded={"busiest"}, spare=("name", "read", "written"),
    )  # fmt: skip
    for one in found.lines:
        names = (_user(one), str(one.jobs)) if of_users else (_job(one), _user(one), one.name)
        used = (f"{one.rates.get('cpu_usecs', 0.0) / USECS:.2f}", AMOUNTS["bytes"].text(one.rates.get("mem_bytes", 0.0)))
        more = (_amount(found, one.rate),) if own else ()
        made.add_row(
            *names, str(one.nodes), *used, BYTES.text(one.read_bytes), BYTES.text(one.write_bytes), *more, f"{100 * one.share:.1f} %",
            _busiest(one),
        )  # fmt: skip
    return made


def _amount(found: Top, value: float) -> str:
    """Return a value of what the list is sorted by."""
    known = AMOUNTS.get(found.units)
    return f"{value:.6g} {found.units}" if known is None else f"{value:.2f} cores" if found.units == "cores" else known.text(value)


def _job(one: TopLine) -> str:
    return one.job or (f"{one.command} (no job)" if one.command else f"#{one.id}" if one.id else "(no job)")


def _user(one: TopLine) -> str:
    return one.account or one.user or "-"


def _targets(one: TopLine) -> str:
    named = [target for target in one.busiest[:NAMED_TARGETS] if target.share >= LEAST_SHARE]
    return _named(one, [f"{target.target.rpartition('-')[2]} {100 * target.share:.0f} %" for target in named])


def _busiest(one: TopLine) -> str:
    """Return the nodes where a job does most."""
    return _named(one, [f"{node.target} {100 * node.share:.0f} %" for node in one.busiest[:NAMED_TARGETS] if node.share >= LEAST_SHARE])


def _named(one: TopLine, texts: list[str]) -> str:
    return ", ".join([*texts, f"{one.targets - len(texts)} more"] if one.targets > len(texts) else texts)
