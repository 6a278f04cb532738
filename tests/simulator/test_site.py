from dataclasses import fields, replace

import pytest

from tokiod.simulator.site import Site

EPOCH = 1_517_119_200
OTHER = {"interfaces": 1, "nsds": 9, "nsd_servers": 2, "moment": 300, "failing": False}


def test_a_saved_site_is_read_back_equal(tmp_path):
    site = Site(EPOCH, seed=7, timezone="Europe/Berlin", osts=5, growth=600, trouble=False)
    site.save(tmp_path / "site.json")
    assert Site.read(tmp_path / "site.json") == site


def test_every_field_changes_the_fingerprint():
    other = Site(EPOCH + 5, 2, "UTC", "lc1", 25, 2, 3, trouble=False, growth=0, hosts=3, devices=2, cores=1, late=9, acts=1, **OTHER)
    site = Site(EPOCH)
    changed = [replace(site, **{field.name: getattr(other, field.name)}) for field in fields(Site)]
    assert len({site.fingerprint, *(c.fingerprint for c in changed)}) == 1 + len(fields(Site))
    assert all(0 < c.fingerprint < 2**31 for c in changed)


def test_names_are_lustres_own_hexadecimal_for_targets_and_hosts_for_servers():
    site = Site(EPOCH, osts=11, osss=2, mdts=3)
    assert site.ost_names[9:] == ("snx1-OST0009", "snx1-OST000a")
    assert site.oss_names == ("snx1n100", "snx1n101")
    assert (site.mdt_names, site.mds_names) == (("snx1-MDT0000", "snx1-MDT0001", "snx1-MDT0002"), ("snx1n000", "snx1n001"))


@pytest.mark.parametrize(("growth", "step"), [(None, 0), (0, 0), (1, 1), (5, 1), (3600, 720)])
def test_only_the_last_ost_appears_later(growth, step):
    assert Site(EPOCH, osts=3, growth=growth).appears.tolist() == [0, 0, step]


def test_a_step_is_what_goes_on_at_a_time():
    site = Site(EPOCH)
    assert [site.step(EPOCH + t) for t in (-0.1, 0, 4.9, 5)] == [-1, 0, 0, 1]


@pytest.mark.parametrize("wrong", [{"epoch": 3}, {"osts": 0}, {"mdts": 0}, {"seed": -1}, {"interfaces": 0}])
def test_an_impossible_site_is_refused(wrong):
    with pytest.raises(ValueError, match=r"is not a multiple|at least one|negative"):
        Site(**{"epoch": EPOCH} | wrong)


@pytest.mark.parametrize("wrong", [{"nsds": 2}, {"nsd_servers": 1}, {"moment": 0}, {"moment": 70}])
def test_disks_without_servers_and_moments_that_make_no_hour_are_refused(wrong):
    with pytest.raises(ValueError, match=r"a disk for each|whole number of moments"):
        Site(**{"epoch": EPOCH} | wrong)


def test_an_unknown_time_zone_is_refused():
    with pytest.raises(KeyError, match="Mars"):
        Site(EPOCH, timezone="Mars/Olympus")
