"""The forms that lfs df and lctl dl print with their options: each is stored right, or refused with what was found and what helps."""

import os
import re
from collections import Counter
from pathlib import Path

import pytest
from lustre_site import df, dl

from collectors import lustre
from collectors.lustre import parse_df, parse_dl
from tokiod.collector import Site
from tokiod.errors import TokiodError
from tokiod.testing.clock import FakeClock
from tokiod.testing.collector_contract import samples, within
from tokiod.window import Calendar, Window

START = 1_517_126_400
WINDOW = Window(START, START + 60)
SITE = Site(Calendar("UTC"), FakeClock())
MIB, GIB, TIB = 2**10, 2**20, 2**30
"""In KiB."""


def saved(path, **options):
    return lustre.saved([path], lustre.Saved(time=START, **options), SITE)


def stored(path, **options):
    """({dataset: {column: value}}, the data of the window) of a saved output."""
    cells = within(saved(path, **options), lambda c: samples(c, WINDOW))
    found = {dataset: {name: value for _, name, value in some} for dataset, some in cells.items() if some}
    return found, within(saved(path, **options), lambda c: c.collect(WINDOW))


def refused(path):
    with pytest.raises(TokiodError) as error:
        stored(path)
    return str(error.value).replace(str(path), "FILE")


@pytest.fixture
def stranger():
    place = Path(os.environ.get("TOKIOD_SHARED", Path(__file__).parents[3].parent / "shared")) / "data" / "strangers" / "servers"
    if not place.is_dir():
        pytest.skip(f"the inputs of other sites are not here: {place}")
    return lambda name: place / name


def listing(header, row, summary="filesystem_summary:  1  1  1  1% /m"):
    return f"{header}\n{row}\n\n{summary}\n"


FREE = listing("UUID 1K-blocks Free Available Use%  Mounted on", "x-OST0000_UUID 100038656 96447488 96445440 4%  /m[OST:0]")


def test_columns_are_found_by_their_names():
    """--output prints any columns in any order. Free is no use: 4 % full must not become 96 %."""
    assert parse_df.parse(FREE.encode()).targets == {"x-OST0000": (100038656, 3591168)}
    any_order = listing("Use% Used Inodes Mounted on UUID IUsed 1K-blocks", " 50% 100 70 /a b[OST:10] x-OST000a_UUID 7 200 DR")
    found = parse_df.parse(any_order.encode())
    assert (found.targets, found.inodes, found.dropped.counts) == ({"x-OST000a": (200, 100)}, {"x-OST000a": (70, 7)}, Counter())


@pytest.mark.parametrize(
    "header",
    [
        "UUID Available Use%  Mounted on",
        "UUID 1K-blocks Available Use%  Mounted on",
        "UUID bytes Free Available Use%  Mounted on",
        "UUID 1K-blocks Used",
        "1K-blocks Used  Mounted on",
        "UUID 1M-blocks Used Available Use% Mounted on",
        "UUID 1K-blocks Used Used Use% Mounted on",
        "UUID 1K-blocks Used Availa",
    ],
)
def test_a_listing_without_the_columns_that_are_needed_is_refused_with_its_header(tmp_path, header):
    (tmp_path / "a").write_text(listing(header, "x-OST0000_UUID 100 50 50 50% /m[OST:0]"))
    assert refused(tmp_path / "a") == (
        "FILE: nothing could be read: 1 x row below a header without the columns that are needed, for example "
        f'"{header}" (save plain `lfs df`, or -u source,size,used,avail,target)'
    )


HUMAN = "UUID bytes Used Available Use% Mounted on"


@pytest.mark.parametrize(
    ("row", "size", "used"),
    [
        ("28.9T 25.1T 3.7T 88%", 28.9 * TIB, 25.1 * TIB),
        ("13.0G 1.2G 11.0G 10%", 13.0 * GIB, 1.2 * GIB),
        ("4.25P 512 4.2P 1%", 4.25 * 2**40, 0.5),
        ("1023.9M 0 1023.9M 0%", 1023.9 * MIB, 0.0),
        ("932.2k 884.6k 47.6k 95%", 932.2e3 / 1024, 884.6e3 / 1024),
        ("932.2K 884.6K 47.6K 95%", 932.2, 884.6),
    ],
)
def test_sizes_with_a_unit_are_stored_and_what_they_lack_is_counted(row, size, used):
    found = parse_df.parse(listing(HUMAN, f"x-OST0001_UUID {row} /m[OST:1]").encode())
    assert found.targets == {"x-OST0001": pytest.approx((size, used), abs=0.5)}
    assert found.dropped.counts == {parse_df.ROUNDED: 1}


