"""What Lustre's jobid_name put into a job id: the job, the command, the user, the node.

`lctl get_param jobid_var jobid_name` on a client says how ids are made: with jobid_name=%j:%u:%H, `4711:1000:nid00012` is job 4711 of uid
1000 on nid00012. Clients of one site may differ, and processes outside of jobs have ids such as %e.%u, so several formats are tried in
order.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from tokiod.errors import TokiodError

if TYPE_CHECKING:
    from collections.abc import Sequence

CODES = {"e": "command", "g": "group", "h": "node", "H": "node", "j": "job", "p": "process", "u": "user"}
"""Lustre's codes: executable, gid, name of the host with its domain and without, job of jobid_var, process, uid."""
_CHARACTERS = {"e": r"\x00-\xff", "g": r"0-9", "h": r"A-Za-z0-9._-", "H": r"A-Za-z0-9_-", "j": r"!-~", "p": r"0-9", "u": r"0-9"}
_PART = re.compile(r"%(.?)|([^%]+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class JobName:
    """What a job id names; None for what its format lacks. user: the uid, in digits. is_known: one of the formats matched."""

    job: str | None = None
    command: str | None = None
    user: str | None = None
    node: str | None = None
    is_known: bool = True


class JobNames:
    """Reads job ids. Raises TokiodError for a format that Lustre does not know, or one whose parts can't be separated."""

    def __init__(self, formats: Sequence[str] = ("%j",)) -> None:
        self._patterns = [_pattern(one) for one in formats]
        self.of = lru_cache(maxsize=1 << 14)(self._of)

    def _of(self, identity: bytes) -> JobName:
        """Return what an id names; nothing for one of another format. Names are printable ASCII: other bytes match no format."""
        for pattern in self._patterns:
            if found := pattern.fullmatch(identity):
                named = {name: value.decode("ascii") for name, value in found.groupdict().items() if value.isascii()}
                if len(named) == pattern.groups and all(map(str.isprintable, named.values())):
                    return JobName(named.get("job"), named.get("command"), named.get("user"), named.get("node"))
        return JobName(is_known=False)


def _pattern(form: str) -> re.Pattern[bytes]:
    parts = _PART.findall(form)
    for code, _ in parts:
        if code and code not in CODES:
            raise TokiodError(f"jobid_name {form!r}: Lustre has no code %{code}; it has {', '.join(f'%{known}' for known in CODES)}")
    if not form.isascii() or not form.isprintable() or "%" in (text[-1:] for _, text in parts) or form.endswith("%"):
        raise TokiodError(f"jobid_name {form!r}: expected printable ASCII with a code after each %")
    codes = [code for code, _ in parts if code]
    if not codes or len({CODES[code] for code in codes}) < len(codes):
        raise TokiodError(f"jobid_name {form!r}: expected at least one code, and no part of an id twice")
    if any(one[0] and following[0] for one, following in pairwise(parts)):
        raise TokiodError(f"jobid_name {form!r}: expected a separator between two codes, or their parts can't be separated")
    return re.compile("".join(map(_expression, parts, [*parts[1:], ("", "")])).encode("latin-1"))


def _expression(part: tuple[str, str], following: tuple[str, str]) -> str:
    """Return the expression of a part. Only a command may contain the separator after it: so few matches are possible.

    A possessive repeat of a look-ahead would be faster, but matches nothing in Python before 3.11.5, as Debian 12 has it.
    """
    code, text = part
    if not code:
        return re.escape(text)
    excluded = f"(?!{re.escape(following[1][0])})" if following[1] and code != "e" else ""
    return f"(?P<{CODES[code]}>(?:{excluded}[{_CHARACTERS[code]}])+)"
