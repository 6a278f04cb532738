"""What lfs df and lctl dl -t print, in all the ways that they do, cut and damaged."""

import gzip
import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lustre_site import HEADER, df_inodes
from lustre_site import df as df_of
from lustre_site import dl as dl_of

from collectors.lustre import parse_df, parse_dl

TARGETS = {"fs-MDT0000": (1000, 10), "fs-OST0000": (5000, 4000), "fs-OST000a": (5000, 0), "fs-OST0015": (7000, 7000)}
NIDS = {"fs-MDT0000": "10.1.1.4@o2ib2", "fs-OST0000": "10.1.1.5@o2ib2", "fs-OST000a": "oss6.example@tcp", "fs-OST0015": "0@lo"}


@pytest.fixture
def captures():
    place = Path(os.environ.get("TOKIOD_SHARED", Path(__file__).parents[3].parent / "shared")) / "data" / "lustre"
    if not place.is_dir():
        pytest.skip(f"the captures are not here: {place}")
    return place


def test_the_capture_of_four_file_systems_is_read_whole(captures):
    text = gzip.decompress((captures / "lfs-df.txt.gz").read_bytes())
    listing = parse_df.parse(text)
    rows = [line.split() for line in text.decode().splitlines() if "_UUID" in line]
    assert listing.targets == {row[0].removesuffix("_UUID"): (int(row[1]), int(row[2])) for row in rows}
    assert (len(listing.targets), listing.dropped.counts) == (340, Counter())


def test_the_capture_of_devices_is_read_whole(captures):
    text = gzip.decompress((captures / "lctl-dl-t.txt.gz").read_bytes())
    devices = parse_dl.parse(text)
    rows = [line.split() for line in text.decode().splitlines()]
    assert devices.served == {row[3].rpartition(f"-{row[2]}-")[0]: row[6] for row in rows if row[2] in ("osc", "mdc")}
    assert (len(devices.served), devices.dropped.counts) == (340, Counter())


@pytest.mark.parametrize("label", ["filesystem_summary:", "filesystem summary:"])
@pytest.mark.parametrize("flags", ["", " DR", " S", " f", " (0777)", "  "])
@pytest.mark.parametrize("blank", [" ", "  "])
def test_every_version_of_the_listing_is_read(label, flags, blank):
    listing = parse_df.parse(df_of(TARGETS, label=label, flags=flags, blank=blank).encode())
    assert (listing.targets, listing.dropped.counts) == (TARGETS, Counter())


@pytest.mark.parametrize("name", ["lustre", "a-b", "a_b-c", "OST", "x-OST0001-y", "snx11035"])
def test_a_file_system_may_have_any_name(name):
    targets = {f"{name}-OST{index:04x}": (100, index) for index in range(20)}
    assert parse_df.parse(df_of(targets).encode()).targets == targets
    assert parse_dl.parse(dl_of(dict.fromkeys(targets, "10.1.1.1@tcp0")).encode()).served == dict.fromkeys(targets, "10.1.1.1@tcp0")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("fs-OST0003_UUID     : inactive device", parse_df.INACTIVE),
        ("OST0003             : inactive device", parse_df.INACTIVE),
        ("fs-OST0003_UUID     : Cannot send after transport endpoint shutdown", parse_df.ERROR),
        ("fs-OST0003_UUID     : Resource temporarily unavailable", parse_df.ERROR),
        ("fs-OST0003_UUID             100          50          50  50% /scratch[OST:4]", parse_df.CONTRADICTION),
        ("fs-OST0003_UUID             100          50          50  50% /scratch[MDT:3]", parse_df.CONTRADICTION),
        ("fs-OST0003_UUID             100         150           0 100% /scratch[OST:3]", parse_df.CONTRADICTION),
        ("fs-OST0003_UUID             1.2T        150G          0 100% /scratch[OST:3]", parse_df.UNRECOGNISED),
        ("fs-OST0003_UUID             100          50          50  50% /scratch[OST:3", parse_df.UNRECOGNISED),
        ("lfs: df: cannot be read", parse_df.UNRECOGNISED),
    ],
)
def test_a_line_that_gives_no_cell_is_counted_by_its_reason_and_the_rest_is_read(line, reason):
    header, first, *rest = df_of(TARGETS).splitlines(keepends=True)
    listing = parse_df.parse("".join([header, first, line + "\n", *rest]).encode())
    assert listing.targets == TARGETS
    assert sum(listing.dropped.counts.values()) == 1
    assert listing.dropped.counts[reason] == 1 or reason == parse_df.UNRECOGNISED


def test_rows_without_a_header_do_not_count_for_their_beginning_may_be_lost():
    text = df_of(TARGETS)
    listing = parse_df.parse(text[len(HEADER) + 1 :].encode())
    assert (listing.targets, sum(listing.dropped.counts.values())) == ({}, len(TARGETS))


def test_inodes_are_no_kilobytes():
    text = df_inodes(TARGETS)
    listing = parse_df.parse(text.encode())
    assert (listing.targets, listing.inodes, listing.dropped.counts) == ({}, TARGETS, Counter())


def test_several_file_systems_one_twice_are_all_read():
    other = {"other-OST0000": (10, 1)}
    text = df_of(TARGETS, "/a") + df_of(other, "/b") + df_of(TARGETS, "/again")
    assert parse_df.parse(text.encode()).targets == TARGETS | other


def test_a_device_counts_only_when_it_is_up_and_has_a_server():
    text = dl_of(NIDS | {"fs-OST0001": None, "fs-OST0002": "<none>", "fs-OST0003": "10.1.1.9@tcp"}).replace(
        "UP osc fs-OST0003", "IN osc fs-OST0003"
    )
    devices = parse_dl.parse(text.encode())
    assert (devices.served, devices.dropped.counts) == (NIDS, Counter({parse_dl.NO_SERVER: 2, parse_dl.DOWN: 1}))


def test_a_line_that_is_cut_off_is_not_read():
    text = dl_of(NIDS).encode()
    cut = parse_dl.parse(text[:-2])
    parse_dl.drop_rest(cut)
    assert (set(NIDS) - set(cut.served), cut.dropped.counts) == ({"fs-OST0015"}, Counter({parse_dl.UNRECOGNISED: 1}))


@given(st.data(), st.sampled_from([df_of(TARGETS).encode(), dl_of(NIDS).encode()]))
def test_of_a_damaged_output_comes_nothing_that_was_not_there(data, text):
    at = data.draw(st.integers(0, len(text)))
    junk = data.draw(st.binary(max_size=5).map(lambda b: bytes(c for c in b if c < 9 or c > 126)))
    damaged = data.draw(st.sampled_from([text[:at], text[at:], text[:at] + junk + text[at + len(junk) :], text[:at] + junk + text[at:]]))
    assert parse_df.parse(damaged).targets.items() <= parse_df.parse(text).targets.items()
    assert parse_dl.parse(damaged).served.items() <= parse_dl.parse(text).served.items()


@given(st.binary(max_size=400))
def test_anything_at_all_is_read_without_an_error(text):
    parse_df.parse(text)
    parse_dl.parse(text)


@pytest.mark.parametrize("parser", [parse_df.parse, parse_dl.parse])
@pytest.mark.parametrize("unit", [b"a", b" ", b"\n", b"a ", b"a:", b"[OST:", b"filesystem ", b"UUID ", b"0 UP osc "])
def test_long_nonsense_takes_no_longer_than_it_is_long(parser, unit):
    parser(unit * 300_000)
