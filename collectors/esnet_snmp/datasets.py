"""Interfaces, directions and the datasets that they become."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

DATASETS = {"in": "datatargets/readrates", "out": "datatargets/writerates"}
"""Seen from ESnet's router: what comes in was read at the site."""

_INTERFACE = re.compile(r"[^:\s]+:\S(.*\S)?")
_UNFIT = str.maketrans("/ ", "__")


def name_faults(names: Iterable[str]) -> Iterator[str]:
    """Say which names are not ROUTER:IFNAME."""
    return (f"{name!r} is not ROUTER:IFNAME" for name in names if not is_name(name))


def is_name(name: str) -> bool:
    """Whether a name is ROUTER:IFNAME."""
    return _INTERFACE.fullmatch(name) is not None and name.isprintable()


def sent(interface: str) -> str:
    """Return an interface's name as the service knows it: without slashes and blanks."""
    return interface.translate(_UNFIT)
