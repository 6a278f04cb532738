"""Archives as the module tarfile writes them, and what no archive may do."""

import io
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokiod.toolkit import tar_stream
from tokiod.toolkit.tar_stream import BrokenTar, members

MAX = 1 << 20
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0/"), min_size=1, max_size=200)


def archived(files, tar_format=tarfile.GNU_FORMAT):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tar_format) as archive:
        for name, data in files:
            archive.addfile(member(name, size=len(data)), io.BytesIO(data))
    return out.getvalue()


def member(name="x", **values):
    found = tarfile.TarInfo(name)
    for key, value in values.items():
        setattr(found, key, value)
    return found


def header(name="x", tar_format=tarfile.GNU_FORMAT, **values):
    return member(name, **values).tobuf(tar_format)


def read(data):
    return [(member.name, b"".join(member.data)) for member in members(io.BytesIO(data).read, MAX)]


@given(st.lists(st.tuples(NAMES, st.binary(max_size=2000))), st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]))
def test_the_files_of_an_archive_come_in_order_with_their_names(files, tar_format):
    assert read(archived(files, tar_format)) == files


def test_a_name_in_two_fields_is_one_and_directories_are_left_out():
    name = "a" * 120 + "/" + "b" * 90
    assert read(header("d", tarfile.USTAR_FORMAT, type=tarfile.DIRTYPE) + archived([(name, b"1")], tarfile.USTAR_FORMAT)) == [(name, b"1")]


def test_what_is_not_read_of_a_file_is_skipped():
    found = [member.name for member in members(io.BytesIO(archived([("a", b"1" * 5000), ("b", b"2")])).read, MAX)]
    assert found == ["a", "b"]


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (header(type=tarfile.SYMTYPE, linkname="/etc"), "member x is a symbolic link: only files and directories are read"),
        (header(type=tarfile.LNKTYPE, linkname="y"), "member x is a hard link"),
        (header(type=tarfile.FIFOTYPE), "member x is a FIFO"),
        (header(type=tarfile.CHRTYPE), "member x is a device"),
        (header(type=tarfile.GNUTYPE_SPARSE), "member x is a sparse file"),
        (header(type=b"z", size=1 << 36), "member x is of the unknown type b'z'"),
        (header(size=(1 << 62)), "member x claims 4611686018427387904 bytes: at most 1 MiB are read"),
        (header(size=-5), "member x claims -5 bytes"),
        (header(type=b"L", size=1 << 29), "an extended header claims 536870912 bytes: at most 64 KiB are read"),
        (header(type=b"x", size=1 << 17), "an extended header claims 131072 bytes"),
        (header(type=b"x", size=40_000) + b"1" * 40_000, "damaged extended header"),
        (header(type=b"x", size=18) + b"18 GNU.sparse.a=1\n".ljust(512, b"\0") + header(), "member x is a sparse file"),
        (header(type=b"x", size=11) + b"11 size=-1\n".ljust(512, b"\0") + header(), "damaged extended header"),
        (header(size=9) + b"12345", "it is truncated"),
        (header()[:400], "it is truncated"),
        (header() + b"?" * 512, "damaged header"),
    ],
)
def test_no_other_archive_is_read(data, sentence):
    with pytest.raises(BrokenTar) as error:
        read(data)
    assert sentence in str(error.value)


def test_headers_and_bytes_have_a_limit(monkeypatch):
    monkeypatch.setattr(tar_stream, "MAX_HEADERS", 3)
    with pytest.raises(BrokenTar, match="more than 3 headers"):
        read(archived([("a", b"")] * 4))
    monkeypatch.setattr(tar_stream, "MAX_ARCHIVE_BYTES", 10)
    with pytest.raises(BrokenTar, match="larger than 0 GiB: split it"):
        read(archived([("a", b"123456")] * 2))


@given(st.binary(max_size=600), st.integers(0, 2000))
def test_damage_is_an_error_or_other_data(junk, place):
    data = archived([("a", b"1" * 600), ("b", b"2")])
    try:
        read(data[:place] + junk + data[place + len(junk) :])
    except BrokenTar as error:
        assert str(error)  # noqa: PT017 - not every damage is one
