"""docs/json says what --json prints, and what is printed is that."""

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest
from commanded import configured, ledger_of, ran

from docs.generate.json_schemas import PRINTED, schemas, write
from tokiod.batch import Batch
from tokiod.cli.commands.tail import _json
from tokiod.ledger.ledger import StoredEntry
from tokiod.subscribe.subscriber import Update
from tokiod.window import Window
from tokiod.window_data import WindowMeta

DIRECTORY = Path(__file__).parents[3] / "docs" / "json"
NOON = 1_517_184_000 + 12 * 3600


def test_the_schemas_are_those_of_what_is_printed():
    assert {path.name: path.read_text() for path in DIRECTORY.iterdir()} == schemas(), "run `make docs`"


def test_every_field_that_is_printed_is_in_the_schema_by_its_name(tmp_path):
    write(tmp_path)
    for command, printed in PRINTED.items():
        if getattr(printed, "__origin__", None) is dict:  # its keys have names of their own
            continue
        schema = json.loads((tmp_path / f"{command}.json").read_text())
        struct = getattr(printed, "__args__", [printed])[0]
        assert {field.encode_name for field in msgspec.inspect.type_info(struct).fields} <= set(
            schema["$defs"][struct.__name__]["properties"]
        )


@pytest.mark.parametrize("command", ["status", "gaps"])
def test_what_is_printed_of_a_ledger_is_what_the_schema_says(tmp_path, command):
    path = configured(tmp_path)
    with ledger_of(path) as ledger:
        ledger.store(
            [StoredEntry(WindowMeta("one", "lmt", "fs", Window(NOON - 600, NOON - 540), records=700, dropped={"odd": 3}), 600)], NOON
        )
        ledger.failed("one", Window(NOON - 540, NOON - 480), "Transient", "no route to host", 3, NOON + 90, NOON)
        done = ran(path, command, "--json", at=NOON + 30)
    told = msgspec.json.decode(done.stdout, type=PRINTED[command])
    assert json.loads(msgspec.json.encode(told)) == json.loads(done.stdout)
    names = set(json.loads(done.stdout)) if command == "status" else set(json.loads(done.stdout)[0])
    assert names <= set(schemas_of(command)["properties"])


def schemas_of(command):
    schema = json.loads(schemas()[f"{command}.json"])
    reference = schema.get("$ref") or schema["items"]["$ref"]
    return schema["$defs"][reference.rpartition("/")[2]]


def test_a_line_of_tail_is_what_its_schema_says(capsys):
    cells = Batch("datatargets/readbytes", "gauge", 5, ("a", "b"), np.array([0, 5]), np.array([0, 1], np.uint32), np.array([1.5, np.nan]))
    _json(Update("fs", cells, 60))
    line = json.loads(capsys.readouterr().out)
    assert json.loads(msgspec.json.encode(msgspec.convert(line, PRINTED["tail"]))) == line
    assert line["cells"] == [[0, "a", 1.5], [5, "b", None]]
    assert set(line) == set(schemas_of("tail")["properties"])
