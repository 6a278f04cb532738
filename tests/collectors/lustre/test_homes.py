"""Where targets are at home: configured, learned, guessed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lustre_site import servers

from collectors.lustre.homes import Homes

OSTS = [f"fs-OST{index:04x}" for index in range(12)]
HOME = servers(OSTS)


def away(served, homes=None):
    homes = homes or Homes({})
    homes.learn(served)
    return {target for target, is_away in homes.away(served).items() if is_away}


def unknown(served):
    homes = Homes({})
    homes.learn(served)
    return {target for target, is_away in homes.away(served).items() if is_away is None}


def test_where_every_server_has_as_many_all_are_at_home():
    assert (away(HOME), unknown(HOME)) == (set(), set())


@given(st.sets(st.integers(0, 11), max_size=3))
def test_what_was_seen_at_home_is_known_to_be_away_later_and_back_again(gone):
    homes = Homes({})
    homes.learn(HOME)
    moved = HOME | {OSTS[i]: HOME[OSTS[(i + 1) % 12]] for i in gone}
    assert away(moved, homes) == {OSTS[i] for i in gone}
    assert away(HOME, homes) == set()


@pytest.mark.parametrize("lost", range(1, 11))
@pytest.mark.parametrize("way", [1, -1])
def test_the_first_output_shows_targets_away_from_home_by_the_order_of_targets_and_servers(lost, way):
    served = HOME | {OSTS[lost]: HOME[OSTS[lost + way]]}
    assert (away(served), unknown(served)) == ({OSTS[lost]}, set())


def test_several_targets_to_a_server_are_no_guests():
    two = {ost: HOME[OSTS[place // 2]] for place, ost in enumerate(OSTS)}
    assert (away(two), unknown(two)) == (set(), set())
    moved = two | {OSTS[4]: two[OSTS[6]], OSTS[5]: two[OSTS[6]]}
    assert (away(moved), unknown(moved)) == ({OSTS[4], OSTS[5]}, set())


def test_where_the_order_is_ambiguous_the_home_is_unknown():
    served = {
        "fs-OST0000": "a@tcp",
        "fs-OST0001": "a@tcp",
        "fs-OST0002": "a@tcp",
        "fs-OST0003": "b@tcp",
        "fs-OST0005": "b@tcp",
        "fs-OST0007": "c@tcp",
    }
    assert unknown(served) <= set(served)
    assert not away(served)


def test_a_configured_home_wins():
    assert away(HOME, Homes({OSTS[3]: "10.9.9.9@tcp"})) == {OSTS[3]}


def test_file_systems_and_sorts_of_targets_are_looked_at_apart():
    mdts = {"fs-MDT0000": HOME[OSTS[0]], "other-OST0000": HOME[OSTS[0]]}
    assert (away(HOME | mdts), unknown(HOME | mdts)) == (set(), set())


def test_the_server_that_served_a_target_most_often_is_its_home():
    homes = Homes({})
    for nid in ("10.1.1.1@tcp", "10.1.1.2@tcp", "10.1.1.2@tcp"):
        homes.learn({"fs-OST0000": nid})
    assert [homes.away({"fs-OST0000": nid})["fs-OST0000"] for nid in ("10.1.1.1@tcp", "10.1.1.2@tcp")] == [True, False]
