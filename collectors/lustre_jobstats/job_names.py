"""What Lustre's jobid_name put into a job id: the job, the command, the user, the node.

`lctl get_param jobid_var jobid_name` on a client says how ids are made: with jobid_name=%j:%u:%H, `4711:1000:nid00012` is job 4711 of uid
1000 on nid00012. Clients of one site may differ, and processes outside of jobs have ids such as %e.%u, so several formats are tried. One
with more codes is narrower and comes before the others: %j alone matches any id. The codes are those of Lustre's obdclass/jobid.c:

    format = { text | "%" ["." width] code | "%j?%" code }     since 2.16 a width cuts a part, and ? stands before what replaces no job

Any part may be empty. Lustre cuts an id after 31 bytes, so the last part of one with so many is unknown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from collectors.lustre_jobstats.parse import shown
from tokiod.errors import TokiodError
from tokiod.window_data import is_scheduler_id

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_BYTES = 31
"""Of a job id: LUSTRE_JOBID_SIZE without the byte at its end."""
CODES = {"e": "command", "g": "group", "h": "node", "H": "node", "j": "job", "p": "process", "u": "user"}
"""Lustre's codes: executable, gid, name of the host with its domain and without, job of jobid_var, process, uid."""
_CHARACTERS = {"e": r"\x00-\xff", "g": "0-9", "h": "A-Za-z0-9._-", "H": "A-Za-z0-9_-", "j": "!-~", "p": "0-9", "u": "0-9"}
_PART = re.compile(r"%(?:\.(\d*))?(.?)(?:(?<=j)\?(.{0,2}))?|([^%]+)", re.DOTALL)
_EITHER = "either"
"""The group of %j?%H: a job, or what replaces it."""


@dataclass(frozen=True, slots=True)
class JobName:
    """What a job id names; None for what its format lacks, or its id. user: the uid, in digits. is_known: one of the formats matched.

    is_cut: Lustre cut the id, and what its last part named is unknown. may_be_job: a text that may be the job, or the node or command.
    """

    job: str | None = None
    command: str | None = None
    user: str | None = None
    node: str | None = None
    is_known: bool = True
    is_cut: bool = field(default=False, compare=False)
    may_be_job: str = field(default="", compare=False)


class _Part(NamedTuple):
    """A part of a format: a code, or text. width: 0 without one; instead: what follows %j?, None without ?."""

    width: int
    code: str
    instead: str | None
    text: str


class JobNames:
    """Reads job ids. Raises TokiodError for a format that Lustre does not know, or one whose parts can't be separated."""

    def __init__(self, formats: Sequence[str] = ("%j",)) -> None:
        self._formats = sorted(map(_Format, formats), key=lambda one: -one.codes)
        self.of = lru_cache(maxsize=1 << 14)(self._of)

    def _of(self, identity: bytes) -> JobName:
        """Return what an id names; nothing for one of another format."""
        found = (one.name(identity) for one in self._formats)
        return next((name for name in found if name is not None), JobName(is_known=False))


class _Format:
    """One format. codes: how many it has; whole: the expression of an id that was not cut."""

    def __init__(self, form: str) -> None:
        parts = _parts(form)
        places = [place for place, part in enumerate(parts) if part.code]
        self.codes = len(places)
        self._instead = next((CODES[part.instead[1]] for part in parts if part.instead), "")
        # An id with colons has another format than %j alone.
        self.whole = re.compile(rb"(?P<job>[!-9;-~]+)") if parts == [_Part(0, "j", None, "")] else _pattern(parts)
        # Of an id that was cut: where it ends in the last part, in the one before, and so on.
        self._begins = [_pattern(parts[: place + 1], is_cut=True) for place in reversed(places)]
        self._ends_with_text = bool(parts[-1].text)

    def name(self, identity: bytes) -> JobName | None:
        """Return what an id names, None where it has another format."""
        whole = self.whole.fullmatch(identity)
        if len(identity) != MAX_BYTES or (whole and self._ends_with_text):
            return self._named(whole) if whole else None
        begin = next(filter(None, (one.fullmatch(identity) for one in self._begins)), None)
        if begin is None:
            return None
        name = self._named(begin)
        return replace(name, is_cut=True) if name else JobName(is_cut=True) if self.codes == 1 else None

    def _named(self, found: re.Match[bytes]) -> JobName | None:
        """Return what the parts of an id name, None where all are empty."""
        named = {name: _text(value) for name, value in found.groupdict().items() if value}
        if not named:
            return None
        either = named.pop(_EITHER, "")
        # 1234.sh may be a command, and 1234.server the id of a job.
        is_job, is_clear = is_scheduler_id(either), is_scheduler_id(either) and (self._instead != "command" or "." not in either)
        if either:
            named["job" if is_job else self._instead] = either
        job, command, user, node = map(named.get, ("job", "command", "user", "node"))
        return JobName(job, command, user, node, may_be_job="" if is_clear else either)


