"""Both ends of the connections of hosts, over real sockets with keys; the kind of the sources exists only in the test."""

import asyncio
import gc
import re
import socket as sockets
import sys
import time
from contextlib import contextmanager

import numpy as np
import pytest
import zmq
import zmq.asyncio
from many_hosts import KIND, ManyHosts, in_loop, until
from structlog.testing import capture_logs

import collectors
from tokiod.archive.lock import AlreadyRunning, ProcessLock
from tokiod.bus.curve import host_client_keys
from tokiod.bus.server_socket import ServerSocket
from tokiod.clock import SimulatedClock, SystemClock
from tokiod.collector import Site, collect_window
from tokiod.config import hosts, plugins
from tokiod.crossing import dialogue
from tokiod.crossing.asking import RemoteFault
from tokiod.crossing.codec import encode
from tokiod.crossing.remote import remote_collector
from tokiod.errors import ConfigError, Fatal, NotYet, Refusal, Transient
from tokiod.polling.hosts import host_process, remote_host
from tokiod.polling.hosts import host_protocol as protocol
from tokiod.polling.hosts import links as links_module
from tokiod.polling.hosts import relay as relay_module
from tokiod.reports.hosts import read
from tokiod.runtime.service import Service
from tokiod.testing.clock import FakeClock
from tokiod.window import Calendar, Window
from tokiod.window_data import WindowData

NOON = 1_517_140_800


@pytest.fixture
def many(tmp_path, monkeypatch):
    (tmp_path / "kinds").mkdir()
    (tmp_path / "kinds" / "many_hosts.py").write_text(KIND)
    monkeypatch.setattr(collectors, "__path__", [*collectors.__path__, str(tmp_path / "kinds")])
    monkeypatch.setattr(remote_host, "RECONNECT_SECONDS", 0.2)
    yield ManyHosts(tmp_path)
    sys.modules.pop("collectors.many_hosts", None)


def collector(links, config, name, datasets=None):
    section = next(source for source in config.source if source.name == name)
    twin = plugins.load(section.kind).live(section, Site(Calendar("UTC"), None))
    return section, remote_collector(links.hosts[hosts.host_of(config.host, name).name], section, twin, SystemClock(), datasets)


def same(one, two):
    assert (one.meta, one.trouble, len(one.batches)) == (two.meta, two.trouble, len(two.batches))
    for a, b in zip(one.batches, two.batches, strict=True):
        assert (a.dataset, a.form, a.step, a.columns) == (b.dataset, b.form, b.step, b.columns)
        for field in ("time", "column", "value"):
            assert np.array_equal(getattr(a, field), getattr(b, field))


@in_loop
async def test_a_window_of_another_host_is_what_its_collector_returned(many):
    config, window = many.load(), Window(NOON, NOON + 60)
    async with many.running("zone-b", "zone-c") as links:
        section, remote = collector(links, config, "b-one")
        there = await collect_window(remote, section, window)
        here = await collect_window(plugins.load("many_hosts").live(section, None), section, window)
        assert (remote.replayable, remote.needs_sample_at_end, remote.step) == (True, True, 5)
        assert await remote.count(window) == 12
    same(there, here)


@in_loop
async def test_a_window_of_many_parts_arrives_whole(many):
    many.write(extra="columns_wanted = 5000\n")  # of c-one, the last section
    config, window = many.load(), Window(NOON, NOON + 600)
    async with many.running("zone-c") as links:
        section, remote = collector(links, config, "c-one")
        there = await collect_window(remote, section, window)
        here = await collect_window(plugins.load("many_hosts").live(section, None), section, window)
    assert sum(map(len, there.batches)) == 2 * 120 * 5000
    same(there, here)


@pytest.mark.parametrize(
    ("second", "kind", "text"),
    [
        (1, Transient, "down (on host zone-b)"),
        (2, NotYet, "lags (on host zone-b)"),
        (3, Fatal, "no right (on host zone-b)"),
        (4, RemoteFault, "ValueError: a bug (on host zone-b)"),
    ],
)
@in_loop
async def test_a_failure_there_is_the_same_failure_here(many, second, kind, text):
    async with many.running("zone-b") as links:
        section, remote = collector(links, many.load(), "b-one")
        with pytest.raises(kind) as caught:
            await collect_window(remote, section, Window(NOON + second, NOON + second + 60))
    assert (type(caught.value), str(caught.value)) == (kind, text)
    assert getattr(caught.value, "ended_at", None) == {NotYet: 1_800_000_000, Transient: 1_700_000_000}.get(kind)


