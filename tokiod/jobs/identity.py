"""What is stored of a job's identity: personal data as the site allows it, and a keyed hash that keeps job ids apart.

A job id is stored in no other way than by what its format names. The hash of the whole id distinguishes ids whose stored parts are equal:
without user names, with the number of a process, or where a user gave its job another one's id. The same id has the same hash for ever,
because counts continue over restarts, and a table of hashes can't be made without the key.

Where users are not stored by name, a job is stored only if it can be nothing but a scheduler's id (tokiod.window_data.is_scheduler_id):
7z.1000 in its place is a command and a user. A text that may be a job or a part next to it stands in both places, and is neither then.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import numpy as np

from tokiod.errors import ConfigError, TokiodError
from tokiod.runtime.logger import get_logger
from tokiod.window_data import JOB_TABLE, is_scheduler_id, job_key, job_parts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tokiod.config.jobs import JobsConfig
    from tokiod.config.sections import ArchiveConfig
    from tokiod.window_data import Collected, TableRows

log = get_logger()

Users = Literal["names", "hashed", "no"]
MIN_KEY_BYTES = 16
ID_DIGITS, USER_DIGITS = 12, 16
"""Hexadecimal digits of hashes."""


class JobIdentities:
    """Replaces the identity of jobs by what is stored of it. key: of the hashes, bytes that only the daemon has."""

    def __init__(self, users: Users, key: bytes) -> None:
        self._users = users
        self._key = key
        self._stored = lru_cache(maxsize=1 << 16)(self._of)

    def applied(self, collected: Collected) -> Collected:
        """Return a window with what is stored of its jobs."""
        if not collected.tables:
            return collected
        return replace(collected, tables=[self._applied_to(rows) for rows in collected.tables])

    def _applied_to(self, rows: TableRows) -> TableRows:
        if rows.table != JOB_TABLE or not len(rows):
            return rows
        place = rows.columns.index("job")
        names, numbers = np.unique(rows.values[place], return_inverse=True)
        stored = np.array([self._stored(name) for name in names.tolist()], "S")[numbers]
        return replace(rows, values=(*rows.values[:place], stored, *rows.values[place + 1 :]))

    def _of(self, key: bytes) -> bytes:
        parts = job_parts(key)
        job, user, command, node, identity = parts["job"], parts["user"], parts["command"], parts["node"], parts["id"]
        may_be_other = bool(job) and job in {command, node}
        if self._users != "names":
            job, node = "" if may_be_other or not is_scheduler_id(job) else job, "" if may_be_other else node
            user, command = self._hidden("u", user), self._hidden("c", command)
        elif may_be_other:
            job, command = (job, "" if command == job else command) if is_scheduler_id(job) else ("", command)
        elif not (job or user or command):
            job = identity
        return job_key(job, user, command, node, self._hash("i", identity)[:ID_DIGITS])

    def _hidden(self, kind: str, text: str) -> str:
        return self._hash(kind, text)[:USER_DIGITS] if self._users == "hashed" and text else ""

    def _hash(self, kind: str, text: str) -> str:
        return hmac.new(self._key, f"{kind}\0{text}".encode(), hashlib.sha256).hexdigest()


def without_users(keys: list[bytes]) -> list[bytes]:
    """Return keys of stored jobs without users and commands; they stay distinct by their hashes."""
    parts = map(job_parts, keys)
    return [job_key(one["job"] if is_scheduler_id(one["job"]) else "", "", "", one["node"], one["id"]) for one in parts]


def identities(jobs: JobsConfig, archive: ArchiveConfig, secret: Callable[[str], str]) -> JobIdentities:
    """Return what a site's configuration allows. Raises ConfigError for a missing or short key, TokiodError for one that can't be made."""
    if jobs.key_file is None:
        return JobIdentities(jobs.users, _private_key(archive.private / "jobs.key", archive.jobs))
    key = secret(f"file:{jobs.key_file}").encode()
    if len(key) < MIN_KEY_BYTES:
        raise ConfigError([f"jobs.key_file: a key of {len(key)} bytes; expected {MIN_KEY_BYTES} or more, as of openssl rand -hex 32"])
    return JobIdentities(jobs.users, key)


def _private_key(path: Path, table: Path) -> bytes:
    """Return the key that only the daemon's user can read, made at the first time. table: the directory of the job table."""
    from tokiod.tts.live.files import replacing  # noqa: PLC0415 - the reader alone does not have it, and makes no key

    try:
        if not path.exists():
            with replacing(path) as temporary, temporary.open("wb") as file:
                os.fchmod(file.fileno(), 0o600)
                file.write(secrets.token_hex(32).encode())
                file.flush()
                os.fsync(file.fileno())
            if any(table.glob("*/*")):
                reason = "another one made the ids that the job table has: jobs that run now count twice, under both"
                log.warning("jobs.key_made", path=str(path), reason=reason)
        key = path.read_bytes()
    except OSError as error:
        raise TokiodError(f"the key of job ids can't be made: {path}: {error.strerror}") from None
    # Versions before 0.2.0 could be killed between making the file and writing it, or meet a full disk there.
    if len(key) < MIN_KEY_BYTES:
        remedy = "restore it from a backup, or remove it: then a new one is made, and jobs that run now count twice"
        raise TokiodError(f"the key of job ids has {len(key)} bytes, {MIN_KEY_BYTES} or more are needed: {path}: {remedy}")
    return key
