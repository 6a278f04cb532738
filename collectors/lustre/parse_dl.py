"""Parse what `lctl dl -t` prints on a client: its devices, and the server that serves each target now.

      0 UP mgc MGC10.100.101.3@o2ib2 3547302e-74a0-7260-9a61-ddecc4161901 5
      4 UP osc snx11035-OST0014-osc-ffff885f81a64000 8dbdc7f6-8f86-86ea-052f-357e2db2a7d9 5 10.100.101.25@o2ib2
     72 UP mdc snx11168-MDT0001-mdc-ffff881f71711400 6a50bc04-62a1-b68b-2206-ddfd2a4b9efc 5 10.100.104.254@o2ib4

A line counts only with its end: a truncated NID is another NID.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from tokiod.dropped import Dropped

_LINE = re.compile(
    rb"""^[ \t]*\d+[ \t]+(?P<state>UP|IN|AT|ST|--)[ \t]+(?P<type>[a-z_0-9-]+)[ \t]+(?P<device>[!-~]+)[ \t]+(?P<uuid>[!-~]+)[ \t]+\d+
        (?:[ \t]+(?P<nid>[!-~]+))?[ \t\r]*\n""",
    re.VERBOSE | re.MULTILINE,
)
_YAML = re.compile(rb"^devices:[ \t\r]*\n|^-[ \t]+(?P<device>index):[^\n]*\n(?:[ \t]+[a-z_]+:[^\n]*\n)*", re.MULTILINE)
_TARGET = re.compile(rb"(?P<target>[!-~]{1,90}-(?:OST|MDT)[0-9a-f]{4})-(?:osc|mdc)-[0-9a-f]{6,}")
_NID = re.compile(rb"[0-9A-Za-z_.:-]+@(?:lo|tcp|o2ib|gni|gip|ptlf|kfi|efa|bxi3f|ra|mx|gm|elan|openib|vib|iib|cib)\d*")
_NOT_BLANK = re.compile(rb"\S[^\n]*")

DOWN = "device that is not up"
NO_SERVER = "device without a server"
CUT = "device whose server may have lost its end"
OTHER_SERVER = "device of a target that another server serves too"
NO_TARGET = "list of devices of which none is a client's of a target"
YAML = "device in YAML"
UNRECOGNISED = "unrecognised line in lctl dl"
STATES = (DOWN,)
"""Reasons that are a state of the file system, not a fault of the output."""
REMEDIES = {
    NO_SERVER: "save `lctl dl -t`, as root where it needs that",
    OTHER_SERVER: "where two file systems have this name, save the list of a client that mounts one of them",
    NO_TARGET: "save the list of a client, not a server's",
    YAML: "save `lctl dl -t` without -y",
}


@dataclass(slots=True)
class Devices:
    """The NID of the server of each target; a file system that is mounted twice counts once. dropped: unusable lines, by reason.

    Of two servers of a target the first counts: targets of two file systems may have one name, if their MGSs are different. rest: the
    lines that were not recognised.
    """

    served: dict[str, str] = field(default_factory=dict)
    dropped: Dropped = field(default_factory=Dropped)
    rest: bytes = b""


def parse(text: bytes) -> Devices:
    """Parse an output, also a truncated or damaged one, and between other lines."""
    devices, rest, end, clients = Devices(), [], 0, 0
    for found in _LINE.finditer(text):
        if (start := found.start()) > end:
            rest.append(text[end:start])
        end = found.end()
        if found["type"] in {b"osc", b"mdc"} and (target := _TARGET.fullmatch(found["device"])):
            clients += 1
            _add_device(found, target["target"].decode(), devices)
    _drop_cut(devices)
    devices.rest = b"".join([*rest, text[end:]])
    if end:
        _drop(devices, NO_TARGET, text.lstrip().partition(b"\n")[0], int(not clients))
    if b"index:" in devices.rest:
        listed = [found[0].partition(b"\n")[0] for found in _YAML.finditer(devices.rest) if found["device"]]
        _drop(devices, YAML, listed[0] if listed else b"", len(listed))
        devices.rest = _YAML.sub(b"", devices.rest)
    return devices


# The network ends a line. A server's that is the beginning of another's of the same file system, and occurs once, was cut more likely than
# it is one of its own.
def _drop_cut(devices: Devices) -> None:
    """Count devices whose line lost the end of the network's number."""
    ends = {nid.partition("@")[2] for nid in devices.served.values()}
    if not any(one != other and one.startswith(other) for one in ends for other in ends):
        return
    networks: dict[str, Counter[str]] = defaultdict(Counter)
    for target, nid in devices.served.items():
        networks[target[:-8]][nid.partition("@")[2]] += 1
    for target, nid in list(devices.served.items()):
        of_system, network = networks[target[:-8]], nid.partition("@")[2]
        if of_system[network] == 1 and any(other != network and other.startswith(network) for other in of_system):
            _drop(devices, CUT, f"{target} {devices.served.pop(target)}".encode())


def drop_rest(devices: Devices) -> None:
    """Count the lines that were not recognised."""
    for found in _NOT_BLANK.finditer(devices.rest):
        _drop(devices, UNRECOGNISED, found[0])


def _add_device(found: re.Match[bytes], target: str, devices: Devices) -> None:
    if found["state"] != b"UP":
        _drop(devices, DOWN, found[0])
    elif found["nid"] is None or not _NID.fullmatch(found["nid"]):
        _drop(devices, NO_SERVER, found[0])
    elif devices.served.setdefault(target, nid := found["nid"].decode()) != nid:
        _drop(devices, OTHER_SERVER, found[0])


def _drop(devices: Devices, reason: str, example: bytes, count: int = 1) -> None:
    devices.dropped.add(reason, count, example.strip(), REMEDIES.get(reason, ""))
