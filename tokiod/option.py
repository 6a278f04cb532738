"""What a user must know of a key of the configuration, beside its field: docs/configuration.md and tokiod.toml(5) are made of it."""

from __future__ import annotations

from typing import Any

import msgspec


def option(sentence: str, example: str = "", *, values: str = "", effect: str = "", **constraints: Any) -> msgspec.Meta:
    """Return the annotation of a field of a configuration's struct.

    sentence: what it is for. example: a value as TOML; without it the default is one. values: its range, as far as type and constraints
    don't say. effect: when a change takes effect, where it is not with the reload of its table. constraints: those of msgspec.Meta.
    """
    extra = {"values": values, "effect": effect}
    return msgspec.Meta(description=sentence, examples=[example] if example else None, extra=extra, **constraints)
