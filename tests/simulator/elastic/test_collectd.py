import numpy as np
import pytest

from tokiod.simulator.elastic.collectd import BLOCK, INTERVAL, JITTER, Collectd, Fate
from tokiod.simulator.site import Site

EPOCH = 1_513_152_000
SITE = Site(EPOCH, hosts=12, devices=2, cores=2)
CALM = Site(EPOCH, hosts=12, devices=2, cores=2, trouble=False)
BLOCKS = range(20)


def same(one, other):
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in ("time", "found", "fate"))


def test_documents_are_a_function_of_seed_and_step_in_any_order_of_asking():
    forward, backward = Collectd(SITE), Collectd(SITE)
    told = [(forward.told(block), forward.numbers(block)) for block in BLOCKS]
    for block in reversed(BLOCKS):
        assert same(told[block][0], backward.told(block))
        assert np.array_equal(told[block][1], backward.numbers(block), equal_nan=True)


def test_another_seed_tells_something_else():
    other = Collectd(Site(EPOCH, seed=2, hosts=12, devices=2, cores=2))
    assert not same(Collectd(SITE).told(0), other.told(0))


@pytest.mark.parametrize("epoch", [EPOCH, EPOCH + 5])
def test_a_calm_host_speaks_every_ten_seconds_at_a_phase_of_its_own_and_is_found_a_second_later(epoch):
    load = Collectd(Site(epoch, hosts=12, trouble=False))
    told = load.told(0)
    assert len(set(load.phase.tolist())) == 12
    assert (np.diff(told.time, axis=0) == INTERVAL * 1000).all()
    assert ((load.phase >= 0) & (load.phase < INTERVAL * 1000)).all()
    assert np.array_equal(told.time[0], EPOCH * 1000 + load.phase)
    assert (told.found == told.time[:, :, np.newaxis] + 1000).all()
    assert (told.fate == Fate.WRITTEN).all()


def test_in_trouble_a_hosts_samples_stay_in_order_and_sometimes_share_a_cell():
    load = Collectd(SITE)
    times = np.concatenate([load.told(block).time for block in BLOCKS])
    nominal = EPOCH * 1000 + load.phase + INTERVAL * 1000 * np.arange(len(times))[:, np.newaxis]
    assert (np.diff(times, axis=0) > 0).all()
    assert 0 < np.abs(times - nominal).max() <= JITTER
    assert (np.diff(times // (INTERVAL * 1000), axis=0) == 0).any()


def test_late_documents_are_found_within_the_sites_limit():
    load = Collectd(Site(EPOCH, hosts=12, late=90))
    waits = np.concatenate([(told := load.told(block)).found - told.time[:, :, np.newaxis] for block in BLOCKS])
    assert waits.min() == 1000
    assert 80_000 < waits.max() <= 90_000
    assert 0.01 < (waits > 1000).mean() < 0.03


def test_every_fate_befalls_some_documents_and_most_of_them_none():
    fates = np.concatenate([Collectd(SITE).told(block).fate.ravel() for block in BLOCKS])
    assert set(fates.tolist()) == set(Fate)
    assert (fates == Fate.WRITTEN).mean() > 0.9


def test_whole_hosts_fall_silent_for_a_while():
    silent = np.concatenate([(Collectd(SITE).told(block).fate == Fate.ABSENT).all(axis=2) for block in BLOCKS])
    assert (silent[:-2] & silent[1:-1] & silent[2:]).any()


def test_the_last_host_appears_when_the_site_grows():
    load = Collectd(Site(EPOCH, hosts=12, trouble=False, growth=100))
    absent = load.told(0).fate == Fate.ABSENT
    assert np.array_equal(absent[:, -1], np.broadcast_to(np.arange(BLOCK)[:, np.newaxis] < 10, absent[:, -1].shape))
    assert not absent[:, :-1].any()


def test_numbers_are_what_such_series_can_say():
    load = Collectd(CALM)
    first, second = np.concatenate([load.numbers(block) for block in BLOCKS], axis=1)
    for i, series in enumerate(load.series):
        assert np.isnan(first[..., i]).all() != series.disk
        assert np.isfinite(second[..., i]).all()
        assert (second[..., i] >= 0).all()
    assert not np.signbit(second).any()
    idle = second[..., [s.kind == "idle" for s in load.series]]
    user, system = (second[..., [s.kind == kind for s in load.series]] for kind in ("user", "system"))
    assert {0.0, 100.0} < set(idle.ravel().tolist())
    assert (idle + user + system <= 100 + 1e-9).all()
    assert (second[..., [s.plugin == "memory" for s in load.series]] % 4096 == 0).all()
    assert 0.2 < (first[..., 0] == 0).mean() < 0.6


@pytest.mark.parametrize(("sizes", "message"), [({"hosts": 0}, "at least one host"), ({"late": 0}, "late is 0 s")])
def test_a_site_that_cannot_be_is_refused(sizes, message):
    with pytest.raises(ValueError, match=message):
        Site(EPOCH, **sizes)
