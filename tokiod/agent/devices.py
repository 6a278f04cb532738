"""Which devices count. What goes through several devices, one made of the other, is counted by the kernel on each; here it counts once.

A disk: what /sys/block has, made of no other device (its `slaves` are empty), with data on a device of its own, not in a file, in memory or
behind a volume manager that names no slaves. An interface: one of a device, but for those below another one of a device. A meter of power:
one whose power no other meter measures too.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tokiod.agent.tree import Tree

_BLOCK = re.compile(r"^Block devices:\n((?: *\d+ \S+\n)*)", re.MULTILINE)
_FIXED_MAJORS = {1: "ramdisk", 2: "fd", 7: "loop", 9: "md", 11: "sr", 43: "nbd", 147: "drbd", 199: "VxVM", 201: "VxDMP"}
"""Linux: Documentation/admin-guide/devices.txt. Other drivers get the numbers that are free; /proc/devices has all."""
_NO_DISK = frozenset({*_FIXED_MAJORS.values(), "zram", "device-mapper", "mdp", "bcache", "zvol", "emcpower"})
_NAME_OF_NO_DISK = re.compile(r"(?:loop|ram|zram|dm-|md(?:_d)?|sr|fd|nbd|drbd|bcache)\d")
_ATTRIBUTES_OF_NO_DISK = "partition", "dm", "md", "loop", "disksize"
"""In a device's directory; the last is that of zram."""
_PARTITION = re.compile(r"(.*\d)p\d+|(.*\D)\d+")
_TOTAL = re.compile(r"pin\d*|system|.*\btotal\b.*", re.IGNORECASE)
_SOCKET = re.compile(r"(\w+) Power Socket (\d+)")
_WITHIN = {"Module": {"Grace", "GPU", "CPU", "SysIO"}, "Grace": {"CPU", "SysIO"}}
_PART = re.compile(r"\b(?:cpu|gpu|proc|module|grace|sysio|soc|socket|mem|dram|dimm|fan|pcie?|disk|hdd|storage)", re.IGNORECASE)
_SYSTEM = re.compile(r"LNXSY(?:STM|BUS):\d+")
_PATH = re.compile(r"(nvme\d+)c\d+(n\d+)")


def namespace_of(name: str) -> str | None:
    """Return the disk to which an NVMe path leads, such as nvme0n1 of nvme0c1n1; None of what is no path.

    Of a namespace with several paths (native multipath) the kernel has a disk for each besides the namespace's own. All count, or in
    older kernels the paths alone.
    """
    return f"{match[1]}{match[2]}" if (match := _PATH.fullmatch(name)) else None