@in_loop
async def test_a_window_that_takes_too_long_is_given_up_at_both_ends(many):
    async with many.running("zone-b") as links:
        section, remote = collector(links, many.load(), "b-one")
        with pytest.raises(TimeoutError):
            await collect_window(remote, section, Window(NOON + 1800, NOON + 1860), seconds=0.2)
        assert await remote.count(Window(NOON, NOON + 60)) == 12
        assert links.hosts["zone-b"].refused == {}


@in_loop
async def test_many_sources_can_be_asked_at_the_same_moment(many):
    async with many.running("zone-b", "zone-c") as links:
        b, c = links.hosts.values()
        assert all(links._send(host.route, dialogue.Close("b-one", number)) for number in range(60) for host in (b, c))
        heard = b.state().contact, c.state().contact
        b.beat()
        c.beat()
        await until(lambda: b.state().contact > heard[0] and c.state().contact > heard[1])


@in_loop
async def test_what_is_stored_reaches_the_collector_of_its_lane(many):
    async with many.running("zone-b") as links:
        section, remote = collector(links, many.load(), "b-one")
        window = Window(NOON, NOON + 60)
        await collect_window(remote, section, window)
        made = plugins.load("many_hosts").made[-1]
        remote.note_stored(window)
        await until(lambda: made.stored == [window])


@in_loop
async def test_an_unreachable_host_is_the_matter_of_its_own_sources(many):
    config, window = many.load(), Window(NOON, NOON + 60)
    async with many.running("zone-b") as links:
        section, remote = collector(links, config, "c-one")
        with pytest.raises(
            Transient, match=r"^host zone-c has not connected since the daemon started: does `tokiod collectors` run there\?$"
        ):
            await collect_window(remote, section, window)
        section, remote = collector(links, config, "b-one")
        assert len((await collect_window(remote, section, window)).batches) == 2


@in_loop
async def test_requests_of_a_host_that_stops_fail_at_once_and_are_answered_by_the_next_process(many):
    async with many.running() as links:
        first = asyncio.create_task(many.host("zone-b").run())
        await until(lambda: links.hosts["zone-b"].route)
        section, remote = collector(links, many.load(), "b-one")
        asked = asyncio.create_task(collect_window(remote, section, Window(NOON + 1800, NOON + 1860)))
        await asyncio.sleep(0.1)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        with pytest.raises(Transient, match=r"host zone-b has stopped its collectors .*; its sources wait, those of other hosts go on"):
            await asked
        assert links.hosts["zone-b"].state().trouble == "stopped"
        second = asyncio.create_task(many.host("zone-b").run())
        assert len((await collect_window(remote, section, Window(NOON, NOON + 60))).batches) == 2
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)


@in_loop
async def test_a_request_whose_connection_has_just_ended_fails_without_an_error_in_the_log(many):
    unnoticed = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: unnoticed.append(context["message"]))
    async with many.running("zone-b") as links:
        host = links.hosts["zone-b"]
        _, remote = collector(links, many.load(), "b-one")
        host._send = lambda _route, _message: False
        with pytest.raises(Transient, match=r"host zone-b is unreachable .its connection has ended"):
            await remote.collect(Window(NOON, NOON + 60))
        gc.collect()
    assert unnoticed == []


@in_loop
async def test_a_silent_host_is_unreachable(many, monkeypatch):
    monkeypatch.setattr(links_module, "BEAT_SECONDS", 0.05)
    monkeypatch.setattr(remote_host, "SILENCE_SECONDS", 0.3)
    async with many.running() as links:
        with dealer(many, "zone-b") as socket:
            await socket.send(hello("zone-b"))
            await until(lambda: links.hosts["zone-b"].route)
            await until(lambda: links.hosts["zone-b"].state().trouble == "unreachable")
            assert "no message for 0.3 s, last contact 20" in links.hosts["zone-b"].sentence()


# ---- keys


