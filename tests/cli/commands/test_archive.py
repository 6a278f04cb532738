"""`tokioctl archive`: what goes in comes out, once, whatever the order; and every mistake is a sentence."""

import json
import os
from contextlib import closing
from pathlib import Path

import h5py
import numpy as np
import pytest
from click.testing import CliRunner

import collectors
from tokiod.cli.tokioctl import main
from tokiod.simulator.compare import compare
from tokiod.simulator.lmt.database import Database
from tokiod.simulator.lmt.expected import Answers
from tokiod.simulator.site import Site
from tokiod.window import Window

STEP = 5
NOON = 1_517_184_000 + 12 * 3600
"""2018-01-29T12:00:00Z."""
HOUR = 720


def database(path, site, steps):
    with closing(Database(path, site)) as made:
        made.fill(steps)
    return path


@pytest.fixture(scope="module")
def site():
    return Site(epoch=NOON, timezone="UTC", osts=5, osss=3, mdts=2)


@pytest.fixture(scope="module")
def copy(site, tmp_path_factory):
    """A saved copy that holds an hour and ten minutes from noon."""
    return database(tmp_path_factory.mktemp("copy") / "lmt.sqlite3", site, HOUR + 120)


@pytest.fixture
def out(tmp_path):
    return tmp_path / "day.hdf5"


