"""Raw output of lfs df and lctl dl -t, after a line `BEGIN <epoch seconds>` for each moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from collectors.lustre.collector import Lustre
from tokiod.toolkit.gzip_stream import packed_file

if TYPE_CHECKING:
    from pathlib import Path

    from collectors.lustre.config import Config
    from tokiod.collector import Site
    from tokiod.window import Window


class RawMoments:
    """What the commands print in each window, while it is the present one."""

    suffix: ClassVar[str] = ".txt.gz"
    file_seconds: ClassVar[int] = 86400
    window_seconds: ClassVar[int] = 1  # one run in each of the source's own

    def __init__(self, config: Config, site: Site) -> None:
        self._config = config
        self.collector = Lustre(config, site)

    async def fetch(self, window: Window) -> tuple[int, list[bytes]]:
        """Return the start of the window and the outputs of the commands that answered. Raises Transient or Fatal."""
        return window.start, await self.collector.printed(window)

    def create(self, path: Path) -> MomentsFile:
        """Create a file of outputs. Raises OSError."""
        return MomentsFile(path)

    def options(self) -> list[str]:
        """Return the step, the file systems that were mounted, and the home servers that the configuration names."""
        mounted = [("--filesystem", name) for name in sorted(self.collector.filesystems)]
        homes = [("--home", f"{target}={nid}") for target, nid in self._config.homes.items()]
        return ["--step", str(self._config.step), *(part for pair in mounted + homes for part in pair)]


class MomentsFile:
    """Compressed text."""

    def __init__(self, path: Path) -> None:
        self._file = packed_file(path)

    def add(self, raw: tuple[int, list[bytes]]) -> None:
        """Append the outputs of a window."""
        time, outputs = raw
        self._file.write(b"BEGIN %d\n" % time)
        for text in outputs:
            self._file.write(text.rstrip(b"\n") + b"\n")

    def close(self) -> None:
        """End the file."""
        self._file.close()
