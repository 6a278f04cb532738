"""The section [site]: which system a path is on, where the archive was, and what its mistakes are."""

import pytest

from tokiod.config.load import load
from tokiod.errors import ConfigError

HEAD = """\
timezone = "UTC"
[archive]
path = "/tts/%Y-%m-%d/{system}.hdf5"
[site]
"""


def loaded(tmp_path, text):
    path = tmp_path / "tokiod.toml"
    path.write_text(HEAD + text)
    return load(path)


def test_a_site_without_the_section_runs_the_sacct_in_the_path_and_has_one_archive(tmp_path):
    config = loaded(tmp_path, "")
    assert (config.site.sacct, config.templates, config.systems) == (("sacct",), ("/tts/%Y-%m-%d/{system}.hdf5",), frozenset())


def test_the_first_expression_that_matches_the_beginning_of_a_path_gives_its_system(tmp_path):
    site = loaded(tmp_path, 'mounts = { "/global/c.*1" = "cscratch", "/global" = "project" }\nnames = { hpss = "Tape" }\n').site
    paths = ["/global/cscratch1/ann", "/global/project", "/home/global", ""]
    assert [site.system_of(path) for path in paths] == ["cscratch", "project", None, None]
    assert site.systems == {"cscratch", "project", "hpss"}


def test_the_archive_comes_before_where_it_was(tmp_path):
    old = "/old/{system}/%Y-%m-%d.hdf5"
    assert loaded(tmp_path, f'archives = ["{old}"]').templates == ("/tts/%Y-%m-%d/{system}.hdf5", old)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('mounts = { "(" = "x" }', 'mounts."(": not a regular expression: missing ), unterminated subpattern at position 0'),
        ('mounts = { "/a" = "/a" }', "mounts.\"/a\": expected letters, digits, '_', '.' and '-', a letter or digit first, got '/a'"),
        ('names = { "a b" = "A" }', "names.\"a b\": expected letters, digits, '_', '.' and '-', a letter or digit first, got 'a b'"),
        ("sacct = []", 'sacct: expected a program and its options, as in ["/usr/bin/sacct"]'),
        ('sacct = ["ssh", ""]', 'sacct: expected a program and its options, as in ["/usr/bin/sacct"]'),
        ('sacct = "sacct"', "sacct: expected an array, got text in quotes"),
        ('archives = ["/old/%Y/{system}"]', "archives[0]: no file for each day: 2024-01-01"),
        ('mount = { "/a" = "a" }', "mount: unknown key, did you mean mounts?"),
    ],
)
def test_mistakes_are_reported_with_their_key(tmp_path, text, fault):
    with pytest.raises(ConfigError) as raised:
        loaded(tmp_path, text)
    (found,) = raised.value.faults
    assert found.startswith(f"{tmp_path}/tokiod.toml:5: site: {fault}"), found
