"""Convert units when the configuration is read: "30s" and "64 MiB" become numbers."""

from __future__ import annotations

import re

NEVER = 2**62
"""Seconds of a time span that never ends."""
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_BYTES = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_MEANT = {"sec": "s", "second": "s", "min": "m", "minute": "m", "hour": "h", "hr": "h", "day": "d", "week": "w"}
_DIGITS = "0123456789"
_NUMBER_UNIT = r"\s*([0-9]+)\s*([A-Za-z]+)\s*"
"""Of faulty values."""


class Duration(int):
    """A time span in whole seconds, written "30s", "5m", "1h", "90d"."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: object) -> Duration:
        """Parse "30s". Raises ValueError with the expected form."""
        return cls(_scaled(text, _SECONDS, 'a time span, written like "30s", "5m", "1h" or "90d"', "s"))


class DurationOrNever(Duration):
    """A time span as Duration, or "never"."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: object) -> DurationOrNever:
        """Parse "30s" or "never". Raises ValueError with the expected form."""
        return cls(NEVER if text == "never" else Duration.parse(text))


class Size(int):
    """A number of bytes, written "64 MiB", "1 GB"."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: object) -> Size:
        """Parse "64 MiB". Raises ValueError with the expected form."""
        return cls(_scaled(text, _BYTES, 'a size, written like "64 MiB" or "1 GB"', " B"))


def _scaled(text: object, units: dict[str, int], expected: str, smallest: str) -> int:
    if isinstance(text, str):
        given = text.strip()
        unit = given.lstrip(_DIGITS)
        number = given.removesuffix(unit)
        if number and unit.lstrip() in units:
            return int(number) * units[unit.lstrip()]
    meant = _meant(text, units, smallest)
    raise ValueError(f"expected {expected}, got {_shown(text)}" + (f', did you mean "{meant}"?' if meant else ""))


def _meant(text: object, units: dict[str, int], smallest: str) -> str | None:
    """Return what was probably meant by a number without a unit, or with one that is written out or in another case."""
    if isinstance(text, bool):
        return None
    if isinstance(text, int) or (isinstance(text, str) and text.strip().isdecimal()):
        return f"{int(text)}{smallest}"
    if not isinstance(text, str) or (match := re.fullmatch(_NUMBER_UNIT, text)) is None:
        return None
    written = match[2].lower()
    unit = _MEANT.get(written.rstrip("s") if len(written) > 1 else written)
    found = [known for known in units if known == unit or known.lower() in {written, f"{written}b"}]
    return f"{match[1]}{' ' if smallest[0] == ' ' else ''}{found[0]}" if found else None


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)
