"""Read a TOML file."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

from tokiod.config.toml_syntax import describe
from tokiod.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


def read(path: Path) -> tuple[str, dict[str, Any]]:
    """Return the text and the content of a TOML file. Raises ConfigError with one line, which has the line number if it is known."""
    try:
        text = path.read_text("utf-8")
        return text, tomllib.loads(text)
    except OSError as error:
        hint = " (--config or TOKIOD_CONFIG names another)" if isinstance(error, FileNotFoundError) else ""
        raise ConfigError([f"{path}: {error.strerror}{hint}"]) from None
    except UnicodeDecodeError as error:
        raise ConfigError([f"{path}: not UTF-8 text (byte {error.start})"]) from None
    except RecursionError:
        raise ConfigError([f"{path}: nested too deeply"]) from None
    except ValueError as error:
        raise ConfigError([_syntax(path, text, str(error))]) from None


def _syntax(path: Path, text: str, error: str) -> str:
    fault = describe(text, error)
    return f"{path}:{fault.line}: not TOML: {fault.sentence}" if fault.line else f"{path}: not TOML: {fault.sentence}"
