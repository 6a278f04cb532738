"""Convert units when the configuration is read: "30s" and "64 MiB" become numbers."""

from __future__ import annotations

import re

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_BYTES = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_NUMBER_UNIT = re.compile(r"\s*(\d+)\s*([A-Za-z]+)\s*")


class Duration(int):
    """A time span in whole seconds, written "30s", "5m", "1h", "90d"."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: object) -> Duration:
        """Parse "30s". Raises ValueError with the expected form."""
        return cls(_scaled(text, _SECONDS, 'a time span, written like "30s", "5m", "1h" or "90d"'))


class Size(int):
    """A number of bytes, written "64 MiB", "1 GB"."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: object) -> Size:
        """Parse "64 MiB". Raises ValueError with the expected form."""
        return cls(_scaled(text, _BYTES, 'a size, written like "64 MiB" or "1 GB"'))


def _scaled(text: object, units: dict[str, int], expected: str) -> int:
    match = _NUMBER_UNIT.fullmatch(text) if isinstance(text, str) else None
    if match is None or match[2] not in units:
        raise ValueError(f"expected {expected}, got {text!r}")
    return int(match[1]) * units[match[2]]