def test_inodes_with_a_unit_are_read_too():
    text = "UUID Inodes IUsed IFree IUse% Mounted on\nx-MDT0000_UUID 932.2k 884.6k 47.6k 95% /m[MDT:0]\n"
    assert parse_df.parse(text.encode()).inodes == {"x-MDT0000": (932200, 884600)}


def test_the_unit_of_a_file_is_that_of_the_rows_that_show_it(tmp_path):
    """28.9T alone is either of -h and -H; -H prints "k", -h "K", and 1000.1 to 1023.9 of a unit."""
    plain, decimal = f"{HUMAN}\nx-OST0000_UUID 28.9T 25.1T 3.7T 88% /m[OST:0]\n", f"{HUMAN}\ny-OST0000_UUID 9.5k 9.0k 512 95% /m[OST:0]\n"
    (tmp_path / "H").write_text(f"BEGIN {START}\n{plain}BEGIN {START + 1}\n{decimal}")
    (tmp_path / "h").write_text(plain)
    assert stored(tmp_path / "H")[0]["fullness/bytestotal"] == {"x-OST0000": round(28.9e12 / 1024), "y-OST0000": 9.0}
    cells, data = stored(tmp_path / "h")
    assert cells["fullness/bytestotal"] == {"x-OST0000": round(28.9 * TIB)}
    assert stored(tmp_path / "H")[1].why[parse_df.ROUNDED].remedy == "save `lfs df` without -h for exact sizes"
    assert data.why[parse_df.ROUNDED].remedy == (
        "read in powers of 1024, as -h prints them and not -H; save `lfs df` without -h for exact sizes"
    )


@pytest.mark.parametrize("both", ["932.2k 900.0K 32.0K 97%", "1013.2G 932.2k 1013.2G 1%"])
def test_a_row_of_two_units_is_counted(both):
    found = parse_df.parse(listing(HUMAN, f"x-OST0001_UUID {both} /m[OST:1]").encode())
    assert (found.targets, found.dropped.counts) == ({}, {parse_df.EITHER_UNIT: 1})


@pytest.mark.parametrize("order", [1, -1])
def test_of_an_exact_and_a_rounded_listing_that_agree_the_exact_one_counts(order):
    exact = df({"x-OST0000": (31_000_000_000, 26_950_000_000)})
    rounded = listing(HUMAN, "x-OST0000_UUID 28.9T 25.1T 3.8T 87% /m[OST:0]")
    found = parse_df.parse("".join([exact, rounded][::order]).encode())
    assert (found.targets, found.dropped.counts) == ({"x-OST0000": (31_000_000_000, 26_950_000_000)}, Counter())
    empty, shown = df({"x-OST0000": (31_000_000_000, 0)}), listing(HUMAN, "x-OST0000_UUID 28.9T 0 28.9T 0% /m[OST:0]")
    assert parse_df.parse("".join([empty, shown][::order]).encode()).dropped.counts == Counter()
    other = parse_df.parse("".join([exact, rounded.replace("25.1T", "25.2T").replace("3.8T", "3.7T")][::order]).encode())
    assert other.dropped.counts[parse_df.REPEATED] == 1


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("100 -5 50 50%", parse_df.OUT_OF_RANGE),
        ("-100 50 50 50%", parse_df.OUT_OF_RANGE),
        ("9007199254740992 50 50 50%", parse_df.OUT_OF_RANGE),
        ("9007199254740991 50 18446744073709551615 50%", parse_df.OUT_OF_RANGE),
        ("100 101 0 100%", parse_df.CONTRADICTION),
        ("100 50 50 101%", parse_df.CONTRADICTION),
        ("100 50 50 -1%", parse_df.CONTRADICTION),
        ("10000 5000 5000 52%", parse_df.CONTRADICTION),
        ("10000 5000 5000 48%", parse_df.CONTRADICTION),
        ("1.2T 1.1T 0 100%", parse_df.CONTRADICTION),
    ],
)
def test_figures_that_no_target_has_are_counted(row, reason):
    text = listing("UUID 1K-blocks Used Available Use% Mounted on", f"x-OST0000_UUID {row} /m[OST:0]")
    found = parse_df.parse(text.encode())
    assert (found.targets, found.dropped.counts) == ({}, {reason: 1})


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("2000 5 50 10%", parse_df.CONTRADICTION),
        ("1000 500 500 50%", parse_df.CONTRADICTION),
        ("8192.0P 1.0T 8191.9P 1%", parse_df.OUT_OF_RANGE),
        ("28.9R 25.1T 3.7T 88%", parse_df.CONTRADICTION),
        ("28.9T 25.1G 3.7T 88%", parse_df.CONTRADICTION),
    ],
)
def test_sizes_with_a_unit_that_no_target_has_are_counted(row, reason):
    found = parse_df.parse(listing(HUMAN, f"x-OST0000_UUID {row} /m[OST:0]").encode())
    assert (found.targets, found.dropped.counts) == ({}, {reason: 1})


