"""Parse a page's bytes to documents: typed and all at once where possible, else one by one.

all names known    Literals: no string is made, no hash computed              most pages
a new name         str instead, then the names are added to the Literals      the first page, a new host
anything else      each hit by itself; unreadable ones are counted            a text where a number belongs
NaN, Infinity      no JSON, but Python writes them: the json module           saved pages

The sort values of an answer's last hit are found without decoding the others.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import msgspec

from collectors.collectd_es.datasets import NAMES, NUMBERS, Fields
from tokiod.errors import Malformed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

H = TypeVar("H")
Body = bytes | memoryview
MAX_NAMES = 20_000
"""Of each of NAMES; with more, it is decoded as str. Documents of any client must not grow tables without limit."""

DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for bytes of another form."""


class Total(msgspec.Struct, frozen=True):
    """How many documents a search found; relation: "eq", or "gte" where the server stopped counting."""

    value: int
    relation: str = "eq"


class Shards(msgspec.Struct, frozen=True):
    """How many shards a search queried, and the result."""

    total: int
    successful: int
    skipped: int = 0
    failed: int = 0


class Inner(msgspec.Struct, Generic[H]):
    """The object `hits` of a response."""

    total: Total | int | None = None
    hits: list[H] = []


class Response(msgspec.Struct, Generic[H]):
    """The used part of the answer to a search; with filter_path any field may be missing."""

    scroll_id: str | None = msgspec.field(name="_scroll_id", default=None)
    pit_id: str | None = None
    timed_out: bool | None = None
    terminated_early: bool | None = None
    shards: Shards | None = msgspec.field(name="_shards", default=None)
    hits: Inner[H] = msgspec.field(default_factory=Inner)


@dataclass(frozen=True, slots=True, eq=False)
class Page:
    """The readable documents of a page, the number of all, why the others are dropped, and the answer's metadata."""

    sources: list[Source]
    documents: int
    dropped: Counter[str]
    response: Response[Any]


class _Decoders:
    """Decoders of pages with one type of hit: a bare list of them, or the whole answer to a search."""

    def __init__(self, hit: Any) -> None:
        self.list = msgspec.json.Decoder(list[hit])
        self.response = msgspec.json.Decoder(Response[hit])

    def decode(self, body: Body, *, whole: bool) -> Response[Any]:
        return self.response.decode(body) if whole else Response(hits=Inner(hits=self.list.decode(body)))


_RAW = _Decoders(msgspec.Raw)


class _Typed:
    """Decoders of hits whose documents have known names."""

    def __init__(self, fields: Fields, known: dict[str, set[str]]) -> None:
        document, self._flatten = document_type(fields, known)
        hit = msgspec.defstruct("Hit", [("source", document, msgspec.field(name="_source"))], gc=False)
        self._decoders = _Decoders(hit)
        self._one = msgspec.json.Decoder(hit)

    def page(self, body: Body, *, whole: bool) -> Page:
        response = self._decoders.decode(body, whole=whole)
        hits, response.hits.hits = response.hits.hits, []
        return Page(self._sources(hits), len(hits), Counter(), response)

    def one(self, hit: msgspec.Raw) -> Source:
        return self._sources([self._one.decode(hit)])[0]

    def _sources(self, hits: list[Any]) -> list[Source]:
        flatten = self._flatten
        return [hit.source for hit in hits] if flatten is None else [flatten(hit.source) for hit in hits]


