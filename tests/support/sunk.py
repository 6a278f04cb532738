"""A sink that appends to a file, for tests of the process that feeds it: the example of docs/adding-a-sink.md."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokiod.change_sink import Block
from tokiod.testing.sink_contract import Held, held_of

if TYPE_CHECKING:
    import pytest

OUTSIDE = Path(__file__).parents[1] / "docs" / "outside_sink"


def install_json_lines(monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    """Make the distribution known to this process and its children, as if pip had installed it."""
    info = directory / "site" / "tokiod_json_lines-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tokiod-json-lines\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[tokiod.sinks]\njson_lines = tokiod_json_lines\n")
    for place in (str(OUTSIDE), str(directory / "site")):
        monkeypatch.syspath_prepend(place)
    monkeypatch.setenv("PYTHONPATH", f"{OUTSIDE}:{directory / 'site'}")
    sys.modules.pop("tokiod_json_lines", None)


def received(path: Path) -> Held:
    """Return what the receiver holds."""
    import tokiod_json_lines  # noqa: PLC0415 - it is only there in these tests

    return held_of([_block(one) for one in tokiod_json_lines.read(path)]) if path.exists() else {}


def _block(fields: dict[str, Any]) -> Block:
    return Block(**fields | {"values": np.array(fields["values"], np.float64)}, epoch=0)
