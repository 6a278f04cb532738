"""docs/configuration.md tells every option, in the words of the files in config/."""

from pathlib import Path

import msgspec
import pytest

from docs.generate.configuration import explained, settings
from tokiod.collector import SourceConfig
from tokiod.config import plugins
from tokiod.config.load import Config

ROOT = Path(__file__).parents[3]


def test_the_page_is_as_make_docs_makes_it():
    assert (ROOT / "docs" / "configuration.md").read_text("utf-8") == settings(ROOT / "config"), "run `make docs`"


def test_every_option_of_every_kind_is_on_the_page():
    text = (ROOT / "docs" / "configuration.md").read_text("utf-8")
    for struct in (Config, SourceConfig, *(plugins.load(kind).Config for kind in plugins.kinds())):
        for field in msgspec.structs.fields(struct):
            assert f"| `{field.name}` |" in text or f"## [{field.name}]" in text or f"## [[{field.name}]]" in text, field.name


def test_keys_in_a_row_share_their_comment_and_a_key_in_a_comment_is_another_way():
    text = "# Head.\n\n# All of it.\n[t]\n# Two\n# lines:\n# other = 1\none = 1\n#two = 2\n\nthree = 3\n# Four.\nfour = 4\n"
    assert explained(text) == {
        ("t", ""): "All of it.",
        ("t", "other"): "Two lines:",
        ("t", "one"): "Two lines:",
        ("t", "two"): "Two lines:",
        ("t", "three"): "",
        ("t", "four"): "Four.",
    }


def test_an_option_that_no_file_explains_is_an_error(tmp_path):
    for path in (ROOT / "config").glob("*.toml"):
        (tmp_path / path.name).write_text("".join(line for line in path.read_text().splitlines(keepends=True) if "mdt_names" not in line))
    with pytest.raises(KeyError, match=r"source\.mdt_names has no comment"):
        settings(tmp_path)