@pytest.mark.parametrize(
    ("header", "row", "found"),
    [
        ("UUID Inodes IUsed IUse% Mounted on", "443 193 57%", None),
        ("UUID Inodes IUsed IUse% Mounted on", "443 250 57%", (443, 250)),
        ("UUID 1K-blocks Used Use% Mounted on", "1000 400 60%", None),
        ("UUID 1K-blocks Used Use% Mounted on", "1000 600 63%", (1000, 600)),
        ("UUID 1K-blocks Free Use% Mounted on", "1000 600 60%", None),
        ("UUID bytes Used Use% Mounted on", "1.2T 500.0G 60%", None),
        ("UUID bytes Used Use% Mounted on", "1.2T 700.0G 60%", (1288490189, 734003200)),
    ],
)
def test_a_share_is_compared_also_where_the_free_column_is_missing(header, row, found):
    """The rows lost another column than the header: what is free stands where the use should."""
    kept = parse_df.parse(listing(header, f"x-MDT0000_UUID {row} /m[MDT:0]").encode())
    assert {"x-MDT0000": found} in (kept.targets, kept.inodes) if found else kept.dropped.counts == {parse_df.CONTRADICTION: 1}


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("UUID Inodes IUsed IFree IUse% Mounted on", "14 3 12 15%"),
        ("UUID Inodes IUsed IFree Mounted on", "14 3 12"),
        ("UUID 1K-blocks Used Available Use% Mounted on", "14 3 12 15%"),
    ],
)
def test_a_row_whose_parts_are_more_than_its_size_is_counted(header, row):
    kept = parse_df.parse(listing(header, f"x-MDT0000_UUID {row} /m[MDT:0]").encode())
    assert (kept.targets, kept.inodes, kept.dropped.counts) == ({}, {}, {parse_df.CONTRADICTION: 1})


@pytest.mark.parametrize(("names", "kept"), [("x-fs x-fs fs", 2), ("fs fs DRfs", 0), ("fs fs x-fs x-fs x-fs", 3), ("fs DRfs", 0)])
def test_of_two_names_at_one_mount_the_one_that_lost_its_beginning_is_counted(names, kept):
    rows = [f"{name}-OST{n:04x}_UUID 100 40 60 40% /m[OST:{n}]" for n, name in enumerate(names.split())]
    found = parse_df.parse(listing("UUID 1K-blocks Used Available Use% Mounted on", "\n".join(rows)).encode())
    assert (len(found.targets), found.dropped.counts) == (kept, {parse_df.CONTRADICTION: len(rows) - kept})
    assert {name[:-8] for name in found.targets} <= {"x-fs"}


@pytest.mark.parametrize("share", ["49%", "50%", "-"])
def test_a_share_may_be_rounded_in_any_way(share):
    text = listing("UUID 1K-blocks Used Available Use% Mounted on", f"x-OST0000_UUID 1000 495 500 {share} /m[OST:0]")
    assert parse_df.parse(text.encode()).targets == {"x-OST0000": (1000, 495)}


