"""What others need to help with a fault: versions, configuration, status, gaps, files, unit states and the last log lines, without secrets.

Each part is made by itself: one that can't be made holds the reason. Secrets are named in a configuration, not contained; those that this
user can read are read, so that they are masked wherever they occur.
"""

from __future__ import annotations

import io
import os
import platform
import re
import shutil
import stat
import subprocess
import tarfile
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tokiod import __version__
from tokiod.config import effective, machine_checks
from tokiod.config import load as configuration
from tokiod.errors import ConfigError, TokiodError
from tokiod.ledger.ledger import Ledger
from tokiod.ledger.published_copy import readable_ledger
from tokiod.reports import gaps, status
from tokiod.runtime.secrets import mask, remember, secret
from tokiod.window import iso

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tokiod.config.schema import Config

UNITS = (
    "tokiod.service", "tokiod.target", "tokiod-writer.service", "tokiod-collectors.service", "tokiod-feed.service", "tokiod-hub.service",
    "tokiod-relay.service", "tokiod-host.service", "tokiod-web.service", "tokiod-sink@*.service",
)  # fmt: skip
MAX_FILES = 200
"""The newest files of the archive that are listed."""
_CURVE_KEY = r'secret-key = "(.+)"'
"""In the file that `tokiod keygen` makes: the secret is a part of it."""
COMMAND_SECONDS = 20.0
"""Time limit of systemctl and journalctl."""


@dataclass(frozen=True, slots=True)
class Member:
    """A file of the report. content: makes its text."""

    name: str
    about: str
    content: Callable[[], str]


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a report is about. now: epoch seconds; log_lines: how many of the newest."""

    config_path: Path
    now: float
    log_lines: int


def members(inputs: Inputs) -> list[Member]:
    """Return the files of a report, in their order."""
    try:
        text, config = configuration.read(inputs.config_path)
    except ConfigError as error:
        reason = str(error)
        return [_versions(), Member("configuration.txt", "why the configuration can't be read", lambda: reason), *_system(inputs)]
    _remember_secrets(config)
    return [
        _versions(),
        Member(
            "configuration.toml",
            "the effective configuration; secrets are only named",
            lambda: "\n".join(effective.lines(inputs.config_path, text, config)),
        ),
        Member("check.txt", "what the configuration names and this user does not find", lambda: _problems(config)),
        Member("status.json", "as tokioctl status --json", lambda: _json(status.read(config, inputs.now))),
        Member("gaps.json", "as tokioctl gaps --json", lambda: _gaps(config, inputs.now)),
        Member("files.txt", f"the newest {MAX_FILES} files of the archive", lambda: _files(config.archive.root)),
        *_system(inputs),
    ]


def pack(chosen: list[Member], now: float) -> tuple[bytes, dict[str, int]]:
    """Return a compressed tar file of the members, and the bytes of each. now: epoch seconds, the time of all members."""
    packed, sizes = io.BytesIO(), {}
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for member in chosen:
            content = mask(_content(member)).encode("utf-8", "backslashreplace") + b"\n"
            entry = tarfile.TarInfo(f"tokiod-report/{member.name}")
            entry.size, entry.mtime, entry.mode = len(content), int(now), 0o600
            archive.addfile(entry, io.BytesIO(content))
            sizes[member.name] = len(content)
    return packed.getvalue(), sizes


def _content(member: Member) -> str:
    try:
        return member.content()
    except (OSError, TokiodError, subprocess.SubprocessError) as error:
        return f"not available: {error}"
    except Exception as error:  # noqa: BLE001 - a report is made where something is at fault: each other part is still wanted
        return f"not available: {type(error).__name__}: {error}"


def _versions() -> Member:
    return Member("versions.txt", "versions of tokiod, its packages and the system", lambda: "\n".join(_version_lines()))


def _version_lines() -> Iterator[str]:
    yield f"tokiod {__version__}"
    yield f"Python {platform.python_version()}"
    yield platform.platform()
    with suppress(OSError):
        yield platform.freedesktop_os_release().get("PRETTY_NAME", "")
    yield f"{os.cpu_count()} processors"
    with suppress(metadata.PackageNotFoundError):
        names = {re.split(r"[^\w.-]", requirement, maxsplit=1)[0] for requirement in metadata.requires("tokiod") or []}
        for name in sorted(names):
            with suppress(metadata.PackageNotFoundError):
                yield f"{name} {metadata.version(name)}"


def _system(inputs: Inputs) -> list[Member]:
    states = ("systemctl", "status", "--no-pager", "--full", "--lines=0", *UNITS)
    log = ("journalctl", "--no-pager", "--output=short-iso", f"--lines={inputs.log_lines}", *(f"--unit={unit}" for unit in UNITS))
    return [
        Member("units.txt", "states of the systemd units", lambda: _output(*states)),
        Member("log.txt", f"the last {inputs.log_lines} lines of the units' log", lambda: _output(*log)),
    ]


def _output(*command: str) -> str:
    if shutil.which(command[0]) is None:
        return f"not available: no {command[0]} on this machine; add the log of your service manager"
    # Fixed words, without a shell.
    done = subprocess.run(command, capture_output=True, check=False, timeout=COMMAND_SECONDS, stdin=subprocess.DEVNULL)  # noqa: S603, TID251
    return (done.stdout + done.stderr).decode(errors="replace").rstrip()


def _problems(config: Config) -> str:
    return "\n".join([*configuration.warnings(config), *machine_checks.problems(config)]) or "nothing was found"


def _gaps(config: Config, now: float) -> str:
    if (path := readable_ledger(config.archive)) is None:
        return "not available: there is no ledger yet"
    with Ledger.open_readonly(path) as ledger:
        return _json(gaps.gaps(config.source, ledger, config.calendar, now))


def _json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _files(root: Path) -> str:
    usage = shutil.disk_usage(root)
    found = []
    for path in chain([root], root.rglob("*")):
        with suppress(FileNotFoundError):  # the daemon replaced or removed it meanwhile
            found.append((path.lstat(), path))
    found.sort(key=lambda one: -one[0].st_mtime)
    lines = [f"{usage.free >> 20} MiB of {usage.total >> 20} MiB are free; mode, owner, bytes, last change"]
    for one, path in found[:MAX_FILES]:
        lines.append(f"{stat.filemode(one.st_mode)} {one.st_uid}:{one.st_gid} {one.st_size:>14} {iso(int(one.st_mtime))} {path}")
    return "\n".join(lines)


def _remember_secrets(config: Config) -> None:
    """Read the secrets that this user can read: mask() then removes them from all texts."""
    tables = [value for name in config.__struct_fields__ if isinstance(value := getattr(config, name), msgspec.Struct)]
    names = {f"file:{host.secret_key}" for host in config.host}
    for table in (*tables, *config.source, *config.sink):
        for field in table.__struct_fields__:
            name = getattr(table, field)
            for suffix, scheme in (("_file", "file"), ("_env", "env")):
                if field.endswith(suffix) and isinstance(name, (str, Path)) and name:
                    names.add(f"{scheme}:{name}")
    for reference in names:
        with suppress(ConfigError):
            for key in re.findall(_CURVE_KEY, secret(reference, config.secrets)):
                remember(key)
