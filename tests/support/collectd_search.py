"""The collectd collector over a server of the tests: what its tests against real ones share."""

import asyncio
import time

import pytest
from collectd_documents import CPU

from collectors import collectd_es
from tokiod.collector import Site
from tokiod.errors import Transient
from tokiod.reports.archive_inputs import ImportJob, archive
from tokiod.testing import collector_contract
from tokiod.testing.clock import FakeClock
from tokiod.window import Calendar

SITE = Site(Calendar("UTC"), FakeClock(1_600_000_000.0))
WAYS = [("scroll", 1), ("scroll", 2), ("pit", 1), ("pit", 2)]


def live(server, index, *, secrets=None, **options):
    """Return the collector of an index; secrets: {"env:NAME": text}."""
    own = {"name": "collectd", "kind": "collectd_es", "system": "bb", "url": server.url, "index": index}
    config = collectd_es.Config(**own | options)
    assert config.faults() == []
    return collectd_es.live(config, Site(SITE.calendar, SITE.clock, (secrets or {}).__getitem__))


async def outcome(collector, window):
    """{dataset: {(time, column name): value}} of what a window holds."""
    found = await collector_contract.samples(collector, window)
    return {dataset: {(t, name): value for t, name, value in cells} for dataset, cells in found.items()}


def assert_cells(found, wanted):
    """Compare {dataset: {(time, column): value}}, datasets without cells left out; means may differ in their last digits."""
    wanted = {dataset: cells for dataset, cells in wanted.items() if cells}
    assert {dataset: set(cells) for dataset, cells in found.items()} == {dataset: set(cells) for dataset, cells in wanted.items()}
    for dataset, cells in wanted.items():
        assert found[dataset] == (pytest.approx(cells, rel=1e-12) if dataset in CPU else cells), dataset


def meaning(collector, window):
    """What `outcome` finds, of a collector that is used for that alone."""
    return collector_contract.within(collector, lambda c: outcome(c, window))


def archived(collector, window, out):
    """Write a window as `tokioctl archive` does it, to a new file."""
    job = ImportJob("collectd_es", collector, window, None, out)
    return collector_contract.within(collector, lambda _: archive(job, SITE.clock))


def none_open(server, seconds=5):
    """Whether the server has no context open any more; one that is being closed gets a moment."""
    end = time.monotonic() + seconds
    while server.open_contexts():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


class Patient:
    """A collector that asks again what failed for a time, as the poller does. failures: what went wrong, in order."""

    replayable, needs_sample_at_end = True, False

    def __init__(self, collector, attempts=20):
        self.step, self.failures, self.close, self.count = collector.step, [], collector.close, collector.count
        self._collector, self._attempts = collector, attempts

    async def collect(self, window):
        for _ in range(self._attempts):
            try:
                return await self._collector.collect(window)
            except Transient as error:
                self.failures.append(error)
                await asyncio.sleep(0.01)
        raise self.failures[-1]
