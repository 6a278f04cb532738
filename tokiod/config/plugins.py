"""Kind to module: a file in collectors/ is a plugin of its name. The only dynamic import, and nothing lists the kinds."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, cast

import collectors
from tokiod.config.convert import nearest
from tokiod.errors import ConfigError

if TYPE_CHECKING:
    from tokiod.collector import Plugin

_PARTS = ("Config", "Saved", "live", "saved")


def kinds() -> list[str]:
    """Return the known kinds in alphabetical order, without importing them."""
    import pkgutil  # noqa: PLC0415 - 1 ms, for all whose kinds are known

    return sorted(module.name for module in pkgutil.iter_modules(collectors.__path__) if not module.name.startswith("_"))


def load(kind: str) -> Plugin:
    """Return the plugin of a kind.

    Raises ConfigError for a kind that doesn't exist, a module that can't be imported, and one that lacks a part of a plugin.
    """
    if not _is_there(kind):
        raise ConfigError([f"{kind!r} is no kind of source{_instead(kind, kinds())}"])
    try:
        module = importlib.import_module(f"{collectors.__name__}.{kind}")
    except Exception as error:  # a plugin is foreign code: any error of its import is reported and stops nothing else
        raise ConfigError([f"collectors.{kind} can't be imported: {type(error).__name__}: {error}"]) from error
    missing = [part for part in _PARTS if not hasattr(module, part)]
    if missing:
        raise ConfigError([f"collectors.{kind} is not a plugin: it has no {', '.join(missing)}"])
    return cast("Plugin", module)


def _is_there(kind: str) -> bool:
    return kind.isidentifier() and not kind.startswith("_") and importlib.util.find_spec(f"{collectors.__name__}.{kind}") is not None


def _instead(kind: str, known: list[str]) -> str:
    return nearest(kind, known) or (f": there is {', '.join(known)}" if known else ": none is installed")
