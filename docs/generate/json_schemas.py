"""Generate JSON Schemas of the output of `--json`, docs/json/COMMAND.json, from the printed structs."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

import msgspec

from collectors.nodes.hub_protocol import NodeState
from tokiod.agent.report import NodeReport
from tokiod.analysis.bad_ost import Correlation
from tokiod.analysis.export import Exported
from tokiod.analysis.health import Health
from tokiod.analysis.top import Top
from tokiod.cli.commands.archive import Archived
from tokiod.cli.commands.backfill_view import Backfill
from tokiod.cli.commands.fetch import FetchedFiles
from tokiod.cli.commands.ls import Listing
from tokiod.cli.commands.report import Report
from tokiod.cli.commands.seal import Sealed
from tokiod.cli.commands.summarize import Summary
from tokiod.cli.commands.tail import Line
from tokiod.cli.commands.verify_view import Comparison
from tokiod.published.sinks import SinkState
from tokiod.reports.gaps import Gap
from tokiod.reports.one_window import Once
from tokiod.reports.stages import StageReport
from tokiod.reports.status import Status
from tokiod.supervisor.control_socket import Pong, Reloaded

PRINTED: dict[str, Any] = {
    "agent": NodeReport,
    "archive": Archived,
    "backfill": Backfill | list[Backfill],
    "badost": list[Correlation],
    "export": Exported,
    "fetch": FetchedFiles,
    "gaps": list[Gap],
    "health": Health,
    "job": dict[str, float | int | str | None],
    "ls": Listing,
    "nodes": list[NodeState],
    "once": Once,
    "ping": Pong,
    "reload": Reloaded,
    "report": Report,
    "seal": list[Sealed],
    "sinks": list[SinkState],
    "stages": StageReport,
    "status": Status,
    "summarize": Summary,
    "tail": Line,
    "top": Top,
    "umami": dict[str, dict[str, float | None]],
    "verify": Comparison,
}
"""The printed type by command: for `tail` one line, for `job` one job, for `backfill` one job or the list of --list."""


def schemas() -> dict[str, str]:
    """Return every schema by its file name. Optional fields may be removed later; new fields may be added."""
    return {f"{command}.json": _schema(command, printed) for command, printed in PRINTED.items()}


def _schema(command: str, printed: Any) -> str:
    program = "tokiod" if command == "agent" else "tokioctl"
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"{program} {command} --json"}
    schema = msgspec.json.schema(printed)
    for struct in schema.get("$defs", {}).values():
        struct["description"] = inspect.cleandoc(struct["description"]).replace("None", "null")
    return msgspec.json.format(msgspec.json.encode(head | schema), indent=2).decode() + "\n"


def write(directory: Path) -> None:
    """Write all schemas."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in schemas().items():
        (directory / name).write_text(text)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
