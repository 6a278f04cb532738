"""Landlock (Linux 5.13): a process gives up access to files that it does not need, without any privilege.

What is given up is given up for ever, also by its later children: other files, and from newer kernels on TCP, abstract Unix sockets
and signals to processes outside; at all times to trace such processes, or to read their memory and environment. Not restricted: what is
open already, Unix sockets with a path, and metadata such as names' existence. Its system calls have the same numbers everywhere.
"""

from __future__ import annotations

import ctypes
import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG, _PATH_BENEATH = 1, 1
_PR_SET_NO_NEW_PRIVS = 38

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIRECTORY = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_READ = _EXECUTE | _READ_FILE | _READ_DIRECTORY
_TRUNCATE, _DEVICE_CONTROL = 1 << 14, 1 << 15
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _DEVICE_CONTROL
_RIGHTS_BITS = ((5, 16), (3, 15), (2, 14), (1, 13))
"""From which version of Landlock on there are so many rights on files."""
_TCP_VERSION, _BIND_AND_CONNECT = 4, 0b11
_SCOPE_VERSION, _ABSTRACT_SOCKETS_AND_SIGNALS = 6, 0b11


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("descriptor", ctypes.c_int32))


def restrict_files(readable: Iterable[Path], writable: Iterable[Path]) -> str:
    """Leave this process, which has one thread, the files at and below these paths, of those that exist.

    Returns why it could not be restricted, empty if it was: then nothing or part of this holds.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        version = _call(libc, _CREATE_RULESET, None, 0, _VERSION_FLAG)
        every = (1 << next(bits for least, bits in _RIGHTS_BITS if version >= least)) - 1
        network = _BIND_AND_CONNECT if version >= _TCP_VERSION else 0
        scoped = _ABSTRACT_SOCKETS_AND_SIGNALS if version >= _SCOPE_VERSION else 0
        ruleset = _Ruleset(every, network, scoped)
        size = 8 * (1 + (version >= _TCP_VERSION) + (version >= _SCOPE_VERSION))
        descriptor = _call(libc, _CREATE_RULESET, ctypes.byref(ruleset), size, 0)
        try:
            for paths, rights in ((readable, _READ), (writable, every)):
                for path in paths:
                    _allow(libc, descriptor, path, rights)
            if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
                return os.strerror(ctypes.get_errno())
            _call(libc, _RESTRICT_SELF, descriptor, 0)
        finally:
            os.close(descriptor)
    except OSError as error:
        return error.strerror or "unknown error"
    return ""


def _allow(libc: ctypes.CDLL, ruleset: int, path: Path, rights: int) -> None:
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        is_directory = stat.S_ISDIR(os.fstat(opened).st_mode)
        rule = _PathBeneath(rights if is_directory else rights & _OF_FILES, opened)
        _call(libc, _ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(opened)


def _call(libc: ctypes.CDLL, number: int, *arguments: object) -> int:
    """Make a system call. Raises OSError."""
    result = int(libc.syscall(ctypes.c_long(number), *(ctypes.c_long(one) if isinstance(one, int) else one for one in arguments)))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
