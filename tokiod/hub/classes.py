"""The classes of nodes: the public keys of each, and the names that its nodes may have."""

from __future__ import annotations

import re
from fnmatch import translate
from typing import TYPE_CHECKING

from tokiod.bus.curve import ServerKeys, key_pair, public_key, public_key_files
from tokiod.errors import ConfigError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tokiod.config.sections import HubConfig


class NodeClasses:
    """Which class a key belongs to, and which names a class may use."""

    def __init__(self, directory: Path, classes: Mapping[str, Sequence[str]]) -> None:
        """Read the keys. Raises ConfigError, also for a key of a class that is not configured."""
        self._patterns = {name: [re.compile(translate(pattern)) for pattern in patterns] for name, patterns in classes.items()}
        self._by_key: dict[bytes, str] = {}
        for path in public_key_files(directory):
            name = path.name.partition(".")[0]
            if name not in classes:
                raise ConfigError([f"{path}: the class {name} is not in hub.classes{nearest(name, classes)}"])
            key = public_key(path)
            if (other := self._by_key.setdefault(key, name)) != name:
                raise ConfigError([f"{path}: the key of class {name} is that of class {other} too: make one for each class"])

    def of(self, key: bytes) -> str | None:
        """Return the class of a key; None if it belongs to no class."""
        return self._by_key.get(key)

    def allows(self, name: str, node: str) -> bool:
        """Return whether the nodes of a class may have a name."""
        return any(pattern.fullmatch(node) for pattern in self._patterns[name])


def hub_keys(hub: HubConfig, secrets: Path) -> tuple[ServerKeys, NodeClasses]:
    """Return the hub's keys with those that it allows, and the classes. Raises ConfigError."""
    if hub.clients is None or hub.secret_key_file is None:
        raise ConfigError(["hub.endpoint is missing: a hub needs an address and keys (docs/nodes.md)"])
    clients = secrets / hub.clients
    own = ServerKeys(key_pair(hub.secret_key_file, secrets), clients)
    return own, NodeClasses(clients, hub.classes)