class Reader:
    """Parses the pages of one site, and learns its names."""

    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        self._known: dict[str, set[str]] = {name: {""} for name in NAMES}
        self._typed = _Typed(fields, self._known)
        self._plain = _Typed(fields, {})

    def read(self, body: Body, *, whole: bool) -> Page:
        """Parse a list of hits, or the whole answer to a search.

        Raises Malformed for anything else. An unreadable document affects no other.
        """
        try:
            return self._typed.page(body, whole=whole)
        except DECODE_ERRORS:
            return self._read_slowly(body, whole=whole)

    def _read_slowly(self, body: Body, *, whole: bool) -> Page:
        try:
            page = self._plain.page(body, whole=whole)
        except DECODE_ERRORS:
            page = self._one_by_one(body, whole=whole)
        self._learn(page.sources)
        return page

    def _one_by_one(self, body: Body, *, whole: bool) -> Page:
        try:
            response = _RAW.decode(body, whole=whole)
        except msgspec.ValidationError as error:
            raise Malformed("hits", f"a page that is not {'an answer to a search' if whole else 'a list of hits'}: {error}") from None
        except DECODE_ERRORS as error:
            response = _decode_with_nan(body, error, whole=whole)
        hits, response.hits.hits = response.hits.hits, []
        dropped: Counter[str] = Counter()
        return Page([s for s in self._read_each(hits, dropped) if s is not None], len(hits), dropped, response)

    def _read_each(self, hits: Iterable[Any], dropped: Counter[str]) -> Iterable[Source | None]:
        for hit in hits:
            if not isinstance(hit, msgspec.Raw):
                yield read_untyped(hit, self._fields, dropped)
                continue
            try:
                yield self._plain.one(hit)
            except DECODE_ERRORS:
                yield read_untyped(_decode_any(hit), self._fields, dropped)

    def _learn(self, sources: list[Source]) -> None:
        # Texts that are not printable name nothing; half a surrogate pair is one, and no Literal may hold it.
        before = sum(map(len, self._known.values()))
        for name, known in self._known.items():
            known |= {text for text in {getattr(source, name) for source in sources} if text.isprintable()}
        if sum(map(len, self._known.values())) == before:
            return
        few = {name: known for name, known in self._known.items() if len(known) <= MAX_NAMES}
        self._typed = _Typed(self._fields, few)


def _decode_any(hit: Body | msgspec.Raw) -> Any:
    try:
        return json.loads(bytes(hit))
    except (ValueError, RecursionError):
        return None


def _decode_with_nan(body: Body, error: Exception, *, whole: bool) -> Response[Any]:
    try:
        found = json.loads(bytes(body))
        return msgspec.convert(found if whole else {"hits": {"hits": found}}, Response[Any])
    except msgspec.ValidationError as wrong:
        raise Malformed("hits", f"a page that is not {'an answer to a search' if whole else 'a list of hits'}: {wrong}") from None
    except (ValueError, RecursionError):
        raise Malformed("json", f"a page that is not JSON: {error}") from None


NO_SOURCE = "no document"
NO_TEXT = "name that is not a text"
NO_NUMBER = "value that is not a number"
NOT_FINITE = "value that is not finite"


def read_untyped(hit: Any, fields: Fields, dropped: Counter[str]) -> Source | None:
    """Read one hit that json or msgspec decoded to dicts; None where it is unusable, which is counted in `dropped`."""
    document = hit.get("_source") if isinstance(hit, dict) else None
    if not isinstance(document, dict):
        dropped[NO_SOURCE] += 1
        return None
    found = {role: _at(document, fields.path(role)) for role in ROLES}
    texts: dict[str, Any] = {role: value for role, value in found.items() if isinstance(value, str) and role not in NUMBERS}
    source = Source(**texts)
    if any(not isinstance(value, str | None) for role, value in found.items() if role not in NUMBERS):
        dropped[NO_TEXT] += 1
        return None
    faults = {role: _number(source, role, found[role]) for role in NUMBERS}
    wrong = [fault for fault in faults.values() if fault]
    dropped.update(wrong)
    return None if wrong and not any(math.isfinite(getattr(source, role)) for role in NUMBERS if found[role] is not None) else source


