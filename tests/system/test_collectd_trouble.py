"""What a real Elasticsearch and a real OpenSearch refuse, lose and forget, and what the collectd collector makes of it."""

import asyncio

import collectd_loader
import pytest
from collectd_documents import Documents
from collectd_search import WAYS, assert_cells, live, meaning, none_open, outcome
from elasticsearch_server import LOGIN, SECURED
from fault_proxy import FaultProxy
from search_faults import PAGES

from tokiod.errors import Fatal, Transient
from tokiod.testing.collector_contract import collected, within
from tokiod.window import Window

pytestmark = pytest.mark.system

START = 1_513_152_000
SPAN = Window(START, START + 600)
PAGE = 500


@pytest.fixture(scope="module")
def documents():
    return Documents(seed=2)


@pytest.fixture(scope="module")
def index(search_server, documents):
    collectd_loader.load(search_server, "trouble", documents.hits(SPAN.start, SPAN.end), shards=2)
    yield "trouble"
    collectd_loader.remove(search_server, "trouble")


@pytest.fixture(scope="module")
def right(documents):
    """{dataset: {(time, column): value}} of SPAN."""
    return documents.cells(SPAN.start, SPAN.end, 10)


class TestIndices:
    """No data is not the same as no index."""

    def test_an_alias_over_two_indices_gives_what_is_in_both(self, search_server, own, documents, right):
        hits = documents.hits(SPAN.start, SPAN.end)
        collectd_loader.load(search_server, f"{own}-1", hits[::2], mapping="text", shards=2)
        collectd_loader.load(search_server, f"{own}-2", hits[1::2], mapping="text")
        collectd_loader.alias(search_server, f"{own}-both", f"{own}-1", f"{own}-2")
        for read, slices in WAYS:
            assert_cells(meaning(live(search_server, f"{own}-both", read=read, slices=slices, page=PAGE), SPAN), right)

    @pytest.mark.parametrize("read", ["scroll", "pit"])
    def test_an_index_without_documents_of_a_window_is_no_data(self, search_server, own, documents, read):
        collectd_loader.load(search_server, own, documents.hits(SPAN.start, SPAN.end))
        assert meaning(live(search_server, own, read=read), Window(SPAN.end + 3600, SPAN.end + 7200)) == {}

    @pytest.mark.parametrize("read", ["scroll", "pit"])
    def test_a_wildcard_without_an_index_is_an_error_and_days_without_one_are_no_data(self, search_server, own, read):
        with pytest.raises(Transient, match=f"no index matches {own}-"):
            meaning(live(search_server, f"{own}-*", read=read), SPAN)
        assert meaning(live(search_server, f"{own}-%Y.%m.%d", read=read), SPAN) == {}
        assert none_open(search_server)

    @pytest.mark.parametrize("read", ["scroll", "pit"])
    def test_a_wildcard_whose_indices_have_all_been_deleted_is_an_error_from_then_on(self, search_server, own, documents, right, read):
        """OpenSearch can't open a point in time over nothing: it falls over a null pointer."""
        collectd_loader.load(search_server, f"{own}-1", documents.hits(SPAN.start, SPAN.end))

        async def before_and_after(collector):
            before = await outcome(collector, SPAN)
            await asyncio.to_thread(collectd_loader.remove, search_server, f"{own}-1")
            with pytest.raises(Transient, match=f"no index matches {own}-"):
                await outcome(collector, SPAN)
            return before

        assert_cells(within(live(search_server, f"{own}-*", read=read), before_and_after), right)

    @pytest.mark.parametrize("read", ["scroll", "pit"])
    def test_an_alias_that_points_nowhere_is_an_error_that_names_it(self, search_server, own, documents, right, read):
        collectd_loader.load(search_server, f"{own}-1", documents.hits(SPAN.start, SPAN.end))
        collectd_loader.alias(search_server, f"{own}-alias", f"{own}-1")
        collector = live(search_server, f"{own}-alias", read=read)
        assert_cells(meaning(collector, SPAN), right)
        collectd_loader.alias(search_server, f"{own}-alias")
        with pytest.raises(Fatal, match=f"{own}-alias"):
            meaning(collector, SPAN)

    @pytest.mark.parametrize("read", ["scroll", "pit"])
    def test_a_shard_that_is_gone_fails_the_window_until_it_is_back(self, search_server, own, documents, right, read):
        """OpenSearch says _shards.failed = 0 of it, and opens a point in time without it."""
        collectd_loader.load(search_server, f"{own}-1", documents.hits(SPAN.start, SPAN.end))
        elsewhere = {"routing.allocation.require._name": "no such node", "number_of_replicas": 0}
        search_server.ask("PUT", f"/{own}-2?wait_for_active_shards=0", {"settings": elsewhere})
        collectd_loader.alias(search_server, own, f"{own}-1", f"{own}-2")
        collector = live(search_server, own, read=read)
        with pytest.raises(Transient):
            meaning(collector, SPAN)
        with pytest.raises(Transient):
            within(collector, lambda c: c.count(SPAN))
        search_server.ask("PUT", f"/{own}-2/_settings", {"index.routing.allocation.require._name": None})
        search_server.ask("GET", f"/_cluster/health/{own}-2?wait_for_status=green&timeout=100s")
        assert_cells(meaning(collector, SPAN), right)
        assert none_open(search_server)

    @pytest.mark.parametrize("read", ["scroll", "pit"])
    def test_an_index_deleted_in_the_middle_never_leaves_half_of_it(self, search_server, own, documents, read):
        hits = documents.hits(SPAN.start, SPAN.end)
        collectd_loader.load(search_server, f"{own}-1", hits[::2])
        collectd_loader.load(search_server, f"{own}-2", hits[1::2])
        collectd_loader.alias(search_server, own, f"{own}-1", f"{own}-2")

        async def deleted(exchange):
            await asyncio.to_thread(collectd_loader.remove, search_server, f"{own}-2")
            return await exchange.forward()

        with FaultProxy(search_server.url) as proxy:
            proxy.plan(deleted, on=PAGES, nth=[3])
            collector = live(proxy, own, read=read, page=PAGE)
            # What began with two indices either fails or begins again, and then has what one of them holds.
            try:
                found = meaning(collector, SPAN)
            except Transient:
                found = meaning(collector, SPAN)
            assert proxy.made == ["deleted"]
        assert found == meaning(live(search_server, f"{own}-1"), SPAN)
        assert none_open(search_server)

    def test_documents_that_become_visible_late_are_counted_and_come_with_the_next_attempt(self, search_server, own, documents, right):
        hits = documents.hits(SPAN.start, SPAN.end)
        collectd_loader.create(search_server, own, refresh_interval=-1)
        collectd_loader.add(search_server, own, hits[::2])
        collectd_loader.add(search_server, own, hits[1::2], refresh=False)

        async def before_and_after(collector):
            before = await outcome(collector, SPAN), await collector.count(SPAN)
            await asyncio.to_thread(search_server.ask, "POST", f"/{own}/_refresh")
            return before, (await outcome(collector, SPAN), await collector.count(SPAN))

        before, after = within(live(search_server, own), before_and_after)
        assert_cells(after[0], right)
        assert 0 < sum(map(len, before[0].values())) < sum(map(len, after[0].values()))
        assert after[1] > before[1] > 0