class Disks:
    """Which block devices are disks. What was decided of a device holds until forget(), so that no sum moves from one to another."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._known: dict[tuple[str, str], bool] = {}
        self._drivers = dict(_FIXED_MAJORS)

    def is_disk(self, number: str, name: str = "", listed: Collection[str] = ()) -> bool:
        """Return whether a device counts. number: MAJOR:MINOR; name: where it is known; listed: all names of its list."""
        known = self._known.get((number, name))
        if known is None:
            known = self._known[number, name] = self._decide(number, name, listed)
        return known

    def forget(self, *, but: Collection[str] = ()) -> None:
        """Forget all devices but those of these numbers."""
        if len(self._known) > len(but):
            self._known = {key: known for key, known in self._known.items() if key[0] in but}

    def _decide(self, number: str, name: str, listed: Collection[str]) -> bool:
        directory = f"sys/dev/block/{number}"
        link = self._tree.path(directory)
        kernels_name = name or (os.path.basename(os.path.realpath(link)) if os.path.islink(link) else "")
        if self._driver(int(number.partition(":")[0])) in _NO_DISK or _NAME_OF_NO_DISK.match(kernels_name):
            return False
        if name and self._tree.exists("sys/block"):
            directory = f"sys/block/{name.replace('/', '!')}"
            if not self._tree.exists(directory):
                return False
        elif name and not self._tree.exists(directory):
            return not _is_partition(name, listed)
        if any(self._tree.exists(f"{directory}/{attribute}") for attribute in _ATTRIBUTES_OF_NO_DISK):
            return False
        return not self._tree.names(f"{directory}/slaves")

    def _driver(self, major: int) -> str:
        if major not in self._drivers:
            self._drivers[major] = ""
            if self._tree.exists("proc/devices") and (found := _BLOCK.search(self._tree.read("proc/devices").decode("ascii", "replace"))):
                self._drivers.update((int(number), driver) for number, driver in map(str.split, found[1].splitlines()))
        return self._drivers[major]


def _is_partition(name: str, listed: Collection[str]) -> bool:
    """Return whether a list without a /sys has the disk of this partition. A disk may have the name of one (xvda1 of Xen)."""
    match = _PARTITION.fullmatch(name)
    return match is not None and (match[1] or match[2]) in listed


def interfaces(tree: Tree) -> list[str]:
    """Return the interfaces that count: those of a device.

    The counters of an interface hold those of the ones below it where it has a device, too (Azure's and Hyper-V's virtual functions, the
    failover of virtio). A bond or bridge has none, so those below it count.
    """
    root = "sys/class/net"
    of_device = [name for name in tree.names(root) if tree.exists(f"{root}/{name}/device")]
    return [name for name in of_device if _master(tree, f"{root}/{name}/master") not in of_device]


def _master(tree: Tree, link: str) -> str:
    try:
        return os.path.basename(os.readlink(tree.path(link)))
    except OSError:
        return ""


@dataclass(frozen=True)
class Meter:
    """A meter of power of hwmon. `chip`: hwmonN; `driver`: its name; `device`: where the device is; `measures`: devices that ACPI names."""

    path: str
    chip: str
    driver: str
    label: str
    device: str = ""
    measures: tuple[str, ...] = ()

    @property
    def is_of_acpi(self) -> bool:
        """Whether it is a meter of the firmware, which measures parts of the machine, or all of it."""
        return self.driver == "power_meter"

    @property
    def is_of_node(self) -> bool:
        """Whether it measures the whole machine, as one of ACPI does that names no part."""
        if self.measures:
            return any(_SYSTEM.fullmatch(os.path.basename(device)) for device in self.measures)
        return self.is_of_acpi and not _PART.search(self.label)


def outermost(meters: Sequence[Meter]) -> list[Meter]:
    """Return the meters whose power no other one contains, so that their sum has each watt once."""
    return [meter for meter in meters if not any(_contains(other, meter) for other in meters)]


def _contains(outer: Meter, inner: Meter) -> bool:
    """Return whether a meter's power is a part of another one's.

    Labels say so of a socket (Module, Grace, CPU and SysIO of NVIDIA) and of a chip (the input of a power supply, a total), and ACPI says
    which devices a meter measures. The meter of the whole machine contains all others.
    """
    of, within = _SOCKET.fullmatch(outer.label), _SOCKET.fullmatch(inner.label)
    if of and within:
        return of[2] == within[2] and within[1] in _WITHIN.get(of[1], ())
    if outer.chip == inner.chip:
        return _TOTAL.fullmatch(outer.label) is not None and not _TOTAL.fullmatch(inner.label)
    if outer.is_of_node or inner.is_of_node:
        return outer.is_of_node and not inner.is_of_node
    return _measures(outer, inner) and not _measures(inner, outer)


def _measures(outer: Meter, inner: Meter) -> bool:
    return any(f"{inner.device}/".startswith(f"{device}/") for device in outer.measures)


def measured_devices(tree: Tree, directory: str) -> tuple[str, ...]:
    """Return where the devices are that a meter of ACPI says it measures, in sorted order. directory: the meter's own."""
    names = (f"{directory}/measures/{name}" for name in tree.names(f"{directory}/measures"))
    links = (tree.path(link) for name in names for link in (name, f"{name}/physical_node"))
    return tuple(sorted({os.path.realpath(link) for link in links if os.path.exists(link)}))
