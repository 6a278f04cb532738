import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tokiod.config import convert, plugins
from tokiod.config.convert import Fault, build, fields, label, secrets_in_urls
from tokiod.config.schema import Config
from tokiod.units import Duration, Size


class Part(msgspec.Struct, kw_only=True):
    n: int
    size: Size = Size(1)

    def __post_init__(self):
        if self.n == 13:
            raise ValueError("13 is bad luck")


class Whole(msgspec.Struct, kw_only=True):
    name: str
    span: Duration = Duration(1)
    part: Part = msgspec.field(default_factory=lambda: Part(n=0))
    where: Path = Path()
    odd: complex | None = None


@pytest.mark.parametrize("struct", [Whole, Part, Config, *(plugins.load(kind).Config for kind in plugins.kinds())])
def test_the_fields_of_a_struct_are_those_that_msgspec_knows(struct):
    expected = [(one.name, one.encode_name, one.required, one.type) for one in msgspec.structs.fields(struct)]
    assert [(one.name, one.key, one.required, one.annotation) for one in convert._fields(struct).values()] == expected


def test_what_is_fine_is_kept_beside_what_is_not():
    values, faults = fields({"name": "x", "span": 3, "part": {"n": 1, "size": "2 KiB"}, "where": "/x", "nam": 1}, Whole, ("top",))
    assert values == {"name": "x", "part": Part(n=1, size=Size(2048)), "where": Path("/x")}
    assert faults == [
        Fault(("top", "nam"), "unknown key, did you mean name?"),
        Fault(("top", "span"), 'expected a time span, written like "30s", "5m", "1h" or "90d", got 3, did you mean "3s"?'),
    ]


def test_a_table_within_a_table_tells_all_its_faults():
    values, faults = fields({"name": "x", "part": {"m": 1, "size": True}}, Whole, ())
    assert values == {"name": "x"}
    assert faults == [
        Fault(("part", "m"), "unknown key"),
        Fault(("part", "n"), "missing"),
        Fault(("part", "size"), 'expected a size, written like "64 MiB" or "1 GB", got true'),
    ]


def test_of_a_table_with_a_fault_the_rest_is_kept():
    assert fields({"name": "x", "part": {"n": 1, "size": 3, "x": 0}}, Whole, ()) == (
        {"name": "x", "part": Part(n=1)},
        [
            Fault(("part", "x"), "unknown key"),
            Fault(("part", "size"), 'expected a size, written like "64 MiB" or "1 GB", got 3, did you mean "3 B"?'),
        ],
    )


def test_a_type_that_toml_cant_say_is_a_fault_and_no_crash():
    assert fields({"name": "x", "where": 1, "odd": "1j"}, Whole, ()) == (
        {"name": "x"},
        [Fault(("where",), "expected Path, got an integer"), Fault(("odd",), "expected complex, got text in quotes")],
    )


def test_what_a_struct_refuses_itself_is_a_fault_of_its_table():
    assert build(Part, {"n": 13}, ("part",)) == (None, [Fault(("part",), "13 is bad luck")])
    assert build(Part, {}, ("part",)) == (None, [])
    assert fields({"name": "x", "part": {"n": 13}}, Whole, ()) == ({"name": "x"}, [Fault(("part",), "13 is bad luck")])


def test_a_field_with_a_shape_of_its_own_is_converted_by_it():
    def own(value, key):
        return (None, [Fault(key, "seen")]) if value == "bad" else (value.upper(), [])

    assert fields({"name": "x"}, Whole, (), {"name": own}) == ({"name": "X"}, [])
    assert fields({"name": "bad"}, Whole, (), {"name": own}) == ({}, [Fault(("name",), "seen")])


def test_keys_are_written_as_toml_writes_them():
    assert [label(key) for key in ((), ("a", "b"), ("ops", 2, "x"), ("a b", "c\n"))] == ["", "a.b", "ops[2].x", '"a b"."c\\n"']


def test_urls_without_a_secret_are_left_alone():
    fine = ["mysql://user@host:3306/db", "sqlite:///a:b@c", "http://[::1]:9200/a@b?tokens=1", "x:y@z", "", "a password", "http://[broken"]
    assert list(secrets_in_urls({"urls": fine}, ())) == []


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="?#@[]\t\r\n"), min_size=1))
@example("/")
@example("/x")
@example("a/b")
def test_a_password_in_a_url_is_found_whatever_is_in_it(password):
    # Digits and a slash look like a host, its port and a path: nobody can tell them from "http://host:9200/a@b".
    assume(not re.match(r"[0-9]{1,5}/", password))
    assert [fault.key for fault in secrets_in_urls({"x": [f"mysql://user:{password}@host/db"]}, ("source",))] == [("source", "x", 0)]