class TestContexts:
    """What the server keeps open for us is given back, and where it can't or won't keep it the window is asked again."""

    @pytest.mark.parametrize(("read", "slices"), [("scroll", 1), ("pit", 2)])
    def test_a_context_that_ends_too_early_costs_nothing(self, search_server, index, right, read, slices):
        async def late(exchange):
            await asyncio.sleep(2)
            return await exchange.forward()

        with FaultProxy(search_server.url) as proxy:
            proxy.plan(late, on=PAGES, nth=[4])
            collector = live(proxy, index, read=read, slices=slices, page=PAGE, keep_alive=1)
            try:
                found = meaning(collector, SPAN)
            except Transient:
                found = meaning(collector, SPAN)
            assert proxy.made == ["late"]
        assert_cells(found, right)
        assert none_open(search_server)

    def test_too_many_scrolls_are_a_matter_of_time(self, search_server, index, right):
        search_server.set(search__max_open_scroll_context=1)
        try:
            with pytest.raises(Transient, match=r"(?i)too many"):
                meaning(live(search_server, index, read="scroll"), SPAN)
        finally:
            search_server.set(search__max_open_scroll_context=None)
        assert none_open(search_server)
        assert_cells(meaning(live(search_server, index, read="scroll"), SPAN), right)

    @pytest.mark.parametrize("search_server", ["opensearch"], indirect=True)
    def test_too_many_points_in_time_are_a_matter_of_time(self, search_server, index, right):
        search_server.set(search__max_open_pit_context=1)
        try:
            with pytest.raises(Transient, match=r"(?i)too many"):
                meaning(live(search_server, index, read="pit"), SPAN)
        finally:
            search_server.set(search__max_open_pit_context=None)
        assert none_open(search_server)
        assert_cells(meaning(live(search_server, index, read="pit"), SPAN), right)

    @pytest.mark.parametrize(("read", "slices"), WAYS)
    def test_cancelled_at_any_moment_it_leaves_no_context(self, search_server, index, read, slices):
        async def cancelled(collector):
            seconds = 0.002
            while True:
                try:
                    async with asyncio.timeout(seconds):
                        return await collected(collector, SPAN)
                except TimeoutError:
                    seconds *= 1.4
                    # Not only in the end: what a cancelled attempt opened is closed while the collector lives on.
                    assert await asyncio.to_thread(none_open, search_server)

        assert within(live(search_server, index, read=read, slices=slices, page=100), cancelled)
        assert none_open(search_server)


@pytest.mark.parametrize("search_server", [SECURED], indirect=True)
class TestSecurity:
    """A password and TLS."""

    @pytest.fixture
    def secured(self, search_server, own, documents):
        collectd_loader.load(search_server, own, documents.hits(SPAN.start, SPAN.end))
        return lambda password=LOGIN[1], ca=search_server.ca: live(
            search_server, own, user=LOGIN[0], password_env="ES", tls_ca=ca, secrets={"env:ES": password}
        )

    def test_the_right_password_opens(self, secured, right):
        assert_cells(meaning(secured(), SPAN), right)

    def test_a_wrong_password_is_for_a_person_and_never_shown(self, secured):
        with pytest.raises(Fatal) as caught:
            meaning(secured(password="battery staple"), SPAN)
        assert "battery staple" not in repr(caught.value) + str(caught.value)
        assert "password" in str(caught.value)

    def test_a_certificate_that_nobody_vouches_for_is_for_a_person(self, secured):
        with pytest.raises(Fatal, match="certificate"):
            meaning(secured(ca=None), SPAN)
