"""Raw output of an index: pages of hits, in the form that pytokio's --output writes too."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from collectors.collectd_es.collector import connected
from collectors.collectd_es.datasets import Fields
from tokiod.toolkit.gzip_stream import packed_file

if TYPE_CHECKING:
    from pathlib import Path

    from collectors.collectd_es.config import Config
    from tokiod.collector import Site
    from tokiod.window import Window


class RawPages:
    """The hits that an index has for each window."""

    suffix: ClassVar[str] = ".json.gz"
    file_seconds: ClassVar[int] = 3600
    window_seconds: ClassVar[int] = 60  # all pages of a window are in memory

    def __init__(self, config: Config, site: Site) -> None:
        self._config = config
        self.collector = connected(config, site)

    async def fetch(self, window: Window) -> list[bytes]:
        """Return the JSON list of each page. Raises Transient or Fatal."""
        return await self.collector.pages(window)

    def create(self, path: Path) -> PagesFile:
        """Create a file of pages. Raises OSError."""
        return PagesFile(path)

    def options(self) -> list[str]:
        """Return the step, the names that are collected, and the names of fields."""
        config = self._config
        given = {"step": str(config.step), "hosts": config.hosts, "devices": config.devices, "values": config.values}
        rates = config.max_rate
        given["max-rate"] = ",".join(f"{name}={getattr(rates, name):g}" for name in rates.__struct_fields__)
        fields = {f"{role.replace('_', '-')}-field": getattr(config.fields, role) for role in Fields.__struct_fields__}
        differing = {name: field for name, field in fields.items() if field not in _DEFAULTS}
        return [part for name, value in (given | differing).items() if value is not None for part in (f"--{name}", value)]


_DEFAULTS = {getattr(Fields(), role) for role in Fields.__struct_fields__}


class PagesFile:
    """A compressed JSON list of pages, each a list of hits."""

    def __init__(self, path: Path) -> None:
        self._file = packed_file(path)
        self._file.write(b"[")
        self._separator = b""

    def add(self, raw: list[bytes]) -> None:
        """Append the pages of a window."""
        for page in raw:
            self._file.write(self._separator + page)
            self._separator = b",\n"

    def close(self) -> None:
        """End the list."""
        self._file.write(b"]\n")
        self._file.close()
