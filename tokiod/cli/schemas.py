"""What `--json` prints, as JSON Schema: docs/json/COMMAND.json, made from the structs that are printed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec

from tokiod.cli.once import Once
from tokiod.cli.seal import Sealed
from tokiod.control import Pong, Reloaded
from tokiod.gaps import Gap
from tokiod.status import Status

PRINTED: dict[str, Any] = {"status": Status, "gaps": list[Gap], "seal": list[Sealed], "once": Once, "ping": Pong, "reload": Reloaded}


def schemas() -> dict[str, str]:
    """Return every schema by its file's name. Fields that are not required may be left out one day; others may come."""
    return {f"{command}.json": _schema(command, printed) for command, printed in PRINTED.items()}


def _schema(command: str, printed: Any) -> str:
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"tokioctl {command} --json"}
    return msgspec.json.format(msgspec.json.encode(head | msgspec.json.schema(printed)), indent=2).decode() + "\n"


def write(directory: Path) -> None:
    """Write all schemas."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in schemas().items():
        (directory / name).write_text(text)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
