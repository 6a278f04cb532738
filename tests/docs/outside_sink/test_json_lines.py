import numpy as np
import pytest
import tokiod_json_lines as json_lines

from tokiod.change_sink import Block
from tokiod.testing.sink_contract import SinkContract, held_of


class TestJsonLines(SinkContract):
    @pytest.fixture
    def sink(self, tmp_path):
        config = json_lines.Config(name="n", kind="json_lines", path=str(tmp_path / "rows.jsonl"))
        return lambda: json_lines.sink(config, None)

    @pytest.fixture
    def held(self, tmp_path):
        return lambda: held_of([block(one) for one in json_lines.read(tmp_path / "rows.jsonl")])

    @pytest.fixture
    def unreachable(self, tmp_path):
        return lambda: json_lines.JsonLines(tmp_path / "absent" / "rows.jsonl")


def block(fields):
    return Block(**fields | {"values": np.array(fields["values"], np.float64)}, epoch=0)
