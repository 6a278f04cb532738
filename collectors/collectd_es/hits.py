"""A page's bytes to documents: typed at once where all is well, else one by one.

all names known    Literals: no string is made, no hash computed              most pages
a new name         str instead, then the names are added to the Literals      the first page, a new host
anything else      each hit by itself; what can't be read is counted          a text where a number belongs
NaN, Infinity      no JSON at all, but what Python writes: json reads it      saved pages
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from collectors.collectd_es.fields import NAMES, Fields, Source, document_type
from collectors.collectd_es.odd import salvage
from tokiod.errors import Malformed

if TYPE_CHECKING:
    from collections.abc import Iterable

H = TypeVar("H")
Body = bytes | memoryview
MOST_NAMES = 20_000
"""Of each of NAMES; with more of them it is decoded as str. What anybody writes must not grow tables without end."""

BROKEN = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for bytes that are not what was asked for."""


class Total(msgspec.Struct, frozen=True):
    """How many documents a search found; relation: "eq", or "gte" where the server stopped counting."""

    value: int
    relation: str = "eq"


class Shards(msgspec.Struct, frozen=True):
    """How many shards a search asked, and what became of it there."""

    total: int
    successful: int
    skipped: int = 0
    failed: int = 0


class Inner(msgspec.Struct, Generic[H]):
    """The object `hits` of a response."""

    total: Total | int | None = None
    hits: list[H] = []


class Response(msgspec.Struct, Generic[H]):
    """What is of interest in the answer to a search; with filter_path anything of it may be missing."""

    scroll_id: str | None = msgspec.field(name="_scroll_id", default=None)
    pit_id: str | None = None
    timed_out: bool | None = None
    terminated_early: bool | None = None
    shards: Shards | None = msgspec.field(name="_shards", default=None)
    hits: Inner[H] = msgspec.field(default_factory=Inner)


@dataclass(frozen=True, slots=True, eq=False)
class Page:
    """The documents of a page that can be read, how many there were, why the others can't be, and what the answer says of itself."""

    sources: list[Source]
    documents: int
    dropped: Counter[str]
    response: Response[Any]


class _Decoders:
    """What decodes pages of one type of hit: a bare list of them, or the whole answer to a search."""

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
    """Reads the pages of one site, and learns its names."""

    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        self._known: dict[str, set[str]] = {name: {""} for name in NAMES}
        self._typed = _Typed(fields, self._known)
        self._plain = _Typed(fields, {})

    def read(self, body: Body, *, whole: bool) -> Page:
        """Read a list of hits, or the whole answer to a search.

        Raises Malformed for what is neither; a document that can't be read fails nothing but itself.
        """
        try:
            return self._typed.page(body, whole=whole)
        except BROKEN:
            return self._slowly(body, whole=whole)

    def _slowly(self, body: Body, *, whole: bool) -> Page:
        try:
            page = self._plain.page(body, whole=whole)
        except BROKEN:
            page = self._one_by_one(body, whole=whole)
        self._learn(page.sources)
        return page

    def _one_by_one(self, body: Body, *, whole: bool) -> Page:
        try:
            response = _RAW.decode(body, whole=whole)
        except msgspec.ValidationError as error:
            raise Malformed("hits", f"a page that is no {'answer to a search' if whole else 'list of hits'}: {error}") from None
        except BROKEN as error:
            response = _with_nan(body, error, whole=whole)
        hits, response.hits.hits = response.hits.hits, []
        dropped: Counter[str] = Counter()
        return Page([s for s in self._each(hits, dropped) if s is not None], len(hits), dropped, response)

    def _each(self, hits: Iterable[Any], dropped: Counter[str]) -> Iterable[Source | None]:
        for hit in hits:
            if not isinstance(hit, msgspec.Raw):
                yield salvage(hit, self._fields, dropped)
                continue
            try:
                yield self._plain.one(hit)
            except BROKEN:
                yield salvage(_anything(hit), self._fields, dropped)

    def _learn(self, sources: list[Source]) -> None:
        # A text that isn't printable names nothing; half a surrogate pair is one, which no Literal may hold.
        before = sum(map(len, self._known.values()))
        for name, known in self._known.items():
            known |= {text for text in {getattr(source, name) for source in sources} if text.isprintable()}
        if sum(map(len, self._known.values())) == before:
            return
        few = {name: known for name, known in self._known.items() if len(known) <= MOST_NAMES}
        self._typed = _Typed(self._fields, few)


def _anything(hit: Body | msgspec.Raw) -> Any:
    try:
        return json.loads(bytes(hit))
    except (ValueError, RecursionError):
        return None


def _with_nan(body: Body, error: Exception, *, whole: bool) -> Response[Any]:
    try:
        found = json.loads(bytes(body))
        return msgspec.convert(found if whole else {"hits": {"hits": found}}, Response[Any])
    except msgspec.ValidationError as wrong:
        raise Malformed("hits", f"a page that is no {'answer to a search' if whole else 'list of hits'}: {wrong}") from None
    except (ValueError, RecursionError):
        raise Malformed("json", f"a page that can't be read: {error}") from None
