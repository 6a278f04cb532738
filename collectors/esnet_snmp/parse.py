"""Parse points of interfaces: answers of the service, and saved files.

    {"agg": "30", "cf": "average", "begin_time": 1254350000, "end_time": 1254350090, "data": [[1254349980, 163.0], [1254350040, null]]}

The first point may lie before the requested begin; the end is inclusive; null means that a point is not known yet.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from collectors.esnet_snmp.datasets import DATASETS, is_name
from tokiod.bounds import BOUNDS, IMPLAUSIBLE
from tokiod.dropped import Dropped
from tokiod.errors import Fatal, Transient

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from collectors.esnet_snmp.to_batches import Series

MAX_EPOCH = 250_000_000_000
MAX_INTERFACES = 10_000
"""Interfaces of one saved file."""
MALFORMED = "malformed point"
MALFORMED_NAME = "malformed interface name"
OTHER_INTERFACE = "direction of an interface that was not asked for"
OTHER_DIRECTION = "direction that is no in or out with rates"
REPEATED = "name or time that occurs twice with different values"
OTHER_UNITS = "interface whose rates are in other units"
NEGATIVE = "negative rate"
INFINITE = "infinite rate"
UNITS = "bytes/sec"
REMEDY_OF_UNITS = f'"units" must be "{UNITS}"'
REMEDY_OF_DIRECTION = '"in" and "out" must be {epoch: rate}'
LARGEST_RATE = BOUNDS[UNITS][1]
_DIGITS = re.compile(r"[0-9]{1,12}")


class _Answer(msgspec.Struct):
    data: list[tuple[int, float | None]]
    agg: str | int | None = None


@dataclass(slots=True)
class Points:
    """time i8[n], rate f8[n] of the known points, in the order of the answer; interval: seconds of a point, if the service reports it.

    dropped: invalid points, by reason.
    """

    time: NDArray[np.int64]
    rate: NDArray[np.float64]
    interval: int | None = None
    dropped: Dropped = field(default_factory=Dropped)

    @classmethod
    def of(cls, pairs: Iterable[tuple[Any, Any]], interval: int | None = None) -> Points:
        """Take pairs of any type. Null and NaN are unknown points, and not counted as dropped."""
        dropped = Dropped()
        known: list[tuple[int, float]] = []
        for time, rate in pairs:
            if reason := _fault(time, rate):
                dropped.add(reason, 1, f"{rate} at {time}")
            elif rate is not None and rate == rate:  # noqa: PLR0124 - NaN is null
                known.append((int(time), float(rate) + 0.0))
        times, rates = zip(*known, strict=True) if known else ((), ())
        return cls(np.array(times, np.int64), np.array(rates, np.float64), interval, dropped)


def parse(body: bytes, source: str) -> Points:
    """Read an answer. Raises Transient for anything else: an HTML page, an incomplete answer."""
    try:
        answer = msgspec.json.decode(body, type=_Answer)
        times, rates = zip(*answer.data, strict=True) if answer.data else ((), ())
        return _regular(times, rates, _interval(answer.agg))
    except (msgspec.DecodeError, OverflowError):
        return _parse_leniently(body, source)


def _parse_leniently(body: bytes, source: str) -> Points:
    """Read an answer that contains NaN or malformed points."""
    try:
        answer = json.loads(body)
        pairs = [one if isinstance(one, list) and len(one) == 2 else (None, None) for one in answer["data"]]  # noqa: PLR2004 - a pair
    except (ValueError, KeyError, TypeError, RecursionError):
        what = "with HTML: is there a login or an error page in between?" if body.lstrip()[:1] == b"<" else "without a list of points"
        raise Transient(f"{source} answered {what}") from None
    return Points.of(((one[0], one[1]) for one in pairs), _interval(answer.get("agg")))


def _fault(time: Any, rate: Any) -> str:
    if isinstance(time, bool) or not isinstance(time, (int, float)) or not 0 <= time < MAX_EPOCH:
        return MALFORMED
    if rate is not None and (isinstance(rate, bool) or not isinstance(rate, (int, float))):
        return MALFORMED
    if rate is None or rate != rate:  # noqa: PLR0124 - NaN
        return ""
    if rate > LARGEST_RATE:
        return INFINITE if rate == float("inf") else IMPLAUSIBLE
    return NEGATIVE if rate < 0 else ""


def _interval(agg: Any) -> int | None:
    """Return the length of a point as the service reports it; it may differ from the requested one."""
    text = str(agg)
    return int(text) if text.isascii() and text.isdecimal() and 0 < int(text) <= 86400 else None  # noqa: PLR2004 - a day


def parse_saved(data: bytes, place: str, dropped: Dropped) -> dict[Series, Points]:
    """Parse saved rates into points of each ("ROUTER:IFNAME", "in" or "out"); count the rest. Raises Fatal for another document."""
    try:
        document = _decoded(data, dropped)
    except (ValueError, RecursionError) as error:
        raise Fatal(f"{place}: not saved rates, which are JSON: {error}") from None
    if not isinstance(document, dict) or not all(isinstance(interfaces, dict) for interfaces in document.values()):
        raise Fatal(f"{place}: not saved rates: expected {{router: {{interface: {{direction: {{epoch: rate}}}}}}}}")
    if sum(map(len, document.values())) > MAX_INTERFACES:
        raise Fatal(f"{place}: more than {MAX_INTERFACES} interfaces; save it in smaller pieces")
    try:
        return _of_document(document, dropped)
    except (ValueError, RecursionError) as error:
        raise Fatal(f"{place}: not saved rates: {error}") from None


def _of_document(document: dict[str, dict[str, Any]], dropped: Dropped) -> dict[Series, Points]:
    found: dict[Series, Points] = {}
    for router, interfaces in document.items():
        for name, directions in interfaces.items():
            # In a file that lost lines with braces, "in" may appear as a router or an interface that contains others.
            if not isinstance(directions, dict) or {router, name} & DATASETS.keys() or not is_name(f"{router}:{name}"):
                dropped.add(MALFORMED_NAME, 1, f"{router}:{name}")
            elif (units := _value(directions.get("units"))) not in (None, UNITS):
                dropped.add(OTHER_UNITS, 1, f"{router}:{name} in {units}", REMEDY_OF_UNITS)
            else:
                of = {way: _points(rates) for way, rates in directions.items() if way != "units"}
                found |= {(f"{router}:{name}", way): points for way, points in of.items() if points is not None and way in DATASETS}
                others = [way for way, points in of.items() if (points is None) == (way in DATASETS)]
                dropped.add(OTHER_DIRECTION, len(others), f"{router}:{name} {others[0]}" if others else "", REMEDY_OF_DIRECTION)
    return found


# A point takes 20 bytes as text and 250 as a key and a value of a dictionary. So the rates of each interface and direction are decoded
# by themselves. Only the json module reads the NaN that it writes itself; such a file is decoded at once.
def _decoded(data: bytes, dropped: Dropped) -> Any:
    try:
        found = _BY_DIRECTION.decode(data)
    except msgspec.DecodeError:
        return _merged(data, dropped)
    interfaces = [one for of_router in found.values() for one in of_router.values()]
    names = len(found) + sum(map(len, found.values())) + sum(map(len, interfaces))
    in_rates = sum(bytes(raw).count(b":") for one in interfaces for raw in one.values())
    # More colons than names: one of them contains a colon, or occurs twice.
    return found if data.count(b":") == names + in_rates else _merged(data, dropped)


def _merged(data: bytes | msgspec.Raw, dropped: Dropped) -> Any:
    """Decode JSON whose names may occur twice: objects of one name become one, and of two values the later one that is not null counts."""

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        joined = dict(found)
        return joined if len(joined) == len(found) else _joined({}, found, dropped)

    return json.loads(bytes(data), object_pairs_hook=pairs)


def _joined(known: dict[str, Any], found: Iterable[tuple[str, Any]], dropped: Dropped) -> dict[str, Any]:
    for name, value in found:
        before = known.get(name)
        if isinstance(before, dict) and isinstance(value, dict):
            _joined(before, value.items(), dropped)
        elif before is None or value is not None:
            is_same = before is None or before == value or before != before  # noqa: PLR0124 - NaN is null
            dropped.add(REPEATED, int(not is_same), f"{name}: {before} and {value}", "the later one is stored")
            known[name] = value
    return known


_BY_DIRECTION = msgspec.json.Decoder(dict[str, dict[str, dict[str, msgspec.Raw]]])
_REGULAR = msgspec.json.Decoder(dict[int, float | None])


def _value(value: Any) -> Any:
    if not isinstance(value, msgspec.Raw):
        return value
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError:
        return json.loads(bytes(value))


def _points(rates: Any) -> Points | None:
    """Parse the rates of one interface and direction; return None for anything but an object."""
    if isinstance(rates, msgspec.Raw):
        try:
            regular = _REGULAR.decode(rates)
            if bytes(rates).count(b":") > len(regular):
                return _repeated(rates)
            return _regular(tuple(regular), tuple(regular.values()))
        except (msgspec.DecodeError, OverflowError):
            rates = _value(rates)
    return Points.of((_epoch(epoch), rate) for epoch, rate in rates.items()) if isinstance(rates, dict) else None


def _repeated(rates: msgspec.Raw) -> Points:
    dropped = Dropped()
    points = Points.of((_epoch(epoch), rate) for epoch, rate in _merged(rates, dropped).items())
    points.dropped.take(dropped)
    return points


def _regular(times: Sequence[int], rates: Sequence[float | None], interval: int | None = None) -> Points:
    """Return the points of times and rates that msgspec found to be numbers or null. Raises OverflowError for a number beyond float64."""
    time, rate = np.array(times, np.float64), np.array(rates, np.float64)  # null is NaN
    is_point = (time >= 0) & (time < MAX_EPOCH)
    known = is_point & (rate >= 0) & (rate <= LARGEST_RATE)
    dropped = Dropped()
    if np.count_nonzero(known) + np.count_nonzero(np.isnan(rate) & is_point) < len(time):
        infinite = rate == np.inf
        faults = {MALFORMED: ~is_point, NEGATIVE: rate < 0, INFINITE: infinite, IMPLAUSIBLE: (rate > LARGEST_RATE) & ~infinite}
        for reason, where in faults.items():
            found = np.flatnonzero(where if reason == MALFORMED else where & is_point)
            dropped.add(reason, len(found), f"{rates[found[0]]} at {times[found[0]]}" if len(found) else "")
    return Points(time[known].astype(np.int64), rate[known] + 0.0, interval, dropped)


def _epoch(text: str) -> int | str:
    return int(text) if _DIGITS.fullmatch(text) else text
