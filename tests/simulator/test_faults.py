from dataclasses import fields, replace

import numpy as np
import pytest

from tokiod.simulator.drawn import draw
from tokiod.simulator.faults import BLOCK, Trouble, trouble
from tokiod.simulator.site import Site

MIDNIGHT = 1_517_126_400


@pytest.mark.parametrize("seed", range(5))
def test_every_kind_of_trouble_comes_up_within_two_hours(seed):
    site = Site(epoch=MIDNIGHT - 3600, seed=seed)
    seen = {field.name: any(getattr(trouble(site, block), field.name).any() for block in range(2)) for field in fields(Trouble)}
    assert seen == dict.fromkeys(seen, True)


def test_a_site_without_trouble_has_none():
    calm = trouble(Site(epoch=MIDNIGHT - 3600, trouble=False), 0)
    assert {field.name: int(getattr(calm, field.name).sum()) for field in fields(Trouble)} == {field.name: 0 for field in fields(Trouble)}


def test_trouble_gathers_around_a_midnight_of_the_sites_own_zone():
    steps = np.arange(BLOCK)
    near = abs(MIDNIGHT - 1800 + 5 * steps - MIDNIGHT) <= 10
    rates = []
    for zone in ("America/Los_Angeles", "UTC"):
        absent = np.concatenate([trouble(Site(epoch=MIDNIGHT - 1800, seed=seed, timezone=zone), 0).ost_absent[near] for seed in range(30)])
        rates.append(absent.mean())
    assert rates[0] > 0.2
    assert rates[1] < 0.1


def test_a_step_is_never_both_missing_and_twice_there_and_the_first_step_never_twice():
    for seed in range(200):
        now = trouble(Site(epoch=MIDNIGHT, seed=seed), 0)
        assert not (now.missing & now.twice).any()
        assert not now.twice[0]


def test_numbers_depend_on_seed_stream_and_block_and_on_nothing_else():
    site = Site(epoch=MIDNIGHT)
    first = draw(site, "a", 3, 5)
    draw(site, "b", 9, 1000)
    assert np.array_equal(draw(replace(site, osts=99), "a", 3, 5), first)
    others = [draw(replace(site, seed=2), "a", 3, 5), draw(site, "b", 3, 5), draw(site, "a", 4, 5)]
    assert not any(np.isin(other, first).any() for other in others)