@contextmanager
def dealer(many, name):
    """A client with the key of a host, which says what the test makes it say."""
    config = many.load()
    context = zmq.asyncio.Context()
    socket = context.socket(zmq.DEALER)
    host_client_keys(config.host, hosts.this_host(config.host, name, ""), config.secrets).secure(socket)
    socket.connect(hosts.writers_host(config.host).endpoint)
    try:
        yield socket
    finally:
        context.destroy(linger=0)


def hello(name, version=protocol.VERSION, session="rogue"):
    return protocol.encode(protocol.Hello(name, session, version, "0.1.0"))


def window_of(number):
    return [dialogue.encode(dialogue.Data(number, 0, 1)), *encode(WindowData())]


async def refused(links, name, count=1):
    await until(lambda: links.hosts[name].refused.total() >= count)
    return dict(links.hosts[name].refused)


@in_loop
async def test_a_key_is_of_one_name_only(many):
    async with many.running() as links:
        with dealer(many, "zone-b") as socket:
            await socket.send(hello("zone-c"))
            answer = protocol.decode_to_host(await socket.recv())
            assert (answer.reason, await refused(links, "zone-b")) == (
                "a process with the key of host zone-b greeted as zone-c",
                {"another host's name": 1},
            )
            assert links.hosts["zone-c"].route is None


@in_loop
async def test_a_host_can_not_deliver_a_window_of_another_hosts_source(many):
    async with many.running("zone-c") as links:
        section, remote = collector(links, many.load(), "c-one")
        # The request whose number the other host guesses is open meanwhile.
        asked = asyncio.create_task(collect_window(remote, section, Window(NOON + 1800, NOON + 1860)))
        await asyncio.sleep(0.1)
        with dealer(many, "zone-b") as socket:
            await socket.send(hello("zone-b"))
            await socket.recv()
            for number in range(1, 4):
                await socket.send_multipart(window_of(number))
            assert await refused(links, "zone-b", 3) == {"not asked": 3}
        assert not asked.done()
        asked.cancel()


@in_loop
async def test_a_window_that_was_not_asked_for_is_refused(many):
    async with many.running() as links:
        with dealer(many, "zone-b") as socket:
            await socket.send(hello("zone-b"))
            await socket.recv()
            await socket.send_multipart(window_of(7))
            assert await refused(links, "zone-b") == {"not asked": 1}
            await socket.send(dialogue.encode(dialogue.Counted(9, 3)))
            await until(lambda: links.hosts["zone-b"].refused["not asked"] == 2)


@in_loop
async def test_incomplete_windows_of_all_hosts_share_their_memory_and_the_host_with_most_gives_up_its_own(many, monkeypatch):
    monkeypatch.setattr(links_module, "MAX_INCOMPLETE_BYTES", 100_000)
    async with many.running() as links:
        with dealer(many, "zone-b") as small, dealer(many, "zone-c") as large:
            asked = []
            for socket, zone, source, nbytes in ((small, "zone-b", "b-one", 20_000), (large, "zone-c", "c-one", 50_000)):
                await socket.send(hello(zone))
                await until(lambda zone=zone: links.hosts[zone].route)
                section, remote = collector(links, many.load(), source)
                asked.append(asyncio.create_task(collect_window(remote, section, Window(NOON, NOON + 60))))
                while not isinstance(message := protocol.decode_to_host(await socket.recv()), dialogue.Collect):
                    pass
                for part in range(2):
                    await socket.send_multipart([dialogue.encode(dialogue.Data(message.id, part, 3)), bytes(nbytes)])
            with pytest.raises(Transient, match="host zone-c sent windows of over"):
                await asked[1]
            assert not asked[0].done()
            asked[0].cancel()


@in_loop
async def test_malformed_messages_are_counted_and_harm_nothing(many):
    async with many.running("zone-c") as links:
        with dealer(many, "zone-b") as socket:
            await socket.send(b"{")
            await socket.send_multipart([b"a"] * 5)
            await socket.send_multipart(window_of(1))  # before a Hello
            await until(lambda: links.hosts["zone-b"].refused["malformed"] == 3)
        section, remote = collector(links, many.load(), "c-one")
        assert len((await collect_window(remote, section, Window(NOON, NOON + 60))).batches) == 2


@in_loop
async def test_another_version_of_the_wire_is_refused_with_a_sentence(many):
    async with many.running() as links:
        with dealer(many, "zone-b") as socket:
            await socket.send(hello("zone-b", version=99))
            answer = protocol.decode_to_host(await socket.recv())
            assert "it speaks version 99 of the wire, this one speaks" in answer.reason
            assert await refused(links, "zone-b") == {"version": 1}
        assert links.hosts["zone-b"].state().trouble == "refused"
        assert "it speaks version 99 of the wire" in links.hosts["zone-b"].sentence()


