"""`tokioctl seal` without a daemon, and what it refuses; tests/system/test_midnight.py has it with one."""

import json

import h5py
import pytest
from archive_model import COUNTER, EPOCH, NAMES, ROWS, expected, filled, held, sink_in, window
from commanded import configured, ran, source

from tokiod.archive.seal_marker import is_marked, mark
from tokiod.tts.layout import form_of, open_for_reading

SAMPLES = {name: {row: 100 * row + i + 1 for row in range(ROWS)} for i, name in enumerate(NAMES)}


@pytest.fixture
def path(tmp_path):
    sink = sink_in(tmp_path / "tts")
    sink.apply(window(SAMPLES, 0, ROWS))
    assert sink.commit() == []
    sink.close()
    return configured(tmp_path, source(), source("two", system="gs"))


def run(path, *arguments, at=EPOCH + 86400):
    return ran(path, "seal", *arguments, at=at)


def file_of(path):
    return path.parent / "tts" / "2018-01-29" / "fs.hdf5"


def form(path):
    with open_for_reading(file_of(path)) as file:
        return form_of(file)


def test_a_day_is_sealed_with_every_cell_and_sealed_again_is_said_to_be(path):
    mark(file_of(path))
    before = file_of(path).stat().st_size
    done = run(path, "2018-01-29")
    assert (done.exit_code, form(path), is_marked(file_of(path))) == (0, "sealed", False)
    assert done.stdout.startswith(f"{file_of(path)}: sealed, 0.1 MiB to 0.0 MiB")
    assert filled(held(path.parent, [COUNTER])) == {key: cells for key, cells in filled(expected(SAMPLES, 1)).items() if key[1] == COUNTER}
    assert run(path, "2018-01-29", "fs").stdout == f"{file_of(path)}: already sealed\n"
    (told,) = json.loads(run(path, "2018-01-29", "--json").stdout)
    assert told == {
        "path": str(file_of(path)), "system": "fs", "date": "2018-01-29", "was_sealed": True,
        "before": file_of(path).stat().st_size, "after": file_of(path).stat().st_size,
    }  # fmt: skip
    assert before != told["after"]


def test_a_sealed_day_before_it_that_lacks_its_last_row_is_corrected_too(path):
    """As after a kill: the samples were stored, and the day before was not reopened yet."""
    assert run(path, "2018-01-29").exit_code == 0
    sink = sink_in(path.parent / "other")
    two = {name: {row: 100 * row + i + 1 for row in range(2 * ROWS)} for i, name in enumerate(NAMES)}
    sink.apply(window(two, ROWS, 2 * ROWS))
    sink.commit()
    sink.close()
    (path.parent / "other" / "2018-01-30").rename(path.parent / "tts" / "2018-01-30")
    done = run(path, "2018-01-30", at=EPOCH + 2 * 86400)
    assert (done.exit_code, form(path), is_marked(file_of(path))) == (0, "sealed", False)
    assert filled(held(path.parent / "tts")) == filled(expected(two, 2))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["tomorrow"], "'tomorrow' is not a date; write it like 2018-01-28, or yesterday\n"),
        (["today"], "2018-01-30 is not over: its next window would reopen the files"),
        (["2018-01-30"], "2018-01-30 is not over: its next window would reopen the files"),
        (["2018-01-28"], "does not exist"),
        (["2018-01-29", "gs"], "2018-01-29/gs.hdf5"),
        (["2018-01-29", "cscratch"], "unknown system 'cscratch'; known: fs, gs"),
        (["2018-01-29", "--detach"], "--detach: no daemon runs on this archive; start it"),
        (["2018-01-29", "gss"], "unknown system 'gss', did you mean gs?"),
    ],
)
def test_what_can_not_be_sealed_is_a_sentence_with_exit_2(path, arguments, said):
    done = run(path, *arguments)
    assert (done.exit_code, said in done.stderr, form(path)) == (2, True, "live")


def test_a_file_that_is_no_tts_file_is_named(path):
    file_of(path).write_bytes(b"no HDF5")
    done = run(path, "2018-01-29")
    assert (done.exit_code, str(file_of(path)) in done.stderr) == (2, True)


def test_a_file_of_another_program_stays_as_it_is_and_the_others_are_sealed(path):
    """It was quarantined, the archive lacked it from then on; later the other systems stayed live because of it."""
    other = file_of(path).with_name("gs.hdf5")
    with h5py.File(other, "w") as file:
        file["datatargets/readbytes"] = [[1.0]]
    before = other.read_bytes()
    alone, done = run(path, "2018-01-29", "gs"), run(path, "2018-01-29")
    why = f"main: {other}: another program made it, and tokiod seals only its own files\n"
    assert (alone.exit_code, alone.stdout, alone.stderr) == (2, "", why)
    assert (done.exit_code, done.stderr, form(path)) == (2, why, "sealed")
    assert done.stdout.startswith(f"{file_of(path)}: sealed, ")
    again = run(path, "2018-01-29", "--json")
    assert (again.exit_code, again.stderr, [one["system"] for one in json.loads(again.stdout)]) == (2, why, ["fs"])
    assert (sorted(other.parent.glob("*.hdf5*")), other.read_bytes()) == ([file_of(path), other], before)


def test_a_directory_in_the_files_place_is_a_sentence(path):
    file_of(path).unlink()
    file_of(path).mkdir()
    done = run(path, "2018-01-29")
    assert (done.exit_code, done.stderr) == (2, f"main: {file_of(path)}: Is a directory\n")
