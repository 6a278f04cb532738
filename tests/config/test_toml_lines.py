import datetime as dt
import json
import tomllib

from hypothesis import given
from hypothesis import strategies as st

from tokiod.config.toml_lines import line, places


def test_every_way_of_writing_a_key_is_found_on_its_line():
    text = '''# a site
timezone = "UTC" # [not a table]
"quoted key"."and = dotted".bare = 1
multi = """
a = "not a key"
[nor] this\\""" """""
literal = \'\'\'
b = 'nor this'\'\'\'
when = 1979-05-27 07:32:00
items = [
  1, [2, 3], # comment ]
  { x = 1, "y" = "}" },
]
empty = []
none = {}

[archive] # = x
path = 'C:\\'
sub.deep = { inline.dotted = 1 }

[[source]]
name = "a"
[source.tls]
ca = "x"
[[source.part]]
n = 1
[[source.part]]
n = 2
[[ source ]]
name = "b"
[ "source" . tls ]
ca = "y"'''
    assert places(text) == {
        ("timezone",): 2,
        ("quoted key",): 3,
        ("quoted key", "and = dotted"): 3,
        ("quoted key", "and = dotted", "bare"): 3,
        ("multi",): 4,
        ("literal",): 7,
        ("when",): 9,
        ("items",): 10,
        ("items", 0): 11,
        ("items", 1): 11,
        ("items", 1, 0): 11,
        ("items", 1, 1): 11,
        ("items", 2): 12,
        ("items", 2, "x"): 12,
        ("items", 2, "y"): 12,
        ("empty",): 14,
        ("none",): 15,
        ("archive",): 17,
        ("archive", "path"): 18,
        ("archive", "sub"): 19,
        ("archive", "sub", "deep"): 19,
        ("archive", "sub", "deep", "inline"): 19,
        ("archive", "sub", "deep", "inline", "dotted"): 19,
        ("source",): 21,
        ("source", 0): 21,
        ("source", 0, "name"): 22,
        ("source", 0, "tls"): 23,
        ("source", 0, "tls", "ca"): 24,
        ("source", 0, "part"): 25,
        ("source", 0, "part", 0): 25,
        ("source", 0, "part", 0, "n"): 26,
        ("source", 0, "part", 1): 27,
        ("source", 0, "part", 1, "n"): 28,
        ("source", 1): 29,
        ("source", 1, "name"): 30,
        ("source", 1, "tls"): 31,
        ("source", 1, "tls", "ca"): 32,
    }
    assert set(places(text)) == set(_keys(tomllib.loads(text)))


def test_a_missing_key_is_where_its_table_is():
    lines = places("\n[a]\nb = 1\n")
    assert [line(lines, key) for key in (("a", "b"), ("a", "c"), ("a", "c", 0), ("d",), ())] == [3, 2, 2, None, None]


NAMES = st.one_of(st.from_regex(r"[A-Za-z0-9_-]{1,6}", fullmatch=True), st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=6))
TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.just("\n"), max_size=12)
SCALARS = st.one_of(
    TEXTS, st.integers(-(2**31), 2**31), st.booleans(), st.floats(allow_nan=False), st.datetimes().filter(lambda time: time.year >= 1000)
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=6)
TABLES = st.dictionaries(NAMES, VALUES, max_size=4)


@given(st.dictionaries(NAMES, TABLES | st.lists(TABLES, min_size=1, max_size=3), max_size=4), st.data())
def test_lines_are_those_the_text_was_written_on(document, data):
    writer = Writer(data.draw)
    writer.document(document)
    text = "".join(writer.text)
    assert tomllib.loads(text) == document
    assert places(text) == writer.lines


class Writer:
    """Writes TOML in styles drawn at random, and notes where it put each key."""

    def __init__(self, draw):
        self.draw = draw
        self.text = []
        self.lines = {}

    def document(self, document):
        for name, content in document.items():
            self.lines[(name,)] = None
            for index, table in enumerate(content if isinstance(content, list) else [content]):
                key = (name, index) if isinstance(content, list) else (name,)
                header = f"[[{quoted(name)}]]" if isinstance(content, list) else f"[ {quoted(name)} ]"
                self.write(self.draw(st.sampled_from(["", "\n", "# [x]\n", "\r\n"])))
                self.lines[(name,)] = self.lines[(name,)] or self.line
                self.lines[key] = self.line
                self.write(header + self.draw(st.sampled_from(["\n", " # = {\n"])))
                for field, value in table.items():
                    self.pair((*key, field), value)
                    self.write("\n")

    @property
    def line(self):
        return "".join(self.text).count("\n") + 1

    def write(self, text):
        self.text.append(text)

    def pair(self, key, value):
        self.lines[key] = self.line
        self.write(quoted(key[-1]) + " = ")
        self.value(key, value)

    def value(self, key, value):
        if isinstance(value, dict):
            self.write("{")
            for index, (name, item) in enumerate(value.items()):
                self.write(", " if index else " ")
                self.pair((*key, name), item)
            self.write(" }")
        elif isinstance(value, list):
            self.write("[" + self.blank())
            for index, item in enumerate(value):
                self.write("," + self.blank() if index else "")
                self.lines[(*key, index)] = self.line
                self.value((*key, index), item)
                self.write(self.blank())
            self.write("]")
        else:
            self.write(self.scalar(value))

    def blank(self):
        return self.draw(st.sampled_from(["", " ", "\n", " # ] }\n  "]))

    def scalar(self, value):
        if isinstance(value, str):
            return self.string(value)
        if isinstance(value, dt.datetime):
            return value.isoformat(" ")
        return json.dumps(value) if value not in (float("inf"), -float("inf")) else f"{value}"

    def string(self, value):
        style = self.draw(st.sampled_from(['"', '"""', "'", "'''"]))
        if style == '"""':
            inner = value.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
            return f'"""\n{inner[:-1]}{inner[-1:].replace(chr(34), chr(92) + chr(34))}"""'
        if style == "'" and "'" not in value and "\n" not in value:
            return f"'{value}'"
        if style == "'''" and "'" not in value:
            return f"'''\n{value}'''"
        return quoted(value)


def _keys(value, key=()):
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in items:
        yield (*key, name)
        yield from _keys(item, (*key, name))


def quoted(text):
    return json.dumps(text, ensure_ascii=False)