def test_a_target_of_two_servers_is_counted():
    """Two file systems have one name where their MGSs are different; a second mount of one has the same servers."""
    one = dl({"fs-OST0000": "10.1.0.1@o2ib"}, "ffff885f81a64000")
    for nid, dropped in (("10.1.0.1@o2ib", {}), ("10.2.0.1@o2ib", {parse_dl.OTHER_SERVER: 1})):
        found = parse_dl.parse((one + dl({"fs-OST0000": nid}, "ffff885f81a67800")).encode())
        assert (found.served, found.dropped.counts) == ({"fs-OST0000": "10.1.0.1@o2ib"}, dropped)


@pytest.mark.parametrize(
    ("cut", "kept"),
    [("10.1.1.3@o2ib", 2), ("10.1.1.3@o2i", 2), ("10.1.1.3@", 2), ("10.1.1.3@o2ib2", 3), ("10.1.1.3@tcp", 3), ("10.1.1.3@o2ib25", 3)],
)
def test_a_server_whose_line_lost_its_end_is_counted(cut, kept):
    text = dl({"fs-OST0000": "10.1.1.1@o2ib2", "fs-OST0001": "10.1.1.2@o2ib2", "fs-OST0002": cut, "other-OST0000": "10.1.1.9@o2ib"})
    found = parse_dl.parse(text.encode())
    assert (len(found.served), sum(found.dropped.counts.values())) == (kept + 1, 3 - kept)


def test_an_epoch_that_lost_a_digit_is_no_time(tmp_path):
    one, two = df({"x-OST0000": (100, 50)}), df({"x-OST0000": (100, 60)})
    (tmp_path / "a").write_text(f"BEGIN {START}\n{one}BEGIN {START // 10}\n{two}")
    cells, data = stored(tmp_path / "a")
    assert (cells["fullness/bytes"], sum(data.dropped.values())) == ({"x-OST0000": 50.0}, 3)


WITHOUT_T = "  4 UP osc fs-OST0000-osc-ffff9a3b4c5d6000 8dbdc7f6-8f86 4\n"
SERVER = "  0 UP osd-ldiskfs fs-OST0000-osd fs-OST0000-osd_UUID 5\n  3 UP obdfilter fs-OST0000 fs-OST0000_UUID 7\n"
YAML = "devices:\n- index: 0\n  status: UP\n  type: osc\n  name: fs-OST0000-osc-ffff9a3b4c5d6000\n- index: 1\n  status: UP\n"


NOTHING = "FILE is not an output of lfs df or lctl dl -t, nor a file of such outputs after BEGIN lines: "


@pytest.mark.parametrize(
    ("text", "found", "example", "remedy"),
    [
        ("filesystem_summary: 100 50 50 50% /m\n", "summary without targets", "filesystem_summary: 100 50", "save `lfs df` without -s"),
        ("x-OST0000_UUID 100 50 50 50% /m[OST:0]\n", "row without a header", "x-OST0000_UUID 100 ", "save plain `lfs df`, whole"),
        (WITHOUT_T, "device without a server", "4 UP osc fs-OST0000-osc-", "save `lctl dl -t`, as root where it needs that"),
        (
            SERVER,
            "list of devices of which none is a client's of a target",
            "0 UP osd-ldiskfs fs-OST0000-osd fs-OST0000-osd_UUID 5",
            "save the list of a client, not a server's",
        ),
        (YAML, "device in YAML", "- index: 0", "save `lctl dl -t` without -y"),
        (
            "BEGIN now\nUUID\n",
            "line after a malformed BEGIN, or before the first one",
            "UUID",
            "write `BEGIN <epoch seconds>`",
        ),
    ],
)
def test_a_file_in_which_nothing_can_be_read_is_refused_with_what_helps(tmp_path, text, found, example, remedy):
    (tmp_path / "a").write_text(text)
    sentence = refused(tmp_path / "a")
    assert re.match(rf"FILE: nothing could be read: [12] x {re.escape(found)}, for example \"{re.escape(example)}", sentence), sentence
    assert sentence.endswith(f" ({remedy})")


def test_a_file_of_another_kind_is_refused_with_its_beginning(tmp_path):
    for text, beginning in (("", "it is empty"), ("hello\nyou", 'it begins with "hello"')):
        (tmp_path / "a").write_text(text)
        assert refused(tmp_path / "a") == NOTHING + beginning