def _at(document: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        document = document.get(name) if isinstance(document, dict) else None
    return document


def _number(source: Source, role: str, value: Any) -> str:
    """Set a number of a document; return the reason if it is unusable."""
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return NO_NUMBER
    try:
        number = float(value)
    except OverflowError:
        return NOT_FINITE
    if not math.isfinite(number):
        return NOT_FINITE
    setattr(source, role, number)
    return ""


_TAIL_BYTES = 10_000
_LAST_SORT = re.compile(rb'"sort"\s*:\s*(\[[^][]*\])\s*\}\s*\]\s*\}\s*\}\s*\Z')


class _Hits(msgspec.Struct):
    hits: msgspec.Raw = msgspec.Raw(b"[]")


class _Found(msgspec.Struct):
    hits: _Hits = msgspec.field(default_factory=_Hits)


_FOUND = msgspec.json.Decoder(_Found)


def raw_hits(body: Body) -> bytes:
    """Return the hits of an answer that was parsed before, as the JSON list that it is in there."""
    return bytes(_FOUND.decode(body).hits.hits)


class _Sorted(msgspec.Struct):
    sort: list[Any] | None = None


_SORTED = msgspec.json.Decoder(Response[_Sorted])


def last_sort(body: Body) -> list[Any] | None:
    """Return the sort values of the last hit of an answer, None without hits or for a damaged answer.

    They follow its document, and only closing brackets follow them; so they are found without decoding those of the others.
    """
    tail = bytes(body[-_TAIL_BYTES:])
    found = _LAST_SORT.search(tail)
    if found is None:
        return _last_sort_of_all(body)
    try:
        return msgspec.json.decode(found[1], type=list[Any])
    except DECODE_ERRORS:
        return None


def _last_sort_of_all(body: Body) -> list[Any] | None:
    try:
        hits = _SORTED.decode(body).hits.hits
    except DECODE_ERRORS:
        return None
    return hits[-1].sort if hits else None


class Source(msgspec.Struct, gc=False, order=False, eq=False):
    """One document: "" for a missing text and NaN for a missing number, None for null.

    time: ISO 8601; value: of memory and cpu; read, write: of disk.
    """

    plugin: str = ""
    read: float | None = math.nan
    time: str = ""
    host: str = ""
    write: float | None = math.nan
    value: float | None = math.nan
    type: str = ""
    plugin_instance: str = ""
    type_instance: str = ""


ROLES = Source.__struct_fields__

Tree = dict[str, "Tree | str"]


def document_type(fields: Fields, known: Mapping[str, Collection[str]]) -> tuple[type[Any], Callable[[Any], Source] | None]:
    """Return the struct that a document is decoded into, and a function that flattens it to a Source, None if it has Source's attributes.

    known: the possible values of some of NAMES; others fail validation. With them the decoder makes no string and no hash per document.
    msgspec compares keys in the order of the struct's fields, so their order is that of the documents of the capture.
    """
    tree: Tree = {}
    for role in ROLES:
        *way, last = fields.path(role)
        place: Any = tree
        for name in way:
            place = place.setdefault(name, {})
        place[last] = role
    attributes: dict[str, str] = {}
    struct = _struct(tree, known, "", attributes)
    if all(attribute == role for role, attribute in attributes.items()):
        return struct, None
    pick = operator.attrgetter(*(attributes[role] for role in ROLES))
    return struct, lambda document: Source(*pick(document))


def _struct(tree: Tree, known: Mapping[str, Collection[str]], prefix: str, attributes: dict[str, str]) -> type[Any]:
    members: list[tuple[str, Any, Any]] = []
    for number, (name, what) in enumerate(tree.items()):
        if isinstance(what, str):
            attributes[what] = prefix + what
            members.append((what, _annotation(what, known), msgspec.field(name=name, default=math.nan if what in NUMBERS else "")))
        else:
            inner = _struct(what, known, f"{prefix}object{number}.", attributes)
            members.append((f"object{number}", inner, msgspec.field(name=name, default=inner())))
    return msgspec.defstruct("Document", members, gc=False, frozen=True, eq=False)


def _annotation(role: str, known: Mapping[str, Collection[str]]) -> Any:
    if role in NUMBERS:
        return float | None
    return Literal[tuple(known[role])] if known.get(role) else str
