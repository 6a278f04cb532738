"""What collectors of saved files share."""

import asyncio
import gzip
import threading

import pytest

from tokiod.errors import Fatal, TokiodError
from tokiod.toolkit import saved_files as saved
from tokiod.toolkit.saved_files import Loading, content, readable


def test_inputs_that_can_be_read_are_paths_and_others_are_errors(tmp_path):
    (tmp_path / "a").write_text("x")
    assert readable([str(tmp_path / "a"), tmp_path / "a"]) == [tmp_path / "a"] * 2
    with pytest.raises(TokiodError, match="none can't be read: No such file or directory"):
        readable([tmp_path / "a", tmp_path / "none"])
    with pytest.raises(TokiodError, match="can't be read: Is a directory"):
        readable([tmp_path])
    assert readable([tmp_path], directories=True) == [tmp_path]


@pytest.mark.parametrize(
    "packed",
    [
        b"text",
        gzip.compress(b"text", mtime=0),
        gzip.compress(b"te", mtime=0) + gzip.compress(b"xt", mtime=0),
        gzip.compress(b"text", mtime=0) + b"\0" * 9,
    ],
)
def test_a_file_is_read_whole_however_it_is_packed(tmp_path, packed):
    (tmp_path / "a").write_bytes(packed)
    assert content(tmp_path / "a") == b"text"


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (gzip.compress(b"text" * 99, mtime=0)[:-9], "truncated gzip data"),
        (b"\x1f\x8bxxxxxxxxxxxx", "damaged gzip data"),
        (gzip.compress(b"x", mtime=0) + b"more text", "damaged gzip data"),
    ],
)
def test_a_compressed_file_that_is_damaged_is_an_error(tmp_path, data, sentence):
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(Fatal, match=sentence):
        content(tmp_path / "a")


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_that_is_too_large_is_refused_before_the_memory_is_full(tmp_path, monkeypatch, packed):
    monkeypatch.setattr(saved, "MAX_WHOLE_BYTES", 1000)
    data = b"x" * 5000
    (tmp_path / "a").write_bytes(gzip.compress(data, mtime=0) if packed else data)
    with pytest.raises(Fatal, match="save it in smaller pieces"):
        content(tmp_path / "a")


def test_a_value_is_read_once_though_the_first_caller_was_cancelled():
    going, calls = threading.Event(), []

    def load():
        calls.append(1)
        assert going.wait(50)
        return "all"

    async def scenario():
        loading = Loading(load)
        first = asyncio.ensure_future(loading.loaded())
        await asyncio.sleep(0.05)
        first.cancel()
        await asyncio.wait({first})
        going.set()
        return await loading.loaded(), await loading.loaded(), await loading.close(), await loading.close()

    assert (asyncio.run(scenario()), calls) == (("all", "all", "all", None), [1])


def test_what_reading_raised_is_raised_for_all_and_not_by_close():
    def load():
        raise Fatal("broken")

    async def scenario():
        loading = Loading(load)
        for _ in range(2):
            with pytest.raises(Fatal, match="broken"):
                await loading.loaded()
        return await loading.close()

    assert asyncio.run(scenario()) is None


def test_a_file_that_says_a_terabyte_is_refused_before_it_is_read(tmp_path):
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(Fatal, match="larger than 64 MiB; save it in smaller pieces"):
        content(tmp_path / "sparse")
