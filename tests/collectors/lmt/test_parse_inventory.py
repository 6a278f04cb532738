"""Which components of a database are the file system's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.lmt.parse_inventory import Roster, parse_inventory, places
from tokiod.errors import Fatal


def info(filesystems=((1, "lc1"),), osts=(), osss=(), mdss=(), operations=()):
    tables = {"FILESYSTEM_INFO": filesystems, "OST_INFO": osts, "OSS_INFO": osss, "MDS_INFO": mdss, "OPERATION_INFO": operations}
    return {table: list(rows) for table, rows in tables.items()}


TWO = info(
    filesystems=[(1, "lc1"), (2, "lc10")],
    osts=[(1, 1, "lc1-OST0000"), (2, 2, "lc10-OST0000"), (3, 3, "lc1-OST0001")],
    osss=[(1, 1, "a"), (2, 2, "b"), (3, 1, "c"), (4, 2, "d"), (5, 1, "e")],
    mdss=[(1, 1, "lc1-MDT0000", "m"), (2, 2, "lc10-MDT0000", "n")],
)


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ("lc1", (("lc1-OST0000", "lc1-OST0001"), ("a", "c", "e"), ("m",), ("lc1-MDT0000",))),
        ("lc10", (("lc10-OST0000",), ("b", "d"), ("n",), ("lc10-MDT0000",))),
    ],
)
def test_of_two_file_systems_one_whose_name_begins_like_the_other_gets_its_own_only(wanted, names):
    stock = parse_inventory(TWO, wanted, "mdt")
    assert tuple(roster.names for roster in (stock.osts, stock.osss, stock.mdss, stock.mdts)) == names


def test_with_several_and_no_choice_the_names_are_reported():
    with pytest.raises(Fatal, match='the database holds several file systems: set filesystem to one of "lc1", "lc10"'):
        parse_inventory(TWO, None, "mdt")


def test_a_file_system_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(Fatal, match='the database holds no file system "lc2": set filesystem to one of "lc1", "lc10"'):
        parse_inventory(TWO, "lc2", "mdt")


def test_targets_of_other_file_systems_with_lmts_prefix_are_left_out_with_their_servers():
    rows = TWO | {"FILESYSTEM_INFO": [(1, "lc1")], "OSS_INFO": [(1, 1, "a"), (2, 1, "b"), (3, 1, "c")]}
    stock = parse_inventory(rows, None, "mdt")
    assert (stock.filesystem, stock.osts.names, stock.osss.names) == ("lc1", ("lc1-OST0000", "lc1-OST0001"), ("a", "c"))
    assert stock.mdts.names == ("lc1-MDT0000",)


@pytest.mark.parametrize("registered", [[], [(1, "lc1")], [(1, "scratch")], [(1, None)]])
def test_where_there_is_but_one_everything_is_its_own_whatever_it_is_registered_as(registered):
    rows = info(
        filesystems=registered,
        osts=[(1, 1, "lc1-OST0000"), (2, 1, "OST0001")],
        osss=[(1, 9, "a"), (2, None, "b")],
        mdss=[(1, 9, "mds", "m")],
    )
    stock = parse_inventory(rows, None, "mdt")
    assert stock.filesystem == "lc1"
    assert (stock.osts.names, stock.osss.names, stock.mdts.names) == (("lc1-OST0000", "OST0001"), ("a", "b"), ("mds",))


def test_without_filesystem_info_the_names_of_osts_tell_the_file_systems():
    assert parse_inventory(TWO | {"FILESYSTEM_INFO": []}, "lc10", "mdt").osss.names == ("b", "d", "e")


def test_a_file_system_may_have_hyphens_in_its_name():
    rows = info(filesystems=[], osts=[(1, 1, "a-OST-b-OST0000"), (2, 1, "a-OST0000")])
    assert parse_inventory(rows, "a-OST-b", "mdt").osts.names == ("a-OST-b-OST0000",)


@pytest.mark.parametrize(("mdt_names", "names"), [("mdt", ("fs-MDT0000", "fs-MDT0001", "fs-MDT0002")), ("host", ("m1", "m2"))])
def test_mdts_are_called_by_their_own_or_by_their_hosts_name_each_name_once(mdt_names, names):
    rows = info(mdss=[(1, 1, "fs-MDT0000", "m1"), (2, 1, "fs-MDT0001", "m1"), (3, 1, "fs-MDT0002", "m2")])
    stock = parse_inventory(rows, None, mdt_names)
    assert (stock.mdts.names, stock.mdss.names) == (names, ("m1", "m2"))


def test_operations_are_known_by_name_and_those_without_a_dataset_are_left_out():
    stock = parse_inventory(info(operations=[(7, "close"), (83, "open"), (9, "quotactl")]), None, "mdt")
    assert {name: ids for name, ids in stock.operations.items() if ids} == {"open": (83,), "close": (7,)}
    assert len(stock.operations) == 12


def test_a_component_without_a_name_is_left_out():
    stock = parse_inventory(info(osts=[(1, 1, None), (2, 1, ""), (3, 1, "lc1-OST0000")]), None, "mdt")
    assert (stock.osts.names, stock.osts.ids.tolist()) == (("lc1-OST0000",), [3])


@given(
    st.lists(st.tuples(st.integers(-5, 2**40), st.sampled_from(["a", "b", "c", None])), unique_by=lambda c: c[0]),
    st.lists(st.integers(-9, 99)),
)
def test_a_roster_finds_the_column_of_every_id_and_of_no_unknown_one(components, ids):
    roster = Roster(components)
    named = dict(components)
    ids += list(named)
    wanted = [roster.names.index(named[i]) if named.get(i) else -1 for i in ids]
    assert roster.columns(np.array(ids, np.int64)).tolist() == wanted
    assert roster.columns(np.array(ids, np.float64)).tolist() == wanted


def test_an_invalid_name_is_left_out_and_counted():
    roster = Roster([(1, "oss1"), (2, "oss\x002"), (3, " oss3"), (4, b"oss4"), (5, None)])
    assert (roster.names, roster.unnamed) == (("oss1",), 3)


def test_an_invalid_id_is_left_out_and_counted():
    roster = Roster([(1, "oss1"), (None, "oss2"), ("3", "oss3"), (4.5, "oss4"), (b"5", "oss5")])
    assert (roster.ids.tolist(), roster.names, roster.unnamed) == ([1], ("oss1",), 4)
    damaged = info(osts=[(1, 1, "lc1-OST0000")]) | {"OPERATION_INFO": [(None, "open"), (7, "close"), ("8) OR (1", "close")]}
    operations = parse_inventory(damaged, None, "mdt").operations
    assert (operations["open"], operations["close"]) == ((), (7,))


def test_a_file_system_whose_name_is_a_number_as_in_a_damaged_file_is_left_out():
    damaged = info(filesystems=[(1, "lc1"), (2, 17)], osts=[(1, 1, "lc1-OST0000"), (2, 1, 18)], mdss=[(1, 1, 19, "m")])
    assert parse_inventory(damaged, None, "mdt").osts.names == ("lc1-OST0000",)


@pytest.mark.parametrize("kind", [np.int64, np.float64])
@pytest.mark.parametrize("known", [[], [7], [3, 4, 5, 6], [3, 4, 6], [-2, 0, 9]])
def test_each_number_has_its_place_among_known_ones(known, kind):
    wanted = np.array([3, 6, 5, -2, 10, 4, 7, 2**53], kind)
    place, is_there = places(np.array(known, np.int64), wanted)
    assert is_there.tolist() == [number in known for number in wanted.tolist()]
    assert [known[at] for at in place[is_there].tolist()] == wanted[is_there].tolist()
    assert not place[~is_there].any()


def test_a_number_between_known_ones_and_nan_are_not_there():
    assert not places(np.array([3, 4, 5]), np.array([3.5, np.nan, np.inf]))[1].any()
