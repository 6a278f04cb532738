"""config/constraints.txt pins every dependency, with hashes, at a version that pyproject.toml permits."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PINNED = dict(re.findall(r"^([a-z0-9-]+)==([^ ;]+)", (ROOT / "config" / "constraints.txt").read_text(), re.MULTILINE))


READER = tomllib.loads((ROOT / "reader" / "pyproject.toml").read_text())["project"]
EXTRAS = {name: texts for name, texts in PROJECT["optional-dependencies"].items() if name not in {"test", "release"}}
OWN = {"tokiod", "collectors", "sinks"}
DISTRIBUTIONS = {"zmq": "pyzmq"}
"""Of modules with another name."""


def imported():
    """Return the top-level modules that the packages import, anywhere in a module, beside their own and the standard library's."""
    found = set()
    for path in (path for package in OWN for path in (ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            modules = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module] if isinstance(node, ast.ImportFrom) and not node.level else []
            found |= {module.partition(".")[0] for module in modules}
    return found - OWN - sys.stdlib_module_names


def test_every_import_is_declared():
    declared = {Requirement(text).name.lower() for text in (*PROJECT["dependencies"], *(one for of in EXTRAS.values() for one in of))}
    assert {DISTRIBUTIONS.get(name, name.replace("_", "-")) for name in imported()} - declared == set()


@pytest.mark.parametrize("text", [*PROJECT["dependencies"], *(one for of in EXTRAS.values() for one in of)])
def test_a_dependency_has_a_lower_bound(text):
    assert [one.operator for one in Requirement(text).specifier] == [">="]


def test_the_reader_alone_has_the_same_bounds():
    for name, texts in READER["optional-dependencies"].items():
        assert set(texts) <= set(EXTRAS[name])
    bounds = {one.name: one.specifier for one in map(Requirement, PROJECT["dependencies"])}
    assert [one.name for one in map(Requirement, READER["dependencies"]) if one.specifier != bounds[one.name]] == []


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
