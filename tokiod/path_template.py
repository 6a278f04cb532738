"""Path templates of an archive: fields of strftime for the date at the site, and {system}."""

from __future__ import annotations

import glob
import os
import re
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterator

_FIELD = r"%[-_0^#]?[A-Za-z]|\{system\}"
"""A text, which `re` compiles once when it is used: few commands look for files."""


def fill(template: str, date: dt.date, system: str) -> Path:
    """Return the path of a system and a date at the site."""
    return Path(filled(template, date, system))


def filled(template: str, date: dt.date, system: str) -> str:
    """Return the same path as a text."""
    return _dated(template, date).replace("{system}", system)


# All systems have a file of the same date.
@lru_cache(maxsize=16)
def _dated(template: str, date: dt.date) -> str:
    return date.strftime(template)


def root_of(template: str) -> Path:
    """Return the longest directory that all files of a template share."""
    return Path(*takewhile(lambda part: not set("%{") & set(part), Path(template).parent.parts))


def jobs_of(template: str) -> Path:
    """Return the directory of the job table that belongs to the files of a template."""
    return root_of(template) / "jobs"


def files_of(template: str) -> Iterator[Path]:
    """Yield the existing files of a template, of all days and systems."""
    return map(Path, names_of(template))


def names_of(template: str) -> Iterator[str]:
    """Yield the paths of the same files as texts: of a thousand files, paths take 5 ms to make and to look up."""
    # Of the module glob, which takes half the time of Path.glob(); it finds nothing below hidden directories.
    return glob.iglob(_pattern(template))  # noqa: PTH207


@lru_cache(maxsize=16)
def _pattern(template: str) -> str:
    root = root_of(template)
    return glob.escape(f"{root}{os.sep}") + re.sub(_FIELD, "*", glob.escape(str(Path(template).relative_to(root))))


def systems_of(template: str) -> set[str]:
    """Return the systems that have files of a template."""
    template = str(Path(template))
    fields = re.findall(_FIELD, template)
    first = fields.index("{system}") if "{system}" in fields else len(fields)
    words = ["[^/]+?" if field != "{system}" else "(?P<system>[^/]+)" if i == first else "(?P=system)" for i, field in enumerate(fields)]
    pattern = re.compile("".join(re.escape(text) + word for text, word in zip(re.split(_FIELD, template), [*words, ""], strict=True)))
    found = (pattern.fullmatch(str(path)) for path in files_of(template))
    return {match["system"] for match in found if match is not None and "system" in pattern.groupindex}
