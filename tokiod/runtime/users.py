"""The users of this machine."""

from __future__ import annotations

import pwd


def user_name(user: int) -> str:
    """Return the name of a user, or its number where it has none."""
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"#{user}"
