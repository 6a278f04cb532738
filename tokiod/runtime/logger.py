"""structlog's loggers, without importing it before the first event: commands that log nothing start 0.1 s sooner."""

from __future__ import annotations

from typing import Any


def get_logger() -> Any:
    """Return a logger as structlog.get_logger() does."""
    return _Logger()


class _Logger:
    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        import structlog  # noqa: PLC0415 - see above

        return getattr(structlog.get_logger(), name)
