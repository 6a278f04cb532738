"""Parse what `lctl dl -t` prints on a client: its devices, and the server that serves each target now.

      0 UP mgc MGC10.100.101.3@o2ib2 3547302e-74a0-7260-9a61-ddecc4161901 5
      4 UP osc snx11035-OST0014-osc-ffff885f81a64000 8dbdc7f6-8f86-86ea-052f-357e2db2a7d9 5 10.100.101.25@o2ib2
     72 UP mdc snx11168-MDT0001-mdc-ffff881f71711400 6a50bc04-62a1-b68b-2206-ddfd2a4b9efc 5 10.100.104.254@o2ib4

A line counts only with its end: a truncated NID is another NID.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

_LINE = re.compile(
    rb"""^[ \t]*\d+[ \t]+(?P<state>UP|IN|AT|ST|--)[ \t]+(?P<type>[a-z_0-9]+)[ \t]+(?P<device>[!-~]+)[ \t]+(?P<uuid>[!-~]+)[ \t]+\d+
        (?:[ \t]+(?P<nid>[!-~]+))?[ \t\r]*\n""",
    re.VERBOSE | re.MULTILINE,
)
_TARGET = re.compile(rb"(?P<target>[!-~]{1,90}-(?:OST|MDT)[0-9a-f]{4})-(?:osc|mdc)-[0-9a-f]{6,}")
_NID = re.compile(rb"[0-9A-Za-z_.:-]+@[a-z][a-z0-9]*")
_NOT_BLANK = re.compile(rb"\S[^\n]*")

DOWN = "device that is not up"
NO_SERVER = "device without a server"
UNRECOGNISED = "unrecognised line in lctl dl"


@dataclass(slots=True)
class Devices:
    """The NID of the server of each target; a file system that is mounted twice counts once. dropped: unusable lines, by reason."""

    served: dict[str, str] = field(default_factory=dict)
    dropped: Counter[str] = field(default_factory=Counter)


def is_dl(text: bytes) -> bool:
    """Return whether a text looks like an output of lctl dl."""
    return _LINE.search(text[: 1 << 16]) is not None


def parse(text: bytes) -> Devices:
    """Parse an output, also a truncated or damaged one."""
    devices, known = Devices(), 0
    for found in _LINE.finditer(text):
        known += 1
        if found["type"] in {b"osc", b"mdc"} and (target := _TARGET.fullmatch(found["device"])):
            _add_device(found, target["target"].decode(), devices)
    if unrecognised := sum(1 for _ in _NOT_BLANK.finditer(text)) - known:
        devices.dropped[UNRECOGNISED] += unrecognised
    return devices


def _add_device(found: re.Match[bytes], target: str, devices: Devices) -> None:
    if found["state"] != b"UP":
        devices.dropped[DOWN] += 1
    elif found["nid"] is None or not _NID.fullmatch(found["nid"]):
        devices.dropped[NO_SERVER] += 1
    else:
        devices.served.setdefault(target, found["nid"].decode())
