"""Saved pages cut out of files: at any size of buffer, whatever stands in their texts, and never in part."""

import gzip
import itertools
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.collectd_es import saved_inputs as module
from collectors.collectd_es.saved_inputs import Brackets, is_packed, joined, pieces
from tokiod.errors import Fatal

NASTY = ["],[", "]", '"],["', "\\", '\\"],[', "}]},{", '{"hits":{"hits":[', "é\u2028", "] , [", ""]
HITS = [{"_id": f"{n}", "sort": [n, [n]], "_source": {"plugin": text, "value": n, "inner": [[n], [n + 1]]}} for n, text in enumerate(NASTY)]
PAGES = [HITS[:3], HITS[3:4], [], HITS[4:]]
ANSWERS = [{"_scroll_id": "x", "hits": {"total": 3, "hits": page}, "aggregations": {"a": {}}} for page in PAGES]


@pytest.fixture
def sized(monkeypatch):
    """Sets the size of the buffer, and what is looked at again at its edge."""

    def set_to(read):
        monkeypatch.setattr(module, "READ_BYTES", read)
        monkeypatch.setattr(module, "LOOKAHEAD_BYTES", 128)
        monkeypatch.setattr(module, "HITS_PAGE_BYTES", 100)

    return set_to


def values(path, **how):
    """The JSON values of a file's pieces; of bare hits one list. A piece that is no JSON is joined to the next, as parse_workers does."""
    found, waiting = [], None
    for piece in pieces(path, **how):
        waiting = piece if waiting is None else joined([waiting, piece])
        data = waiting.data if waiting.data is not None else path.read_bytes()[waiting.start : waiting.stop]
        try:
            found.append(json.loads(b"[" + data + b"]" if waiting.form == "hits" else data))
        except ValueError:
            continue
        waiting = None
    if waiting is not None:
        raise Fatal("no JSON")
    return found


def written(values, indent=None, separators=None):
    return json.dumps(values, indent=indent, separators=separators, ensure_ascii=False).encode()


TEXTS = {
    "pages": (written(PAGES), PAGES),
    "pages without blanks": (written(PAGES, separators=(",", ":")), PAGES),
    "pages in lines": (b" \n" + written(PAGES, indent=1) + b"\n", PAGES),
    "pages with blanks": (b"[" + b" ,\r\n\t".join(map(written, PAGES)) + b" ] \n", PAGES),
    "one page": (written([HITS]), [HITS]),
    "answers in a list": (written(ANSWERS), ANSWERS),
    "answers in a list, in lines": (written(ANSWERS, indent=1), ANSWERS),
    "answers line by line": (b"\n".join(map(written, ANSWERS)) + b"\n", ANSWERS),
    "answers one after another": (b"".join(map(written, ANSWERS)), ANSWERS),
    "one answer": (written(ANSWERS[0]), ANSWERS[:1]),
    "no pages": (b"[]", []),
    "empty pages": (b"[[],[] , []]", [[], [], []]),
}


@pytest.mark.parametrize("name", TEXTS)
def test_pages_are_the_same_with_any_size_of_buffer(name, sized, tmp_path):
    text, wanted = TEXTS[name]
    path = tmp_path / "pages"
    path.write_bytes(text)
    for read in (*range(1, 65), 1000, 1 << 20):
        sized(read)
        assert values(path) == wanted, read
        assert values(path, copied=False) == wanted, read


@pytest.mark.parametrize("indent", [None, 1])
def test_bare_hits_are_cut_into_pages_without_losing_one(indent, sized, tmp_path):
    path = tmp_path / "hits.json"
    path.write_bytes(written(HITS, indent))
    for read in (*range(1, 65), 1000, 1 << 20):
        sized(read)
        found = values(path)
        assert list(itertools.chain.from_iterable(found)) == HITS, read
        assert len(found) > 1


@pytest.mark.parametrize("name", TEXTS)
def test_gzip_is_known_by_its_content_also_in_several_members(name, sized, tmp_path):
    text, wanted = TEXTS[name]
    path = tmp_path / "pages.json"
    half = len(text) // 2
    path.write_bytes(gzip.compress(text[:half]) + gzip.compress(b"") + gzip.compress(text[half:]))
    assert is_packed(path)
    for read in (1, 2, 7, 64, 1 << 20):
        sized(read)
        assert values(path) == wanted, read


json_values = st.recursive(
    st.none() | st.integers() | st.text(max_size=5) | st.sampled_from(NASTY),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | st.sampled_from(NASTY), inner, max_size=3),
    max_leaves=8,
)
hits = st.dictionaries(st.text(max_size=3), json_values, max_size=3)