def _text(value: bytes) -> str:
    """Return a part; one that is not printable ASCII as it is shown to people."""
    text = value.decode("latin-1")
    return text if text.isascii() and text.isprintable() else shown(value)


def _parts(form: str) -> list[_Part]:
    """Return the parts of a format. Raises TokiodError for one that Lustre does not know, and one whose parts can't be separated."""
    # Lustre leaves out blanks.
    found = [_Part(int(one[1] or 0), one[2] or "", one[3], one[4] or "") for one in _PART.finditer(form.replace(" ", "")) if one[0]]
    if fault := _fault(form, found):
        raise TokiodError(f"jobid_name {form!r}: {fault}")
    return found


def _fault(form: str, parts: Sequence[_Part]) -> str:
    codes = [part.code for part in parts if not part.text]
    names = [CODES.get(code[-1:]) for part in parts for code in (part.code, part.instead) if code]
    if unknown := [code for code in codes if code and code not in CODES]:
        return f"Lustre has no code %{unknown[0]}; it has {', '.join(f'%{known}' for known in CODES)}"
    if not form.isascii() or not form.isprintable() or "" in codes:
        return "expected printable ASCII with a code after each %"
    if any(part.instead not in {None, "%e", "%h", "%H"} for part in parts):
        return "expected %h, %H or %e after %j?, and no width"
    if not codes or len(set(names)) < len(names):
        return "expected at least one code, and no part of an id twice"
    if any(one.code and following.code for one, following in pairwise(parts)):
        return "expected a separator between two codes, or their parts can't be separated"
    return ""


def _pattern(parts: Sequence[_Part], *, is_cut: bool = False) -> re.Pattern[bytes]:
    """Return the expression of an id. is_cut: its last part has no name."""
    following = [*(part.text[:1] for part in parts[1:]), ""]
    found = [_expression(part, end) for part, end in zip(parts, following, strict=True)]
    if is_cut:
        found[-1] = re.sub(r"\(\?P<\w+>", "(?:", found[-1])
    return re.compile("".join(found).encode("latin-1"))


def _expression(part: _Part, end: str) -> str:
    """Return the expression of a part before the text `end`. Only a command may contain that: so few matches are possible.

    A possessive repeat of a look-ahead would be faster, but matches nothing in Python before 3.11.5, as Debian 12 has it.
    """
    if part.text:
        return re.escape(part.text)
    is_command = "e" in {part.code, (part.instead or "")[-1:]}
    excluded = f"(?!{re.escape(end)})" if end and not is_command else ""
    name, width = CODES[part.code], part.width or ""
    if part.instead:
        # Clients before 2.16 write the ?.
        return f"(?P<{_EITHER}>(?:{excluded}[{_CHARACTERS['e'] if is_command else '!->@-~'}]){{0,{width}}})"
    one = f"(?:{excluded}[{_CHARACTERS[part.code]}])"
    if part.code == "u" and part.width:
        # A uid that fills its width may be the begin of another one.
        return f"(?:(?P<user>{one}{{0,{part.width - 1}}})|{one}{{{part.width}}})"
    # Some clients write the domain after %H too.
    domain = f"(?:\\.(?:{excluded}[{_CHARACTERS['h']}])*)?" if part.code == "H" and end != "." else ""
    return f"(?P<{name}>{one}{{0,{width}}}){domain}"
