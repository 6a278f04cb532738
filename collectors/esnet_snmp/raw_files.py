"""Raw output of the service: rates of points, in the form that pytokio writes too."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from collectors.esnet_snmp.collector import EsnetSnmp
from collectors.esnet_snmp.parse import UNITS
from tokiod.toolkit.gzip_stream import packed_file

if TYPE_CHECKING:
    from pathlib import Path

    from collectors.esnet_snmp.config import Config
    from collectors.esnet_snmp.parse import Points
    from collectors.esnet_snmp.to_batches import Series
    from tokiod.collector import Site
    from tokiod.window import Window


class RawRates:
    """The points that the service has for each window."""

    suffix: ClassVar[str] = ".json.gz"
    file_seconds: ClassVar[int] = 86400
    window_seconds: ClassVar[int] = 3600

    def __init__(self, config: Config, site: Site) -> None:
        self._config = config
        self.collector = EsnetSnmp(config, site)

    async def fetch(self, window: Window) -> dict[Series, Points]:
        """Return the points of each interface and direction. Raises Transient or Fatal."""
        return await self.collector.points(window)

    def create(self, path: Path) -> RatesFile:
        """Create a file of rates. Raises OSError."""
        return RatesFile(path)

    def options(self) -> list[str]:
        """Return the step, the length of points, and the interfaces, which are the columns."""
        lengths = ["--step", str(self._config.step), "--interval", str(int(self._config.interval))]
        return lengths + [part for name in dict.fromkeys(self._config.interfaces) for part in ("--interface", name)]


class RatesFile:
    """Compressed rates: {router: {interface: {"in": {epoch: rate}, "out": {epoch: rate}, "units": "bytes/sec"}}}."""

    def __init__(self, path: Path) -> None:
        self._file = packed_file(path)
        self._rates: defaultdict[str, dict[str, dict[str, Any]]] = defaultdict(dict)

    def add(self, raw: dict[Series, Points]) -> None:
        """Add the points of a window."""
        for (name, direction), points in raw.items():
            router, interface = name.split(":", 1)
            of = self._rates[router].setdefault(interface, {"units": UNITS})
            of.setdefault(direction, {}).update(zip(map(str, points.time.tolist()), points.rate.tolist(), strict=True))

    def close(self) -> None:
        """Write the rates."""
        self._file.write(msgspec.json.encode(self._rates) + b"\n")
        self._file.close()
