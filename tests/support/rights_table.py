"""The table of rights of docs/security.md."""

import re
from pathlib import Path

from users import USERS

DOCUMENT = Path(__file__).parents[2] / "docs" / "security.md"


def table():
    """[(command, daemon, {user: whether it is allowed})] of the document."""
    lines = re.findall(r"^\| `([^`]+)` \| (runs|is down) \| (.*) \|$", DOCUMENT.read_text("utf-8"), re.MULTILINE)
    words = {"allowed": True, "refused": False}
    return [
        (command, daemon, dict(zip(USERS, map(words.__getitem__, cells.split(" | ")), strict=True))) for command, daemon, cells in lines
    ]
