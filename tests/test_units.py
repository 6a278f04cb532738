"""Durations and sizes are written with their units, and anything else is refused with how to write them."""

import pytest

from tokiod.units import Duration, Size


@pytest.mark.parametrize(("text", "seconds"), [("30s", 30), ("5m", 300), ("1h", 3600), ("90d", 7776000), ("2w", 1209600), (" 1 h ", 3600)])
def test_a_duration_is_whole_seconds(text, seconds):
    assert Duration.parse(text) == seconds


@pytest.mark.parametrize(
    ("text", "size"), [("64 MiB", 64 * 2**20), ("1GB", 10**9), ("512 B", 512), ("3 KiB", 3072), ("2 TiB", 2**41), ("7 kB", 7000)]
)
def test_a_size_is_bytes(text, size):
    assert Size.parse(text) == size


@pytest.mark.parametrize("value", ["", "30", "s", "-5s", "1.5h", "5 parsecs", "5M", 30, None, ["30s"], "30s5"])
def test_what_is_no_duration_is_refused_with_how_to_write_one(value):
    with pytest.raises(ValueError, match='expected a time span, written like "30s", "5m", "1h" or "90d", got '):
        Duration.parse(value)


@pytest.mark.parametrize("value", ["64", "64 mib", "MiB", 64, None])
def test_what_is_no_size_is_refused_with_how_to_write_one(value):
    with pytest.raises(ValueError, match='expected a size, written like "64 MiB" or "1 GB", got '):
        Size.parse(value)