class OfVersion:
    """The protocol of a host's process of another version."""

    def __init__(self, version):
        self.VERSION = version

    def __getattr__(self, name):
        return getattr(protocol, name)


@in_loop
async def test_a_host_of_another_version_tries_again_and_answers_once_both_have_the_same(many, monkeypatch):
    monkeypatch.setattr(host_process, "MAX_RECONNECT_SECONDS", 0.3)
    with monkeypatch.context() as before:
        before.setattr(host_process, "protocol", OfVersion(99))
        async with many.running("zone-b", connected=False) as links:
            assert await refused(links, "zone-b", 2) == {"version": 2}
            before.undo()
            await until(lambda: links.hosts["zone-b"].route)
            assert links.hosts["zone-b"].state().trouble == ""
            section, remote = collector(links, many.load(), "b-one")
            assert len((await collect_window(remote, section, Window(NOON, NOON + 60))).batches) == 2


@in_loop
async def test_of_two_processes_with_the_key_of_a_host_the_newer_one_counts(many):
    async with many.running() as links:
        with dealer(many, "zone-b") as older, dealer(many, "zone-b") as newer:
            await older.send(hello("zone-b", session="older"))
            await older.recv()
            await newer.send(hello("zone-b", session="newer"))
            await newer.recv()
            await older.send(hello("zone-b", session="older"))
            answers = [protocol.decode_to_host(await older.recv()) for _ in range(2)]
            assert answers[-1].reason == "another process of host zone-b has connected since"
            assert await refused(links, "zone-b") == {"older process": 1}


@in_loop
async def test_the_older_of_two_processes_counts_again_once_the_newer_one_has_ended(many):
    async with many.running() as links:
        host = links.hosts["zone-b"]
        with dealer(many, "zone-b") as older, dealer(many, "zone-b") as newer:
            for socket, session in ((older, "older"), (newer, "newer")):
                await socket.send(hello("zone-b", session=session))
                await socket.recv()
            await newer.send(protocol.encode(protocol.Goodbye()))
            await until(lambda: host.route is None)
            await older.send(hello("zone-b", session="older"))
            await until(lambda: host.route is not None or host.refused)
            assert (host.refused, host.state().trouble) == ({}, "")
            await newer.send(hello("zone-b", session="newer"))
            await until(lambda: host.refused)
            assert host.refused == {"older process": 1}


@in_loop
async def test_a_revoked_key_receives_nothing_and_is_counted(many, monkeypatch):
    monkeypatch.setattr(host_process, "MAX_RECONNECT_SECONDS", 0.3)
    with capture_logs() as log:
        await _revoke_a_key(many)
    reasons = [event["reason"] for event in log if event["event"] == "host.disconnected" and event["host"] == "zone-b"]
    assert "it refuses the key of this host; hosts.refused in its log gives the reason" in reasons


async def _revoke_a_key(many):
    async with many.running("zone-b", "zone-c") as links:
        many.public_key("zone-b").unlink()
        many.reload(links)
        await until(lambda: links.hosts["zone-c"].route)
        await until(lambda: many.refused("unknown key") >= 2)
        assert links.hosts["zone-b"].route is None
        assert links.hosts["zone-b"].sentence().endswith("keys/hosts/zone-b.key is missing here")
        section, remote = collector(links, many.load(), "b-one")
        with pytest.raises(Transient, match=r"host zone-b is refused: its key .* is missing here"):
            await collect_window(remote, section, Window(NOON, NOON + 60))
        section, remote = collector(links, many.load(), "c-one")
        assert len((await collect_window(remote, section, Window(NOON, NOON + 60))).batches) == 2


@in_loop
async def test_a_host_whose_key_was_replaced_connects_with_the_new_one_only(many, monkeypatch):
    monkeypatch.setattr(host_process, "MAX_RECONNECT_SECONDS", 0.3)
    async with many.running("zone-b") as links:
        many.make_key("zone-b")
        many.reload(links)
        await until(lambda: many.refused("unknown key") >= 1)
        assert links.hosts["zone-b"].route is None
        renewed = asyncio.create_task(many.host("zone-b").run())
        await until(lambda: links.hosts["zone-b"].route)
        renewed.cancel()
        await asyncio.gather(renewed, return_exceptions=True)


