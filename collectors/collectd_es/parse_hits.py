"""Parse a page's bytes to documents: typed and all at once where possible, else one by one.

all names known    Literals: no string is made, no hash computed              most pages
a new name         str instead, then the names are added to the Literals      the first page, a new host
anything else      each hit by itself, see documents; others are counted      a text where a number belongs
NaN, Infinity      no JSON, but Python writes them: the json module           saved pages

The sort values of an answer's last hit are found without decoding the others.
"""

from __future__ import annotations

import json
import math
import operator
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import msgspec

from collectors.collectd_es.datasets import NAMES, NUMBERS, Fields, faults
from collectors.collectd_es.documents import REQUIRED, ROLES, Source, read_untyped
from tokiod.dropped import Dropped
from tokiod.errors import Malformed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

H = TypeVar("H")
Body = bytes | memoryview
MAX_NAMES = 20_000
"""Of each of NAMES; with more, it is decoded as str. Documents of any client must not grow tables without limit."""

DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for bytes of another form."""


class Shards(msgspec.Struct, frozen=True):
    """How many shards a search queried, and the result."""

    total: int
    successful: int
    failed: int = 0


class Inner(msgspec.Struct, Generic[H]):
    """The object `hits` of a response."""

    hits: list[H] = []


class Response(msgspec.Struct, Generic[H]):
    """The used part of the answer to a search; with filter_path any field may be missing."""

    timed_out: bool | None = None
    terminated_early: bool | None = None
    shards: Shards | None = msgspec.field(name="_shards", default=None)
    hits: Inner[H] = msgspec.field(default_factory=Inner)


@dataclass(frozen=True, slots=True, eq=False)
class Page:
    """The readable documents of a page, the number of all, why the others are dropped, and the answer's metadata."""

    sources: list[Source]
    documents: int
    dropped: Dropped
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
        return Page(self._sources(hits), len(hits), Dropped(), response)

    def one(self, hit: msgspec.Raw) -> Source:
        return self._sources([self._one.decode(hit)])[0]

    def _sources(self, hits: list[Any]) -> list[Source]:
        flatten = self._flatten
        return [hit.source for hit in hits] if flatten is None else [flatten(hit.source) for hit in hits]


def _forms(fields: Fields) -> Iterator[Fields]:
    """Yield the names of fields, and those with the codec's own name of the host, which many sites leave as it is."""
    yield fields
    other = msgspec.structs.replace(fields, host="host")
    if fields.host == Fields().host and not faults(other):
        yield other


class Reader:
    """Parses the pages of one site, and learns its names."""

    def __init__(self, fields: Fields) -> None:
        self._fields = self._typed_fields = fields
        self._known: dict[str, set[str]] = {name: {""} for name in NAMES}
        self._typed = _Typed(fields, self._known)
        self._plain = {form: _Typed(form, {}) for form in _forms(fields)}

    def read(self, body: Body, *, whole: bool) -> Page:
        """Parse a list of hits, or the whole answer to a search.

        Raises Malformed for anything else. An unreadable document affects no other.
        """
        try:
            return self._typed.page(body, whole=whole)
        except DECODE_ERRORS:
            return self._read_slowly(body, whole=whole)

    def _read_slowly(self, body: Body, *, whole: bool) -> Page:
        for fields, plain in self._plain.items():
            try:
                page = plain.page(body, whole=whole)
            except DECODE_ERRORS:
                continue
            self._learn(page.sources, fields)
            return page
        page = self._one_by_one(body, whole=whole)
        self._learn(page.sources, self._typed_fields)
        return page

    def _one_by_one(self, body: Body, *, whole: bool) -> Page:
        try:
            response = _RAW.decode(body, whole=whole)
        except msgspec.ValidationError as error:
            raise Malformed("hits", f"a page that is not {'an answer to a search' if whole else 'a list of hits'}: {error}") from None
        except DECODE_ERRORS as error:
            response = _decode_with_nan(body, error, whole=whole)
        hits, response.hits.hits = response.hits.hits, []
        dropped = Dropped()
        return Page([s for s in self._read_each(hits, dropped) if s is not None], len(hits), dropped, response)

    def _read_each(self, hits: Iterable[Any], dropped: Dropped) -> Iterable[Source | None]:
        plain = self._plain[self._fields]
        for hit in hits:
            if not isinstance(hit, msgspec.Raw):
                yield read_untyped(hit, self._fields, dropped)
                continue
            try:
                yield plain.one(hit)
            except DECODE_ERRORS:
                yield read_untyped(_decode_any(hit), self._fields, dropped)

    def _learn(self, sources: list[Source], fields: Fields) -> None:
        # Texts that are not printable name nothing; half a surrogate pair is one, and no Literal may hold it.
        before = sum(map(len, self._known.values()))
        for name, known in self._known.items():
            known |= {text for text in {getattr(source, name) for source in sources} if text.isprintable()}
        if sum(map(len, self._known.values())) == before and fields == self._typed_fields:
            return
        self._typed_fields = fields
        few = {name: known for name, known in self._known.items() if len(known) <= MAX_NAMES}
        self._typed = _Typed(fields, few)


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


TRAPS = {"type": ("values",)}
"""By the name of the field of the type: fields that documents of the usual form don't have. write_http has both; Logstash has neither."""

Tree = dict[str, "Tree | str"]


def document_type(fields: Fields, known: Mapping[str, Collection[str]]) -> tuple[type[Any], Callable[[Any], Source] | None]:
    """Return the struct that a document is decoded into, and a function that flattens it to a Source, None if it has Source's attributes.

    known: the possible values of some of NAMES; others fail validation. With them the decoder makes no string and no hash per document.
    A document without a REQUIRED text, or with one of TRAPS, fails validation too: it may have what is missing in another form.
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
    struct = _struct(tree, known, "", attributes, traps=[name for name in TRAPS.get(fields.type, ()) if name not in tree])
    if all(attribute == role for role, attribute in attributes.items()):
        return struct, None
    pick = operator.attrgetter(*(attributes[role] for role in ROLES))
    return struct, lambda document: Source(*pick(document))


def _struct(
    tree: Tree, known: Mapping[str, Collection[str]], prefix: str, attributes: dict[str, str], traps: Sequence[str] = ()
) -> type[Any]:
    members: list[tuple[str, Any, Any]] = []
    for number, (name, what) in enumerate(tree.items()):
        if isinstance(what, str):
            attributes[what] = prefix + what
            default = msgspec.NODEFAULT if what in REQUIRED else math.nan if what in NUMBERS else ""
            members.append((what, _annotation(what, known), msgspec.field(name=name, default=default)))
        else:
            inner = _struct(what, known, f"{prefix}object{number}.", attributes)
            is_required = any(field.required for field in msgspec.structs.fields(inner))
            members.append((f"object{number}", inner, msgspec.field(name=name, default=msgspec.NODEFAULT if is_required else inner())))
    members += [(f"trap{number}", None, msgspec.field(name=name, default=None)) for number, name in enumerate(traps)]
    return msgspec.defstruct("Document", members, gc=False, frozen=True, eq=False, kw_only=True)


def _annotation(role: str, known: Mapping[str, Collection[str]]) -> Any:
    if role in NUMBERS:
        return float | None
    return Literal[tuple(known[role])] if known.get(role) else str