def run(*arguments):
    result = CliRunner().invoke(main, ["archive", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def archived(copy, out, start, end, *options):
    code, _, err = run("lmt", copy, "--output", out, "--start", start, "--end", end, *options)
    # Steps at which a server of the simulated site is away are counted.
    assert (code, [line for line in err.splitlines() if ": step without a row of " not in line]) == (0, [])


def contents(path):
    """Return every value with its bits, every attribute but `updated` and references, of everything but what is only tokiod's."""
    found = {}
    with h5py.File(path, "r") as file:
        found["/"] = {name: file.attrs[name] for name in sorted(file.attrs)}
        for group in (g for g in file if not g.startswith("_")):
            for name, node in file[group].items():
                attributes = {a: np.asarray(node.attrs[a]) for a in sorted(node.attrs) if a != "updated"}
                attributes = {a: value.tolist() for a, value in attributes.items() if not value.dtype.hasobject}
                found[f"{group}/{name}"] = (node.dtype, node.shape, node[...].tobytes(), attributes)
    return found


# ---- what goes in comes out


def test_every_cell_of_the_span_is_the_simulators_also_the_last_which_needs_the_sample_behind_it(site, copy, out):
    archived(copy, out, "2018-01-29T12:00:00", "2018-01-29T13:00:00")
    comparison = compare(out, Answers(site, [Window(NOON, NOON + 3600 + STEP)]))
    assert comparison.differences == []
    assert comparison.filled > HOUR * 20


SPANS = {
    "two halves": [("12:00:00", "12:30:00"), ("12:30:00", "13:00:00")],
    "two halves, the later first": [("12:30:00", "13:00:00"), ("12:00:00", "12:30:00")],
    "three parts, the middle last": [("12:00:00", "12:17:35"), ("12:17:40", "13:00:00"), ("12:17:35", "12:17:40")],
    "one part twice": [("12:00:00", "13:00:00"), ("12:00:00", "13:00:00")],
    "parts that overlap": [("12:00:00", "12:40:00"), ("12:20:00", "13:00:00")],
}


@pytest.mark.parametrize("name", SPANS)
def test_a_file_that_is_filled_in_parts_is_in_the_end_the_one_that_was_filled_at_once(copy, out, tmp_path, name):
    whole = ("--init-start", "2018-01-29T12:00:00", "--init-end", "2018-01-29T13:00:00")
    once = tmp_path / "once.hdf5"
    archived(copy, once, "2018-01-29T12:00:00", "2018-01-29T13:00:00")
    for number, (start, end) in enumerate(SPANS[name]):
        archived(copy, out, f"2018-01-29T{start}", f"2018-01-29T{end}", *(whole if number == 0 else ()))
    assert contents(out) == contents(once)


def test_a_file_may_span_more_than_what_is_archived_the_rest_is_missing(site, copy, out):
    wide = ("--init-start", "2018-01-29T00:00:00", "--init-end", "2018-01-30T00:00:00")
    archived(copy, out, "2018-01-29T12:10:00", "2018-01-29T12:20:00", *wide)
    first, last = 12 * HOUR + 120, 12 * HOUR + 240
    with h5py.File(out, "r") as file:
        assert (int(file.attrs["start"]), int(file.attrs["end"])) == (NOON - 12 * 3600, NOON + 12 * 3600)
        cells = file["dataservers/cpuload"][...]
        absent = (cells == 0) & np.signbit(cells)
    assert cells.shape == (24 * HOUR, site.osss)
    assert absent[:first].all()
    assert absent[last:].all()
    assert absent[first:last].mean() < 0.1
    assert compare(out, Answers(site, [Window(NOON + 600, NOON + 1200 + STEP)])).counts["different"] == 0


def test_a_local_day_of_25_hours_is_archived_whole(tmp_path, out):
    zone, midnight = "America/Los_Angeles", 1_541_314_800
    site = Site(epoch=midnight, timezone=zone, osts=1, osss=1, mdts=1)
    saved = database(tmp_path / "lmt.sqlite3", site, 25 * HOUR + 2)
    archived(saved, out, "2018-11-04T00:00:00", "2018-11-05T00:00:00", "--timezone", zone)
    with h5py.File(out, "r") as file:
        assert (int(file.attrs["start"]), int(file.attrs["end"])) == (midnight, midnight + 25 * 3600)
        assert file["datatargets/readbytes"].shape == (25 * HOUR, 1)
    comparison = compare(out, Answers(site, [Window(midnight, midnight + 25 * 3600 + STEP)]))
    assert comparison.differences == []
    assert comparison.filled > 25 * HOUR


def test_times_with_an_offset_mean_the_same_whatever_the_zone(copy, out, tmp_path):
    other = tmp_path / "other.hdf5"
    archived(copy, out, "2018-01-29T12:00:00", "2018-01-29T12:05:00")
    archived(copy, other, "2018-01-29T13:00:00+01:00", "2018-01-29T07:05:00-05:00")
    assert contents(out) == contents(other)


def test_json_tells_the_result_to_a_program(copy, out):
    span = ("--start", "2018-01-29T12:00:00Z", "--end", "2018-01-29T12:05:00Z")
    code, text, err = run("lmt", copy, "--output", out, *span, "--json")
    told = json.loads(text)
    assert (code, err, told.pop("cells") > 60 * 20) == (0, "", True)
    assert told == {"output": str(out), "start": NOON, "end": NOON + 300, "dropped": {}, "why": {}}


def test_a_person_is_told_in_a_line(copy, out):
    code, text, err = run("lmt", copy, "--output", out, "--start", "2018-01-29T12:00:00Z", "--end", "2018-01-29T12:05:00Z")
    assert (code, err) == (0, "")
    assert text.startswith(f"{out}: ")
    assert text.endswith(" cells of 2018-01-29T12:00:00Z to 2018-01-29T12:05:00Z\n")


def test_the_capture_filled_in_halves_is_the_golden_file(out):
    shared = Path(os.environ.get("TOKIOD_SHARED", Path(__file__).parents[3].parent / "shared")) / "data"
    if not shared.is_dir():
        pytest.skip(f"the captures are not here: {shared}")
    capture, options = shared / "lmt" / "snx11025_2018-01-28.sqlite3", ("--timezone", "America/Los_Angeles", "--mdt-names", "host")
    span = ("--init-start", "2018-01-28T00:00:00", "--init-end", "2018-01-28T00:05:00")
    archived(capture, out, "2018-01-28T00:02:30", "2018-01-28T00:05:00", *span, *options)
    archived(capture, out, "2018-01-28T00:00:00", "2018-01-28T00:02:30", *options)
    with h5py.File(shared / "golden" / "lmtdb_snx11025.hdf5", "r") as golden, h5py.File(out, "r") as ours:
        names = [f"{group}/{name}" for group in golden for name in golden[group]]
        assert len(names) > 15
        for name in names:
            np.testing.assert_array_equal(ours[name][...], golden[name][...], name)


# ---- every mistake is a sentence


GOOD = {"--start": "2018-01-29T12:00:00", "--end": "2018-01-29T12:05:00"}
MISTAKES = {
    "an unknown zone": ({"--timezone": "Mars/Olympus"}, "--timezone: unknown time zone 'Mars/Olympus'; use an IANA name"),
    "a zone that is a path": ({"--timezone": "../etc/passwd"}, "--timezone: unknown time zone"),
    "no zone at all": ({"--timezone": ""}, "--timezone: unknown time zone"),
    "an end before the start": ({"--end": "2018-01-29T11:00:00"}, "--start 2018-01-29T12:00:00 must be before its end 2018-01-29T11:00:00"),
    "nothing between start and end": ({"--end": "2018-01-29T12:00:00"}, "must be before its end"),
    "a start that is no time": ({"--start": "soon"}, "--start: 'soon' is not a time; write it like"),
    "an end that is no time": ({"--end": "2018-02-30"}, "--end: '2018-02-30' is not a time"),
    "a part of a second": ({"--start": "2018-01-29T12:00:00.5"}, "is not on a whole second"),
    "a start before all calendars": ({"--start": "0001-01-01T00:00:00+10:00"}, "--start: '0001-01-01T00:00:00+10:00' is before 1970"),
    "a start before there were epoch seconds": ({"--start": "1969-12-31"}, "--start: '1969-12-31' is before 1970"),
    "an end behind all calendars": ({"--end": "9999-12-31T23:59:59"}, "is before 1970 or too far in the future"),
    "a file that begins after the span": ({"--init-start": "2018-01-29T12:01:00"}, "does not lie within the file's"),
    "a file that ends before the span": ({"--init-end": "2018-01-29T12:01:00"}, "does not lie within the file's"),
    "a file that ends before it begins": (
        {"--init-start": "2018-01-29T14:00:00"},
        "--init-start 2018-01-29T14:00:00 must be before its end",
    ),
    "a time that the copy does not hold": ({"--start": "2019-01-01", "--end": "2019-01-02"}, "day.hdf5 was not written"),
    "an output where none can be": ({"--output": "/dev/null/day.hdf5"}, "--output: directory /dev/null"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_sentence_on_stderr_with_exit_2_and_leaves_nothing_behind(copy, out, name):
    changes, sentence = MISTAKES[name]
    given = {"--output": out} | GOOD | changes
    code, text, err = run("lmt", copy, *(word for pair in given.items() for word in pair))
    assert (code, text) == (2, "")
    assert err.startswith("main: ")
    assert sentence in err
    assert err.count("\n") == 1
    assert list(out.parent.iterdir()) == []


def test_an_input_that_is_missing_or_no_database_is_a_sentence_that_names_it(tmp_path, out):
    text = tmp_path / "notes.txt"
    text.write_text("not a database")
    words = [word for pair in GOOD.items() for word in pair]
    missing = run("lmt", tmp_path / "none.sqlite3", "--output", out, *words)
    wrong = run("lmt", text, "--output", out, *words)
    assert missing == (2, "", f"main: {tmp_path}/none.sqlite3 cannot be read: No such file or directory\n")
    assert wrong == (2, "", f"main: {text} is not a SQLite file: archive lmt reads copies of LMT databases in SQLite\n")


@pytest.mark.parametrize(("kind", "way_out"), [("lnt", ", did you mean lmt?"), ("xylophone", "; known kinds: ")])
def test_an_unknown_kind_is_told_with_the_nearest_known_one(kind, way_out, out):
    code, text, err = run(kind, "file", "--output", out)
    assert (code, text) == (2, "")
    assert err.startswith(f"main: unknown source kind {kind!r}{way_out}")


def text(path):
    path.write_text("my thesis")


def foreign(path):
    with h5py.File(path, "w") as file:
        file["thesis"] = np.arange(5)


@pytest.mark.parametrize("make", [text, foreign])
def test_an_output_that_is_no_tts_file_is_not_touched(copy, out, make):
    make(out)
    before = out.read_bytes()
    code, told, err = run("lmt", copy, "--output", out, *(word for pair in GOOD.items() for word in pair))
    assert (code, told) == (2, "")
    assert err.startswith(f"main: {out} is not a TTS file and can't be filled: ")
    assert [(path, path.read_bytes()) for path in out.parent.iterdir()] == [(out, before)]


def test_a_span_outside_of_an_existing_file_or_another_span_for_it_is_refused_and_the_file_stays(copy, out):
    archived(copy, out, "2018-01-29T12:00:00", "2018-01-29T12:05:00")
    before = out.read_bytes()
    outside = run("lmt", copy, "--output", out, "--start", "2018-01-29T12:04:00", "--end", "2018-01-29T12:06:00")
    other = run("lmt", copy, "--output", out, *(w for p in GOOD.items() for w in p), "--init-end", "2018-01-29T13:00:00")
    held = "[2018-01-29T12:00:00Z, 2018-01-29T12:05:00Z)"
    assert outside == (2, "", f"main: [2018-01-29T12:04:00Z, 2018-01-29T12:06:00Z) does not lie within the file's {held}\n")
    assert (other[0], other[1], f"{out} holds {held}, not " in other[2]) == (2, "", True)
    assert out.read_bytes() == before
    assert list(out.parent.iterdir()) == [out]


def test_without_its_arguments_it_says_which_are_missing():
    assert run("lmt")[0] == 2
    assert "Missing argument 'INPUTS...'" in run("lmt")[2]


def test_a_directory_that_can_not_be_written_is_said_before_anything_is_read(copy, tmp_path, monkeypatch):
    """Root may write everywhere, so what is asked of the system is answered here."""
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path or mode != os.W_OK | os.X_OK)
    done = run("lmt", copy, "--output", tmp_path / "x.hdf5", *(word for pair in GOOD.items() for word in pair))
    assert done == (2, "", f"main: --output: no permission to write to directory {tmp_path}\n")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_can_not_be_made_is_named(copy, out):
    (out.parent / f"..{out.name}.live.tmp").mkdir()
    code, text, err = run("lmt", copy, "--output", out, *(word for pair in GOOD.items() for word in pair))
    assert (code, text, err.startswith(f"main: {out}: ")) == (2, "", True), err


def test_a_kind_that_can_not_be_loaded_is_reported_and_the_others_stay_listed(tmp_path, monkeypatch, out):
    (tmp_path / "broken.py").write_text("import a_missing_driver")
    monkeypatch.setattr(collectors, "__path__", [*collectors.__path__, str(tmp_path)])
    code, text, err = run("broken", "--some-option", "x", "--output", out)
    assert (code, text) == (2, "")
    assert err.startswith("main: source kind 'broken' of tokiod (collectors.broken) cannot be imported: ModuleNotFoundError: ")
    code, text, _ = run("--help")
    assert code == 0
    assert "Cannot be loaded." in text
    assert "Archive saved lmt files." in text


@pytest.mark.parametrize(("step", "zone"), [(7, "UTC"), (11, "America/Los_Angeles"), (7200, "America/St_Johns")])
def test_a_step_that_a_source_can_not_have_is_refused_as_it_would_be_in_the_configuration(copy, out, step, zone):
    options = [*(word for pair in GOOD.items() for word in pair), "--step", step, "--timezone", zone]
    code, text, err = run("lmt", copy, "--output", out, *options)
    assert (code, text, out.exists()) == (2, "", False)
    assert err.startswith(f"main: --step: steps of {step} s do not divide the days of {zone}, ")


def test_a_kind_without_saved_files_is_not_listed_and_says_what_to_use_instead(out):
    code, text, err = run("nodes", "nodes.json", "--output", out)
    assert (code, text) == (2, "")
    assert err.startswith("main: kind nodes has no saved files: ")
    assert "a [[source]] of this kind archives them" in err
    assert "nodes" not in run("--help")[1]


@pytest.mark.parametrize(
    ("kind", "option", "value", "expected"),
    [
        ("mmperfmon", "--cpu-scale", -1.0, "a number > 0.0"),
        ("mmperfmon", "--cpu-scale", float("nan"), "a number > 0.0"),
        ("esnet_snmp", "--interval", 0, "an integer >= 1"),
        ("lustre", "--time", -5, "an integer >= 0"),
        ("lustre_jobstats", "--cleanup-interval", -1, "an integer >= 0"),
    ],
)
def test_a_number_out_of_its_bounds_is_refused_as_it_would_be_in_the_configuration(tmp_path, out, kind, option, value, expected):
    (tmp_path / "saved").write_text("")
    code, text, err = run(kind, tmp_path / "saved", "--output", out, "--start", "2018-01-28", "--end", "2018-01-29", option, value)
    assert (code, text, err) == (2, "", f"main: {option}: expected {expected}, got {value}\n")
