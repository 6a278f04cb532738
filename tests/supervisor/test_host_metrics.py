"""What a scrape reports of the hosts: their states, as the daemon wrote them."""

import msgspec
from many_hosts import ManyHosts

from tokiod.metrics import catalogue
from tokiod.published.hosts import HostState
from tokiod.supervisor.metrics_snapshot import _hosts, take_snapshot

NOW = 1_517_140_800.0
STATES = [
    HostState(name="zone-b", trouble="clock", reason="ahead", contact=NOW, clock=3600.0, clock_bound=0.1, refused={"not asked": 3}),
    HostState(name="zone-c", trouble="new"),
]


def test_every_host_but_the_writers_has_its_metrics(tmp_path):
    many = ManyHosts(tmp_path, kind="lmt", own='url = "sqlite:////tmp/none"\n')
    config = many.load()
    config.archive.root.mkdir(parents=True)
    config.hosts_state.write_bytes(msgspec.json.encode(STATES))
    snapshot = take_snapshot(config, NOW)
    assert [one.name for one in snapshot.hosts] == ["zone-b", "zone-c"]
    found = {(s.name, *s.labels.values()): s.value for family in _hosts(snapshot.hosts) for s in family.samples}
    assert {key: value for key, value in found.items() if value or key[0] == "tokiod_host_up"} == {
        ("tokiod_host_up", "zone-b"): 1,
        ("tokiod_host_up", "zone-c"): 0,
        ("tokiod_host_trouble", "zone-b", "clock"): 1,
        ("tokiod_host_trouble", "zone-c", "new"): 1,
        ("tokiod_host_contact_timestamp_seconds", "zone-b"): NOW,
        ("tokiod_host_clock_difference_seconds", "zone-b"): 3600,
        ("tokiod_host_refused_messages_total", "zone-b", "not asked"): 3,
    }
    assert len([key for key in found if key[0] == "tokiod_host_refused_messages_total"]) == 2 * len(catalogue.HOST_REFUSALS)