@pytest.mark.parametrize(
    "text", ["UUID 1K-blocks Used Available Use% Mounted on\nx-OST0000_UUID : inactive device\n", "7 IN osc a b 4\n" * 2]
)
def test_targets_that_are_all_down_are_an_output(tmp_path, text):
    text = text.replace("osc a b", "osc fs-OST0003-osc-ffff9a3b4c5d6000 8dbdc7f6-8f86")
    (tmp_path / "a").write_text(text)
    cells, data = stored(tmp_path / "a")
    assert (cells, set(data.dropped)) == ({}, {parse_df.INACTIVE if "inactive" in text else parse_dl.DOWN})


def test_lines_whose_time_is_unknown_are_counted_with_the_oldest_output(tmp_path):
    whole = df({"x-OST0000": (100, 50)})
    (tmp_path / "a").write_text(f"stray\nBEGIN {START + 900}\n{whole}BEGIN {START}\n{whole}BEGIN ?\nlost\n")
    cells, data = stored(tmp_path / "a")
    assert (cells["fullness/bytes"], data.dropped) == ({"x-OST0000": 50.0}, {"line after a malformed BEGIN, or before the first one": 2})


def test_targets_of_other_file_systems_are_counted(tmp_path):
    (tmp_path / "a").write_text(df({"x-OST0000": (100, 50)}) + df({"y-OST0000": (100, 50), "y-OST0001": (10, 5)}))
    cells, data = stored(tmp_path / "a", filesystem=("x",))
    reason = "target of a file system that --filesystem does not name"
    assert (list(cells["fullness/bytes"]), data.dropped, data.why[reason].example) == (["x-OST0000"], {reason: 2}, "y-OST0000")


RIGHT = {
    "lfs-df_free_column_217.txt": {"exa1-OST0000": (100038656, 3591168)},
    "lfs-df_217_output_fields.txt": {"demo-OST0000": (98706432, 5615616)},
    "lfs-df_wide_fields_217.txt": {"demo-OST0000": (98706432, 5615616)},
    "lfs-df-h_zih.txt": {
        "scratch2-MDT0000": (4.0 * TIB, 502.8 * GIB),
        "scratch2-OST0000": (28.9 * TIB, 25.1 * TIB),
        "scratch2-OST008f": (28.9 * TIB, 25.3 * TIB),
    },
    "lfs-df_mixed_h_and_k.txt": {
        "demo-MDT0000": (41699840, 3840),
        "demo-MDT0001": (50019328, 3584),
        "demo-OST0000": (98706432, 5615616),
        "demo-OST0001": (100038656, 3591168),
        "exa1-MDT0000": (1.8 * TIB, 210.5 * GIB),
        "exa1-OST0000": (3.7 * TIB, 2.3 * TIB),
    },
    "lfs-df_same_fsname_twice.txt": {"lustre-OST0000": (98706432, 5615616)},
}


@pytest.mark.parametrize("name", RIGHT)
def test_listings_of_other_sites_are_read_right(stranger, name):
    cells, _ = stored(stranger(name))
    found = {target: (size, cells["fullness/bytes"][target]) for target, size in cells["fullness/bytestotal"].items()}
    assert found == {target: pytest.approx(figures, abs=0.5) for target, figures in RIGHT[name].items()}


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("lfs-df_summary_only.txt", "save `lfs df` without -s"),
        ("dl_server.txt", "save the list of a client"),
        ("dl_yaml.txt", "without -y"),
    ],
)
def test_outputs_of_other_sites_that_give_nothing_are_refused_with_what_helps(stranger, name, remedy):
    assert remedy in refused(stranger(name))


@pytest.mark.parametrize(
    ("name", "served", "dropped"),
    [
        ("dl_client_216.txt", 4, {parse_dl.DOWN: 1, parse_dl.NO_SERVER: 1}),
        ("dl_fsname.txt", 2, {}),
        ("dl_same_fsname_twice.txt", 2, {parse_dl.OTHER_SERVER: 2}),
        ("dl_without_t.txt", 0, {parse_dl.DOWN: 1, parse_dl.NO_SERVER: 5}),
    ],
)
def test_lists_of_devices_of_other_sites(stranger, name, served, dropped):
    _, data = stored(stranger(name))
    assert (data.records, data.dropped) == (served, dropped)
