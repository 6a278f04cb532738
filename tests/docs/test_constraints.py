"""config/constraints.txt pins every dependency, with hashes, at a version that pyproject.toml permits."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PINNED = dict(re.findall(r"^([a-z0-9-]+)==([^ ;]+)", (ROOT / "config" / "constraints.txt").read_text(), re.MULTILINE))


@pytest.mark.parametrize("text", [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["plot"]])
def test_a_dependency_is_pinned_at_a_permitted_version(text):
    requirement = Requirement(text)
    assert PINNED[requirement.name.lower()] in requirement.specifier


def test_every_pinned_package_has_a_hash():
    entries = re.split(r"^(?=[a-z0-9-]+==)", (ROOT / "config" / "constraints.txt").read_text(), flags=re.MULTILINE)
    assert [entry.split("==")[0] for entry in entries if entry.strip() and "--hash=sha256:" not in entry] == []


@pytest.mark.parametrize(
    ("name", "vulnerable"),
    [("aiohttp", "3.14.3"), ("apsw", "3.53.2.0"), ("h5py", "3.14.0"), ("msgspec", "0.21.0"), ("urllib3", "2.6.2")],
)
def test_the_last_version_with_a_known_vulnerability_is_not_permitted(name, vulnerable):
    (requirement,) = (one for one in map(Requirement, PROJECT["dependencies"]) if one.name == name)
    assert vulnerable not in requirement.specifier
