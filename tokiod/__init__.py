"""tokiod: a complete, correct, always readable archive of what an HPC centre's storage did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokiod.reader.archive import open_archive as open  # noqa: A004 - tokiod.open, like h5py.File

__all__ = ["__version__", "open"]
__version__ = "0.1.0"


# h5py takes 0.2 s to import, and the collectors' process must not have it.
def __getattr__(name: str) -> Any:
    if name == "open":
        from tokiod.reader.archive import open_archive  # noqa: PLC0415 - as above

        return open_archive
    raise AttributeError(f"module 'tokiod' has no attribute {name!r}")
