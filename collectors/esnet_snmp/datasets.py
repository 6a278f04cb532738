"""Interfaces, directions and their datasets."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

DATASETS = {"in": "datatargets/readrates", "out": "datatargets/writerates"}
"""Seen from ESnet's router: what comes in was read at the site."""

_INTERFACE = re.compile(r"[^:\s]+:\S(.*\S)?")
_REPLACED = str.maketrans("/ ", "__")


def name_faults(names: Iterable[str]) -> Iterator[str]:
    """Yield an error for each name that is not ROUTER:IFNAME."""
    return (f"{name!r} is not ROUTER:IFNAME" for name in names if not is_name(name))


def is_name(name: str) -> bool:
    """Whether a name is ROUTER:IFNAME."""
    return _INTERFACE.fullmatch(name) is not None and name.isprintable()


def service_name(interface: str) -> str:
    """Return an interface's name as the service spells it: without slashes and blanks."""
    return interface.translate(_REPLACED)