def test_two_hosts_can_not_share_a_key(many):
    many.public_key("zone-c").write_bytes(many.public_key("zone-b").read_bytes())
    with pytest.raises(ConfigError, match="the key of host zone-c is that of host zone-b too: make one for each host"), many.relay():
        pass


def test_a_second_relay_is_refused(many, monkeypatch):
    monkeypatch.setattr(relay_module, "RELEASE_SECONDS", 0.0)
    with ProcessLock(many.load().relay_lock), pytest.raises(AlreadyRunning, match=r"process \d+ already is the relay of this daemon"):
        relay_module.run(Service(many.load))


def test_a_missing_secret_key_gets_a_sentence(many):
    (many.directory / "keys" / "zone-b.key_secret").unlink()
    with pytest.raises(ConfigError, match=r"secret key zone-b.key_secret: can't be read .*; `tokiod keygen` makes one"):
        many.host("zone-b")


# ---- clocks


@in_loop
async def test_the_difference_of_clocks_is_measured_reported_and_corrected(many, monkeypatch):
    monkeypatch.setattr(links_module, "BEAT_SECONDS", 0.05)
    now = time.time()
    async with many.running() as links:
        process = many.host("zone-b", SimulatedClock(now + 3600, now, 1.0))
        running = asyncio.create_task(process.run())
        await until(lambda: links.hosts["zone-b"].state().trouble == "clock" and process._clock.difference.is_known)
        state = links.hosts["zone-b"].state()
        assert abs(state.clock - 3600) <= state.clock_bound + 0.01 < 1
        assert state.reason == "its clock is +3600.0 s ahead of the writer's host's, the limit is 2 s: set it by NTP"
        assert abs(process._clock.time() - time.time()) < 1
        section, remote = collector(links, many.load(), "b-one")
        await collect_window(remote, section, Window(NOON, NOON + 60))
        assert abs(plugins.load("many_hosts").made[-1].site.clock.time() - time.time()) < 1
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize(
    ("asked_at", "answered_at"),
    [(NOON - 0.5, NOON + 1), (NOON + 59.5, NOON + 60), (NOON + 60, NOON + 60)],
    ids=["asked too early", "answered too late", "asked too late"],
)
@in_loop
async def test_a_source_without_a_past_is_believed_only_where_its_window_was_present_by_the_daemons_clock(many, asked_at, answered_at):
    # The host's clock is set right only as far as messages on a slow way tell, and not at all before the first.
    with pytest.raises(Transient, match=r"^b-one answered on host zone-b while .* was not the current window: .* belong to another$"):
        await momentary(many, asked_at, answered_at)


@in_loop
async def test_a_window_that_was_present_until_its_answer_came_is_believed(many):
    assert len((await momentary(many, NOON, NOON + 59.9)).batches) == 2


async def momentary(many, asked_at, answered_at):
    """Return a window of a source without a past, which was asked and answered at these times by the daemon's clock."""
    clock = FakeClock(asked_at)
    async with many.running("zone-b", links=many.links(clock)) as links:
        section, _ = collector(links, many.load(), "b-one")
        remote = remote_collector(links.hosts["zone-b"], section, Momentary(), clock, None)
        asked = asyncio.create_task(collect_window(remote, section, Window(NOON, NOON + 60)))
        await asyncio.sleep(0)
        clock.jump(answered_at - asked_at)
        return await asked


class Momentary:
    """What a collector of a source without a past can do."""

    step, replayable, needs_sample_at_end = 5, False, False


# ---- configuration and state


@in_loop
async def test_an_address_that_the_machine_does_not_have_yet_is_tried_again(many, monkeypatch):
    monkeypatch.setattr(relay_module, "RETRY_SECONDS", 0.05)
    links = many.links()
    with many.relay():
        with sockets.socket() as other:
            other.bind(("127.0.0.1", many.port))
            other.listen()
            running = asyncio.create_task(links.run())
            await until(lambda: links.hosts["zone-b"].state().trouble == "unreachable")
            assert "the hosts can't be opened at tcp://127.0.0.1" in links.hosts["zone-b"].sentence()
        await until(lambda: links.hosts["zone-b"].state().trouble == "new")
        host = asyncio.create_task(many.host("zone-b").run())
        await until(lambda: links.hosts["zone-b"].route)
        for task in (host, running):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@in_loop
