"""The agent's configuration: a flat TOML file of a few keys. Python 3.9 has no parser of TOML, and a node gets no package for it.

The file has the keys of Settings; config/agent/agent.toml is an example.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from tokiod.agent.configured_events import JOB_EVENTS, NODE_EVENTS
from tokiod.agent.job_patterns import site_forms
from tokiod.agent.wire import MAX_NODE_CHARACTERS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

DEFAULT_CONFIG = "/etc/tokiod-agent/agent.toml"
_LISTS = ("without", "perf_node", "perf_jobs", "job_cgroups")
_LINE = re.compile(r'\s*(?:(?P<key>[A-Za-z_]+)\s*=\s*(?P<value>"(?:[^"\\]|\\.)*"|\[(?:[^\]"]|"(?:[^"\\]|\\.)*")*\]|[^\s#]+))?\s*(?:#.*)?')
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_ENDPOINT = re.compile(r"tcp://(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):[0-9]{1,5}")


class SettingsError(Exception):
    """The file is wrong. Each line of the text is an error with its place."""


@dataclass(frozen=True)
class Settings:
    """What the file states. Paths are absolute; a key that systemd gives as a credential is read there.

    perf_node, perf_jobs: names of the perf events that are counted of the node, and of each job. job_cgroups: the site's own forms of
    jobs' cgroups, SCHEDULER=REGULAR EXPRESSION.
    """

    hub: str
    hub_key_file: str
    key_file: str
    node: str
    without: tuple[str, ...] = ()
    perf_node: tuple[str, ...] = ()
    perf_jobs: tuple[str, ...] = ()
    job_cgroups: tuple[str, ...] = ()


def read_settings(path: str, host: str, sensors: frozenset[str]) -> Settings:
    """Read the file. host: the name of this machine; sensors: the names of all sensors. Raise SettingsError with all errors at once."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        remedy = ": copy agent.toml of the package there (docs/nodes.md); --once needs none" if isinstance(error, FileNotFoundError) else ""
        raise SettingsError(f"{path}: {getattr(error, 'strerror', None) or error}{remedy}") from None
    found: dict[str, Any] = {}
    faults = list(_parse(path, lines, found))
    faults += [f"{path}: {name}: missing" for name in ("hub", "hub_key_file", "key_file") if name not in found and not faults]
    if not faults:
        faults = [f"{path}: {fault}" for fault in _faults(found, host, sensors)]
    if faults:
        raise SettingsError("\n".join(faults))
    directory = os.path.dirname(os.path.abspath(path))
    node = found.get("node") or host.partition(".")[0]
    hub_key = os.path.join(directory, found["hub_key_file"])
    lists = (tuple(dict.fromkeys(found.get(name, ()))) for name in _LISTS)
    return Settings(found["hub"], hub_key, _key_file(directory, found["key_file"]), node, *lists)


def settings_of_node(path: str, host: str, sensors: frozenset[str]) -> Settings | None:
    """Read the file for a report without a hub; None where the usual file is missing, or may not be read. Raise as read_settings()."""
    return None if path == DEFAULT_CONFIG and not os.access(path, os.R_OK) else read_settings(path, host, sensors)


def _key_file(directory: str, name: str) -> str:
    """Return the path of the secret key: the credential of that name, where systemd gives one, or the file."""
    credentials = os.environ.get("CREDENTIALS_DIRECTORY", "")
    credential = os.path.join(credentials, name)
    return credential if credentials and os.path.exists(credential) else os.path.join(directory, name)


def _parse(path: str, lines: list[str], found: dict[str, Any]) -> Iterator[str]:
    """Put the keys into `found`, and yield the errors."""
    known = {field.name for field in fields(Settings)}
    for number, line in enumerate(lines, 1):
        match = _LINE.fullmatch(line)
        if match is None:
            yield f'{path}:{number}: expected NAME = "VALUE" on one line'
            continue
        key = match["key"]
        if key is None:
            continue
        try:
            value = json.loads(match["value"])
        except ValueError:
            yield f'{path}:{number}: {key}: expected a text in double quotes, or a list of them, as in ["ipmi"]'
            continue
        is_right = isinstance(value, list) and all(isinstance(one, str) for one in value) if key in _LISTS else isinstance(value, str)
        if key not in known:
            yield f"{path}:{number}: unknown key {key}; known: {', '.join(sorted(known))}"
        elif key in found:
            yield f"{path}:{number}: {key} is there twice"
        elif not is_right:
            yield f"{path}:{number}: {key}: expected {'a list of texts' if key in _LISTS else 'a text'}"
        else:
            found[key] = value


def _faults(found: dict[str, Any], host: str, sensors: frozenset[str]) -> Iterator[str]:
    if not _ENDPOINT.fullmatch(found["hub"]):
        yield f'hub: expected "tcp://HOST:PORT", got "{found["hub"]}"'
    node = found.get("node") or host.partition(".")[0]
    if not _NODE.fullmatch(node) or len(node) > MAX_NODE_CHARACTERS:
        yield f'node: expected letters, digits, ".", "_" and "-", got "{node}"'
    for name in found.get("without", ()):
        if name not in sensors:
            yield f"without: unknown sensor {name}; known: {', '.join(sorted(sensors))}"
    for key, known in (("perf_node", NODE_EVENTS), ("perf_jobs", JOB_EVENTS)):
        for name in found.get(key, ()):
            if name not in known:
                yield f"{key}: unknown event {name}; known: {', '.join(known)}"
    yield from filter(None, map(_form_fault, found.get("job_cgroups", ())))


def _form_fault(form: str) -> str:
    try:
        site_forms([form])
    except ValueError as error:
        return f"job_cgroups: {error}"
    return ""
