"""The systems and files of a template."""

from tokiod.path_template import files_of, systems_of


def test_the_systems_of_a_template_are_those_that_have_files(tmp_path):
    for name in ("2018-01-28/fs.hdf5", "2018-01-28/other.x.hdf5", "2018-01-29/fs.hdf5", "2018-01-29/.fs.hdf5.tmp", "2018-01-29/fs.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert systems_of(f"{tmp_path}/%Y-%m-%d/{{system}}.hdf5") == {"fs", "other.x"}
    assert systems_of(f"{tmp_path}/%Y-%m-%d/fs.hdf5") == set()
    (tmp_path / "a" / "2018").mkdir(parents=True)
    (tmp_path / "a" / "2018" / "a.hdf5").touch()
    assert systems_of(f"{tmp_path}/{{system}}/%Y/{{system}}.hdf5") == {"a"}


def test_a_directory_may_have_the_name_of_a_pattern(tmp_path):
    root = tmp_path / "tts [old] *?"
    (root / "[1]").mkdir(parents=True)
    (root / "[1]" / "2018.hdf5").touch()
    (root / "1").mkdir()
    (root / "1" / "2018.hdf5").touch()
    assert list(files_of(f"{root}/[1]/%Y.hdf5")) == [root / "[1]" / "2018.hdf5"]