async def test_an_address_that_the_machine_has_lost_is_tried_again_after_a_key_is_removed(many, monkeypatch):
    monkeypatch.setattr(relay_module, "RETRY_SECONDS", 0.05)
    async with many.running("zone-c") as links:
        with sockets.socket() as other, monkeypatch.context() as patched:
            other.setsockopt(sockets.SOL_SOCKET, sockets.SO_REUSEADDR, 1)
            take_the_port_once_it_is_closed(many, other, patched)
            many.public_key("zone-b").unlink()
            many.reload(links)
            await until(lambda: "the hosts can't be opened" in links.hosts["zone-c"].sentence())
        await until(lambda: links.hosts["zone-c"].route)


@in_loop
async def test_a_reload_without_other_hosts_is_refused(many):
    async with many.running("zone-b") as links:
        route = links.hosts["zone-b"].route
        many.path.write_text(many.path.read_text().partition("[[host]]")[0])
        with capture_logs() as logs:
            many.service.request_reload()
            await until(lambda: any(one["event"] == "config.refused" for one in logs))
        assert [one for one in logs if one["event"] != "host.welcome"] == [
            {"event": "config.refused", "log_level": "error", "faults": [relay_module.NO_HOSTS]}
        ]
        assert links.hosts["zone-b"].route == route


def take_the_port_once_it_is_closed(many, other, monkeypatch):
    close = ServerSocket.close

    def close_and_take(socket, linger_ms=0):
        close(socket, linger_ms)
        if socket._name == "hosts" and other.getsockname()[1] != many.port:
            other.bind(("127.0.0.1", many.port))
            other.listen()

    monkeypatch.setattr(ServerSocket, "close", close_and_take)


@in_loop
async def test_hosts_are_unreachable_while_the_relay_does_not_run_and_connect_to_the_next_one(many, monkeypatch):
    monkeypatch.setattr(links_module, "BEAT_SECONDS", 0.05)
    monkeypatch.setattr(links_module, "RELAY_SILENCE_SECONDS", 0.5)
    monkeypatch.setattr(relay_module, "STATE_SECONDS", 0.1)
    links = many.links()
    tasks = [asyncio.create_task(links.run()), asyncio.create_task(many.host("zone-b").run())]
    host = links.hosts["zone-b"]
    await until(lambda: host.state().trouble == "unreachable")
    assert "`tokiod relay` on the writer's host, to which hosts connect, does not run" in host.sentence()
    for _ in range(2):
        with many.relay():
            await until(lambda: host.route)
            section, remote = collector(links, many.load(), "b-one")
            assert len((await collect_window(remote, section, Window(NOON, NOON + 60))).batches) == 2
        await until(lambda: host.route is None)
    await until(lambda: "does not run" in host.sentence())
    tasks.pop().cancel()
    with many.relay():
        await until(lambda: "does not run" not in host.sentence())
    assert re.fullmatch(r"host zone-b is unreachable \(it has not connected again, last contact 20.*Z\); its sources .*", host.sentence())
    tasks[0].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@in_loop
async def test_the_port_is_closed_without_collectors_and_hosts_connect_again_to_the_next_ones(many, monkeypatch):
    monkeypatch.setattr(relay_module, "SILENCE_SECONDS", 0.5)
    monkeypatch.setattr(relay_module, "STATE_SECONDS", 0.1)
    monkeypatch.setattr(relay_module, "RETRY_SECONDS", 0.1)
    host = asyncio.create_task(many.host("zone-b").run())
    with many.relay() as (relay, _):
        assert relay.hosts is None
        for _ in range(2):
            links = many.links()
            running = asyncio.create_task(links.run())
            await until(lambda links=links: links.hosts["zone-b"].route)
            section, remote = collector(links, many.load(), "b-one")
            assert len((await collect_window(remote, section, Window(NOON, NOON + 60))).batches) == 2
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        await until(lambda: relay.hosts is None)
        opened = relay._opened
        await asyncio.sleep(0.3)
        assert relay._opened == opened
    host.cancel()
    await asyncio.gather(host, return_exceptions=True)


