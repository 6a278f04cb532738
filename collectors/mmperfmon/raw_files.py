"""Raw output of mmperfmon: what each query printed for each window, in a tar archive."""

from __future__ import annotations

import io
import tarfile
from typing import TYPE_CHECKING, ClassVar

from collectors.mmperfmon.collector import connected

if TYPE_CHECKING:
    from pathlib import Path

    from collectors.mmperfmon.config import Config
    from tokiod.collector import Site
    from tokiod.window import Window


class RawOutputs:
    """The outputs of all queries for each window."""

    suffix: ClassVar[str] = ".tar.gz"
    file_seconds: ClassVar[int] = 86400
    window_seconds: ClassVar[int] = 180

    def __init__(self, config: Config, _site: Site) -> None:
        self._config = config
        self.collector = connected(config)

    async def fetch(self, window: Window) -> dict[str, bytes]:
        """Return the output of each query, named for the file. Raises Transient or Fatal."""
        printed = await self.collector.printed(window)
        return {f"{window.start}_{place}.txt": text for place, text in enumerate(printed.values()) if text.strip()}

    def create(self, path: Path) -> OutputsFile:
        """Create an archive of outputs. Raises OSError."""
        return OutputsFile(path)

    def options(self) -> list[str]:
        """Return the bucket, and what the names of NSDs and servers mean; times are printed in UTC."""
        config = self._config
        maps = [("--lun-map", one) for one in config.lun_map] + [("--server-map", one) for one in config.server_map]
        fixed = ["--timezone", "UTC", "--step", str(config.step), "--cpu-scale", f"{config.cpu_scale:g}"]
        return fixed + [part for pair in maps for part in pair]


class OutputsFile:
    """A compressed tar archive with a member for each output."""

    def __init__(self, path: Path) -> None:
        self._archive = tarfile.open(path, "w:gz", compresslevel=6)  # noqa: SIM115 - close() closes it

    def add(self, raw: dict[str, bytes]) -> None:
        """Append the outputs of a window."""
        for name, text in raw.items():
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(text), int(name.partition("_")[0])
            self._archive.addfile(member, io.BytesIO(text))

    def close(self) -> None:
        """End the archive."""
        self._archive.close()
