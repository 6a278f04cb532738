"""Saved outputs of lfs df and lctl dl -t: plain, in blocks, packed."""

import gzip
import os
from collections import Counter

import pytest
from lustre_site import df, df_inodes, dl, servers

from collectors import lustre
from tokiod.collector import Site
from tokiod.errors import TokiodError
from tokiod.testing.clock import FakeClock
from tokiod.testing.collector_contract import CollectorContract, collected, samples, within
from tokiod.window import Calendar, Window

START, STEP = 1_517_126_400, 60
SITE = Site(Calendar("America/Los_Angeles"), FakeClock())
TARGETS = [*(f"fs-OST{index:04x}" for index in range(6)), "fs-MDT0000", "fs-MDT0001"]
HOME = servers(TARGETS)


def listing(minute):
    return {name: (10_000 + place, 100 * place + minute) for place, name in enumerate(TARGETS)}


def inodes(minute):
    return {name: (total // 2, used // 2) for name, (total, used) in listing(minute).items()}


def served(minute):
    return HOME | ({"fs-OST0002": HOME["fs-OST0003"]} if minute % 3 == 2 else {})


def blocks(minutes):
    return "".join(block(START + STEP * minute, minute) for minute in minutes)


def block(time, minute):
    return f"BEGIN {time + 7}\n{df(listing(minute))}{df_inodes(inodes(minute))}BEGIN {time + 9}\n{dl(served(minute))}"


def saved(*paths, **options):
    return lustre.saved(list(paths), lustre.Saved(**options), SITE)


def right(minutes):
    cells = {name: [] for name in lustre.Saved().datasets()}
    for m in minutes:
        time = START + STEP * m
        cells["fullness/bytes"] += [(time, name, float(used)) for name, (_, used) in listing(m).items()]
        cells["fullness/bytestotal"] += [(time, name, float(total)) for name, (total, _) in listing(m).items()]
        cells["fullness/inodes"] += [(time, name, float(used)) for name, (_, used) in inodes(m).items()]
        cells["fullness/inodestotal"] += [(time, name, float(total)) for name, (total, _) in inodes(m).items()]
        counts = Counter(nid for name, nid in served(m).items() if "OST" in name)
        cells["failover/dataservers"] += [(time, nid, float(count)) for nid, count in counts.items()]
        away = {name: float(HOME[name] != nid) for name, nid in served(m).items()}
        cells["failover/datatargets"] += [(time, name, value) for name, value in away.items() if "OST" in name]
        cells["failover/mdtargets"] += [(time, name, value) for name, value in away.items() if "MDT" in name]
    return {dataset: sorted(values) for dataset, values in cells.items()}


@pytest.fixture
def path(tmp_path):
    (tmp_path / "lfsstate.txt").write_text(blocks(range(9)))
    return tmp_path / "lfsstate.txt"


def cells_of(collector, window):
    return {dataset: sorted(cells) for dataset, cells in within(collector, lambda c: samples(c, window)).items()}


class TestContract(CollectorContract):
    @pytest.fixture
    def collector(self, path):
        return lambda: saved(path)

    @pytest.fixture
    def saved(self, path):
        return lambda: saved(path)

    @pytest.fixture
    def window(self):
        return Window(START, START + 9 * STEP)

    @pytest.fixture
    def datasets(self):
        return lustre.Saved().datasets()


WHOLE = Window(START, START + 9 * STEP)


def test_every_block_gives_its_cells_the_last_one_too(path):
    assert cells_of(saved(path), WHOLE) == right(range(9))


def test_files_in_any_order_packed_or_not_give_the_same(tmp_path):
    (tmp_path / "b").write_text(blocks(range(5, 9)))
    (tmp_path / "a.gz").write_bytes(gzip.compress(blocks(range(5)).encode()))
    assert cells_of(saved(tmp_path / "b", tmp_path / "a.gz"), WHOLE) == right(range(9))


def test_a_plain_output_has_the_given_time_or_that_of_its_file(tmp_path):
    (tmp_path / "df").write_text(df(listing(4)) + df_inodes(inodes(4)))
    (tmp_path / "dl").write_text(dl(served(4)))
    for name in ("df", "dl"):
        os.utime(tmp_path / name, (START + 4 * STEP, START + 4 * STEP))
    paths = [tmp_path / "df", tmp_path / "dl"]
    assert cells_of(saved(*paths), WHOLE) == right([4])
    at = Window(START + 7 * STEP, START + 8 * STEP)
    assert {len(cells) for cells in cells_of(saved(*paths, time=START + 7 * STEP + 59), at).values()} == {8, 6, 2}


def test_of_two_outputs_in_a_row_the_later_one_counts(tmp_path):
    (tmp_path / "a").write_text(f"BEGIN {START + 40}\n{df(listing(40))}BEGIN {START + 10}\n{df(listing(10))}")
    assert cells_of(saved(tmp_path / "a"), WHOLE)["fullness/bytes"] == sorted(
        (START, name, float(used)) for name, (_, used) in listing(40).items()
    )


def test_rows_are_counted_from_the_start_of_the_window(tmp_path):
    (tmp_path / "a").write_text("".join(f"BEGIN {START + STEP * m + 7}\n{df(listing(m))}" for m in range(4)))
    window = Window(START + STEP // 2, START + STEP // 2 + 3 * STEP)
    times = sorted({time for time, _, _ in cells_of(saved(tmp_path / "a"), window)["fullness/bytes"]})
    assert times == [window.start, window.start + STEP, window.start + 2 * STEP]


def test_only_the_wanted_file_systems_are_read(tmp_path):
    (tmp_path / "a").write_text(f"BEGIN {START}\n" + df(listing(0)) + df({"other-OST0000": (10, 1)}, "/other"))
    cells = cells_of(saved(tmp_path / "a", filesystem=("other",)), WHOLE)
    assert cells["fullness/bytes"] == [(START, "other-OST0000", 1.0)]


def test_what_gives_no_cell_is_counted_in_its_window(tmp_path):
    text = df(listing(1)).replace("fs-OST0001_UUID ", "fs-OST0001_UUID : inactive device\nx ", 1)
    (tmp_path / "a").write_text(f"BEGIN {START + STEP}\n{text}")
    data = within(saved(tmp_path / "a"), lambda c: c.collect(Window(START + STEP, START + 2 * STEP)))
    assert (data.records, sum(data.dropped.values())) == (7, 2)


@pytest.mark.parametrize(
    ("content", "sentence"), [(b"hello\n", "is not an output of lfs df or lctl dl"), (b"\x1f\x8bxx", "truncated gzip data")]
)
def test_a_file_that_is_neither_is_refused(tmp_path, content, sentence):
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(TokiodError, match=sentence):
        within(saved(tmp_path / "a"), lambda c: collected(c, WHOLE))


def test_a_given_home_is_used(path):
    cells = cells_of(saved(path, home=("fs-OST0000=10.9.9.9@tcp",)), WHOLE)["failover/datatargets"]
    assert {value for _, name, value in cells if name == "fs-OST0000"} == {1.0}


def test_missing_files_and_malformed_homes_are_reported_at_once(tmp_path):
    with pytest.raises(TokiodError, match="can't be read: No such file"):
        saved(tmp_path / "none")
    with pytest.raises(TokiodError, match="--home: expected TARGET=NID, got 'fs-OST0000'"):
        saved(home=("fs-OST0000",))