@in_loop
async def test_what_a_host_sends_to_the_collectors_before_is_not_held_against_it(many):
    with many.relay(), dealer(many, "zone-b") as socket:
        for said in ([], 3 * [protocol.encode(protocol.Alive(1.0, 1.0))]):
            links = many.links()
            running = asyncio.create_task(links.run())
            for message in said:
                await socket.send(message)
            while not links.hosts["zone-b"].route:
                await socket.send(hello("zone-b"))
                await asyncio.sleep(0.1)
            assert links.hosts["zone-b"].refused == {}
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


@in_loop
async def test_a_message_of_too_many_frames_or_bytes_is_counted_and_does_not_reach_the_collectors(many):
    async with many.running("zone-c") as links:
        with dealer(many, "zone-b") as socket:
            await socket.send_multipart([b""] * (relay_module.MAX_FRAMES + 1))
            await socket.send_multipart([bytes(60_000)] * 3)
            await until(lambda: links.hosts["zone-b"].refused["malformed"] == 2)
        assert links.hosts["zone-c"].refused == {}


@in_loop
async def test_a_reload_gives_a_source_to_another_host(many):
    many.write(zone_b='"b-one"')
    async with many.running("zone-b") as links:
        section, remote = collector(links, many.load(), "b-one")
        assert len((await collect_window(remote, section, Window(NOON, NOON + 60))).batches) == 2
        links.hosts["zone-b"].tell(dialogue.Close("b-one", 1))
        many.write()
        many.reload(links)
        section, remote = collector(links, many.load(), "b-two")
        with pytest.raises(
            Fatal, match="the configuration of host zone-b gives it no source 'b-two': give all hosts the same configuration"
        ):
            await collect_window(remote, section, Window(NOON, NOON + 60))


@in_loop
async def test_the_states_of_the_hosts_are_in_a_file_while_the_daemon_runs(many):
    config = many.load()
    async with many.running("zone-b") as links:
        links.write_states()
        admin, b, c = read(config, time.time())
        assert (admin.name, admin.role, admin.trouble, admin.sources) == ("admin", "writer", "", ("a-one",))
        assert (b.name, b.role, b.trouble, b.sources, b.version, b.wire) == (
            "zone-b", "collectors", "", ("b-one", "b-two"), "0.1.0", protocol.VERSION,
        )  # fmt: skip
        assert abs(b.contact - time.time()) < 10
        assert (c.name, c.trouble, c.contact) == ("zone-c", "new", None)
        assert [one.trouble for one in read(config, time.time() + 60)] == ["", "unknown", "unknown"]
    assert [one.reason for one in read(config, time.time())][1:] == 2 * ["the collectors' process of the writer's host does not run"]


@in_loop
async def test_a_window_that_can_not_cross_the_wire_is_rejected_for_good(many):
    many.write(extra='columns_wanted = 1\nprefix = "\\u0007"\n')
    async with many.running("zone-c") as links:
        section, remote = collector(links, many.load(), "c-one")
        with pytest.raises(Refusal, match=r"source c-one: columns: column 0, .* expected 1 to 400 printable characters") as caught:
            await collect_window(remote, section, Window(NOON, NOON + 60))
    assert caught.value.when == "never"


@in_loop
async def test_a_host_reads_its_configuration_again_and_keeps_the_one_before_for_a_wrong_one(many):
    many.write(zone_b='"b-one"')
    async with many.running() as links:
        process = many.host("zone-b")
        running = asyncio.create_task(process.run())
        await until(lambda: links.hosts["zone-b"].route)
        many.path.write_text(many.path.read_text().replace("[[host]]", "[[hosts]]"))
        process.reload()
        section, remote = collector(links, links_config := many_config(many), "b-one")
        assert len((await collect_window(remote, section, Window(NOON, NOON + 60))).batches) == 2
        many.write()
        links.configure(links_config)
        before = links.hosts["zone-b"].route
        process.reload()
        section, remote = collector(links, links_config, "b-two")
        await until(lambda: links.hosts["zone-b"].route not in {None, before})
        assert len((await collect_window(remote, section, Window(NOON, NOON + 60))).batches) == 2
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def many_config(many):
    """Return the configuration with both sources on zone-b, and leave the file as it is."""
    before = many.path.read_text()
    try:
        many.write()
        return many.load()
    finally:
        many.path.write_text(before)
