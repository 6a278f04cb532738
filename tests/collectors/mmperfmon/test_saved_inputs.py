import gzip
import io
import tarfile
import threading

import pytest

from collectors.mmperfmon.saved_inputs import outputs
from tokiod.errors import Fatal

FILES = {"a/1.out": b"one\n" * 100_000, "a/2.out": b"", "b.out": b"three\n"}


def archived(path, mode, files=FILES):
    with tarfile.open(path, mode) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def read(path, on_read=lambda _bytes: None):
    return [data for data, _ in outputs(path, on_read)]


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_an_archive_is_its_files(tmp_path, mode):
    assert read(archived(tmp_path / "some", mode)) == list(FILES.values())


def test_compressed_files_are_unpacked_wherever_they_are(tmp_path):
    packed = {name: gzip.compress(data) for name, data in FILES.items()}
    assert read(archived(tmp_path / "some.tar", "w", packed)) == list(FILES.values())


def test_a_file_of_several_compressed_parts_is_all_of_them(tmp_path):
    (tmp_path / "some.gz").write_bytes(gzip.compress(b"one\n" * 10**6) + gzip.compress(b"two\n") + b"\0" * 100)
    assert read(tmp_path / "some.gz") == [b"one\n" * 10**6 + b"two\n"]


def test_a_directory_is_its_files_in_order_with_those_of_its_directories(tmp_path):
    (tmp_path / "z").mkdir()
    (tmp_path / "b").write_bytes(b"2")
    (tmp_path / "z" / "a").write_bytes(b"3")
    archived(tmp_path / "a.tgz", "w:gz", {"x": b"1"})
    assert read(tmp_path) == [b"1", b"2", b"3"]


def test_all_bytes_are_reported_as_they_are_read(tmp_path):
    on_read = []
    path = archived(tmp_path / "some.tgz", "w:gz")
    read(path, on_read.append)
    assert sum(on_read) == path.stat().st_size


@pytest.mark.parametrize("damage", [lambda data: data[:-20], lambda data: data[:2000] + b"?" * 50 + data[2050:], lambda data: data[:100]])
@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_a_broken_archive_is_a_sentence_with_its_name(tmp_path, damage, mode):
    path = archived(tmp_path / "some", mode)
    path.write_bytes(damage(path.read_bytes()))
    try:
        read(path)
    except Fatal as error:
        assert str(error).startswith(f"{path}: broken: ")  # noqa: PT017 - not every damage is one to a file without sums
    else:
        assert mode == "w"


def test_an_output_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("collectors.mmperfmon.saved_inputs.MAX_OUTPUT_BYTES", 1 << 20)
    (tmp_path / "some.gz").write_bytes(gzip.compress(b"\0" * (1 << 24)))
    with pytest.raises(Fatal, match="larger than"):
        read(tmp_path / "some.gz")


def test_no_thread_is_left_when_reading_stops_early(tmp_path):
    path = archived(tmp_path / "some.tgz", "w:gz", {str(n): bytes(10**6) for n in range(30)})
    coming = outputs(path, lambda _bytes: None)
    next(coming)
    coming.close()
    assert [thread for thread in threading.enumerate() if thread.name == "unpacking"] == []