@given(st.lists(st.lists(hits, max_size=4), max_size=4), st.integers(1, 200), st.sampled_from([None, 0, 2]))
def test_any_json_in_the_pages_leaves_them_whole(tmp_path_factory, wanted, read, indent):
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_bytes(written(wanted, indent))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "READ_BYTES", read)
        patch.setattr(module, "LOOKAHEAD_BYTES", 64)
        assert values(path) == wanted


@pytest.mark.parametrize("name", [name for name in TEXTS if "line by line" not in name and "one after another" not in name])
@pytest.mark.parametrize("packed", [False, True])
def test_a_file_that_is_cut_off_anywhere_is_an_error(name, packed, sized, tmp_path):
    sized(512)
    text = gzip.compress(TEXTS[name][0]) if packed else TEXTS[name][0].rstrip()
    path = tmp_path / "pages"
    for length in range(0, len(text), 1 + len(text) // 250):
        path.write_bytes(text[:length])
        with pytest.raises(Fatal):
            values(path)


def test_answers_in_a_row_lose_their_end_unnoticed_only_between_two(sized, tmp_path):
    sized(512)
    text, path = b"\n".join(map(written, ANSWERS)), tmp_path / "lines"
    ends = set(itertools.accumulate(len(written(answer)) + 1 for answer in ANSWERS))
    for length in range(1, len(text)):
        path.write_bytes(text[:length])
        if length in ends or length + 1 in ends:
            assert values(path) == ANSWERS[: len(values(path))] != []
        else:
            with pytest.raises(Fatal):
                values(path)


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        (b"", "byte 0: expected saved pages"),
        (b" \n ", "byte 3: expected saved pages"),
        (b"17", "byte 0: expected saved pages"),
        (b"[1,2]", "byte 1: expected saved pages"),
        (b"plainly no JSON", "byte 0: expected saved pages"),
        (b"[] []", "byte 3: unexpected data after the end of the list"),
        (b"[[],[", "truncated in the page that begins at byte 4"),
    ],
)
def test_a_file_that_holds_something_else_is_refused_with_its_place(text, fields, tmp_path):
    path = tmp_path / "other.json"
    path.write_bytes(text)
    with pytest.raises(Fatal, match=fields) as caught:
        values(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_broken_gzip_is_refused(tmp_path):
    packed = bytearray(gzip.compress(written(PAGES)))
    packed[30] ^= 0xFF
    path = tmp_path / "pages.json.gz"
    path.write_bytes(packed)
    with pytest.raises(Fatal, match="damaged gzip data"):
        values(path)
    path.write_bytes(gzip.compress(written(PAGES)) + b"junk")
    with pytest.raises(Fatal, match="damaged gzip data"):
        values(path)


def test_pieces_say_where_they_stand_and_how_much_of_the_file_was_read(tmp_path):
    path, on_read = tmp_path / "pages.json", []
    text = written(PAGES)
    path.write_bytes(text)
    for piece in pieces(path, on_read.append):
        assert piece.data == text[piece.start : piece.stop]
    assert sum(on_read) == len(text)
    assert all(piece.data is None for piece in pieces(path, copied=False))


def test_memory_does_not_grow_with_the_file(sized, tmp_path):
    sized(4096)
    path, chance = tmp_path / "pages.json", random.Random(1)
    page = written([{"_id": chance.random()} for _ in range(50)])
    path.write_bytes(b"[" + b",".join([page] * 2000) + b"]")
    largest = 0
    original = module.Sliding
    made = []
    module.Sliding = lambda *given, **find_id: made.append(original(*given, **find_id)) or made[-1]
    try:
        largest = max(len(piece.data) for piece in pieces(path))
    finally:
        module.Sliding = original
    assert largest == len(page)
    assert len(made[0].data) <= 2 * (4096 + 2 * len(page))


@given(
    st.recursive(st.text(alphabet='a"\\[]{},', max_size=8) | st.none(), lambda inner: st.lists(inner, max_size=4), max_leaves=20), st.data()
)
def test_brackets_are_balanced_at_the_end_of_a_document_and_nowhere_before(document, data):
    text = json.dumps([document]).encode()
    brackets, place = Brackets(), 0
    while place < len(text):
        end = data.draw(st.integers(place + 1, len(text)))
        brackets.add(text[place:end])
        place = end
        assert brackets.balanced == (place == len(text))
