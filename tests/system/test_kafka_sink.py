"""The sink of kind kafka and the consumer library, with a real Kafka."""

import asyncio
import signal
import subprocess
import sys
import time
from types import MappingProxyType

import kafka_server
import numpy as np
import pytest
from aiokafka.errors import UnknownTopicOrPartitionError
from kafka_sink import folded, new_sink, secured, sent, updates
from kafka_topics import create_topic, messages

from sinks.kafka import topic_sink
from tokiod.change_sink import Block
from tokiod.consume import Consumer, Stalled, Update
from tokiod.errors import Fatal, TokiodError, Transient
from tokiod.testing.sink_contract import START, SYSTEM, SinkContract, held_of, rows_of, span_of
from tokiod.window import Window

pytestmark = pytest.mark.system

WINDOW = Window(START, START + 120)


def held(kafka, topic):
    return {(dataset, time): cells for (_, dataset, time), cells in folded(updates(kafka, topic)).items()}


class TestKafka(SinkContract):
    options = MappingProxyType({})

    @pytest.fixture
    def sink(self, kafka, topic):
        # A producer's topic is created by its first message.
        create_topic(kafka.address, topic)
        return lambda: new_sink(kafka, topic, **self.options)

    @pytest.fixture
    def held(self, kafka, topic):
        return lambda: held(kafka, topic)

    @pytest.fixture
    def unreachable(self, kafka, topic):
        return lambda: new_sink(kafka, topic, servers=(f"127.0.0.1:{kafka_server.free_port()}",), timeout=1)


class TestKafkaJson(TestKafka):
    options = MappingProxyType({"value": "json", "compression": "gzip", "window": 120})


def test_messages_have_keys_of_a_fixed_grid_and_headers(kafka, topic):
    block = rows_of("fullness/bytes", Window(START, START + 180), 7)
    assert sent(new_sink(kafka, topic), [block])[0].records == 3
    found = {one.key: dict(one.headers) for one in messages(kafka.address, topic)}
    assert found == {
        f"{SYSTEM}/fullness/bytes/{start}".encode(): {
            "version": b"1",
            "epoch": str(block.epoch).encode(),
            "revision": b"7",
            "step": b"60",
            "end": str(start + 60).encode(),
            "units": b"bytes",
            "part": b"0",
            "parts": b"1",
        }
        for start in range(START, START + 180, 60)
    }


def test_a_large_window_is_in_parts_of_one_partition(kafka, topic):
    columns, rows = 20_000, 12
    names = tuple(f"OST{i:05x}" for i in range(columns))
    values = np.arange(columns * rows, dtype=float).reshape(rows, columns)
    blocks = [Block(SYSTEM, "datatargets/readbytes", START + 60 * i, 5, names, values, "bytes", 7, 1) for i in range(4)]
    assert sent(new_sink(kafka, topic), *([one] for one in blocks))[0].records == 5
    found = messages(kafka.address, topic)
    assert max(len(one.value) for one in found) < 520 << 10
    assert len({one.key.rpartition(b"/")[0]: one.partition for one in found}) == 4
    assert len({(one.key.rpartition(b"/")[0], one.partition) for one in found}) == 4
    for update, block in zip(sorted(updates(kafka, topic), key=lambda one: one.start), blocks, strict=True):
        assert update.batch.columns == names
        assert np.array_equal(update.values, block.values)
        assert np.array_equal(update.times, block.times)


def test_with_tls_and_scram_a_user_needs_rights(kafka, topic):
    blocks = span_of(WINDOW, 10)
    sentence = f"user 'collector' may not write to topic '{topic}': grant WRITE and DESCRIBE on it"
    with pytest.raises(Fatal, match=sentence):
        sent(new_sink(kafka, topic, **secured(kafka)), blocks)
    kafka.grant(f"{topic}-other", "Write", "Describe")
    with pytest.raises(Fatal, match=sentence):
        sent(new_sink(kafka, topic, **secured(kafka)), blocks)
    kafka.grant(topic, "Write", "Describe", "Create")
    for login in ("SCRAM-SHA-512", "SCRAM-SHA-256"):
        sent(new_sink(kafka, topic, **secured(kafka, login=login)), blocks)
    assert held(kafka, topic) == held_of(blocks)


def test_with_a_clients_certificate(kafka, topic):
    kafka.grant(topic, "Write", "Describe", "Create")
    options = {"servers": (kafka.mutual,), "tls": True, "tls_ca": kafka.ca, "timeout": 5}
    sent(new_sink(kafka, topic, **options, tls_cert=kafka.client_cert, tls_key=kafka.client_key), blocks := span_of(WINDOW, 10))
    assert held(kafka, topic) == held_of(blocks)
    with pytest.raises((Fatal, Transient)) as caught:
        sent(new_sink(kafka, topic, **options), blocks)
    assert "tls_cert" in str(caught.value)


def test_with_a_password_in_the_clear(kafka, topic):
    kafka.grant(topic, "Write", "Describe", "Create")
    options = {"servers": (kafka.login,), "login": "PLAIN", "user": kafka_server.LOGIN[0]}
    sent(new_sink(kafka, topic, **options, password_file="kafka-password"), blocks := span_of(WINDOW, 10))
    assert held(kafka, topic) == held_of(blocks)
    with pytest.raises(Fatal, match=f"Kafka {kafka.login} does not accept user 'collector'"):
        sent(new_sink(kafka, topic, **options, password_file="wrong"), blocks)


@pytest.mark.usefixtures("ticket")
def test_with_a_kerberos_ticket(kafka, topic, monkeypatch, tmp_path):
    kafka.grant(topic, "Write", "Describe", "Create")
    options = {"servers": (kafka.login,), "login": "GSSAPI"}
    sent(new_sink(kafka, topic, **options), blocks := span_of(WINDOW, 10))
    assert held(kafka, topic) == held_of(blocks)
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path}/none")
    monkeypatch.delenv("KRB5_CLIENT_KTNAME")
    with pytest.raises(Fatal, match=f"Kerberos gives no ticket for Kafka {kafka.login}: .*; check KRB5_CLIENT_KTNAME"):
        sent(new_sink(kafka, topic, **options), blocks)


def test_what_a_person_must_correct_is_one_sentence(kafka, topic):
    blocks = span_of(WINDOW, 10)

    def error(**options):
        with pytest.raises(Fatal) as caught:
            sent(new_sink(kafka, topic, **options), blocks)
        return str(caught.value)

    assert error(**secured(kafka, password_file="wrong")).startswith(f"Kafka {kafka.secured} does not accept user 'collector': Auth")
    assert "is not trusted: self" in error(**secured(kafka, tls_ca=None))
    assert error(servers=("no-such-host.invalid:9092",)).startswith("the host of Kafka no-such-host.invalid:9092 is unknown: ")
    assert "can't be read: No such file" in error(**secured(kafka, tls_ca="/nonexistent.pem"))
    create_topic(kafka.address, topic, max_message_bytes=1000)
    assert error() == f"a message for topic '{topic}' is too large: raise its max.message.bytes to 1 MiB, or set a shorter `window`"


@pytest.mark.parametrize("tls", [True, False])
def test_the_listener_of_other_clients_is_named(kafka, topic, tls):
    options = secured(kafka, servers=(kafka.address,)) if tls else {"servers": (kafka.secured,)}
    with pytest.raises(Transient, match=r"closes the connection|does not answer") as caught:
        sent(new_sink(kafka, topic, timeout=2, **options), span_of(WINDOW, 10))
    assert "check tls, tls_cert, login and the port" in str(caught.value)


def test_one_reachable_server_is_enough(kafka, topic):
    blocks = span_of(WINDOW, 10)
    sent(new_sink(kafka, topic, servers=(f"127.0.0.1:{kafka_server.free_port()}", kafka.address)), blocks)
    assert held(kafka, topic) == held_of(blocks)


@pytest.mark.parametrize(
    ("number", "sentence"),
    [
        (signal.SIGSTOP, "answers, but its cluster does not: do the names in the brokers' advertised"),
        (signal.SIGKILL, "can't be reached|closes"),
    ],
)
def test_a_broker_that_stops_while_the_sink_connects_is_transient(kafka, topic, monkeypatch, number, sentence):
    check = topic_sink.check_a_server

    async def then_stop(*arguments):
        await check(*arguments)
        kafka.signal(number)

    monkeypatch.setattr(topic_sink, "check_a_server", then_stop)
    try:
        with pytest.raises(Transient, match=sentence):
            sent(new_sink(kafka, topic, timeout=3, servers=(kafka.address,) * 3), span_of(WINDOW, 10))
    finally:
        kafka.signal(signal.SIGCONT) if number == signal.SIGSTOP else kafka.start()


def test_the_sink_waits_for_acknowledgements_before_it_holds_more_than_its_limit(kafka, topic, monkeypatch):
    monkeypatch.setattr(topic_sink, "UNACKNOWLEDGED_BYTES", 1000)
    sent(new_sink(kafka, topic), blocks := span_of(WINDOW, 10))
    assert held(kafka, topic) == held_of(blocks)


def test_a_topic_that_the_brokers_do_not_create_is_fatal(kafka, topic, monkeypatch):
    """The error stands in for a broker with auto.create.topics.enable=false, which would be a second server."""

    async def unknown(*_arguments, **_options):
        raise UnknownTopicOrPartitionError

    monkeypatch.setattr(topic_sink.AIOKafkaProducer, "send", unknown)
    with pytest.raises(Fatal, match=f"topic '{topic}' does not exist and the brokers don't create it"):
        sent(new_sink(kafka, topic), span_of(WINDOW, 10))


def test_a_frozen_broker_is_transient_and_what_waited_is_never_sent_later(kafka, topic):
    first, second, third = span_of(WINDOW, 10), span_of(WINDOW, 11, seed=1), span_of(WINDOW, 12, seed=2)

    async def run():
        sink = new_sink(kafka, topic, timeout=2)
        await sink.open()
        await sink.send(first)
        kafka.signal(signal.SIGSTOP)
        try:
            with pytest.raises(Transient, match="acknowledges no message"):
                await sink.send(second)
        finally:
            try:
                await asyncio.wait_for(sink.close(), 10)
            finally:
                kafka.signal(signal.SIGCONT)
        await asyncio.sleep(1)
        again = new_sink(kafka, topic)
        try:
            await again.open()
            await again.send(third)
        finally:
            await again.close()

    asyncio.run(run())
    assert held(kafka, topic) == held_of(third)


def test_a_consumer_follows_and_stalls(kafka, topic):
    first, second = span_of(WINDOW, 10), span_of(WINDOW, 11, seed=1)
    with Consumer(kafka.address, [topic], silence=0.5) as consumer:
        sent(new_sink(kafka, topic), first)
        seen = []
        for event in consumer:
            if isinstance(event, Update):
                seen.append(event)
            elif held_now(seen) == held_of(first):
                sent(new_sink(kafka, topic), second)
            elif held_now(seen) == held_of(second):
                break
            assert event == Stalled(0.5) or isinstance(event, Update)


def held_now(seen):
    return {(dataset, time): cells for (_, dataset, time), cells in folded(seen).items()}


WAITING = """
from tokiod.consume import Consumer
with Consumer({address!r}, [{topic!r}], silence=60) as consumer:
    for words in (("read", "interrupted"), ("read again", "interrupted again")):
        try:
            for event in consumer:
                print(words[0], event.revision, flush=True)
        except KeyboardInterrupt:
            print(words[1], flush=True)
"""


def test_ctrl_c_interrupts_a_consumer_that_waits_and_takes_no_message_from_the_next_iteration(kafka, topic):
    program = [sys.executable, "-c", WAITING.format(address=kafka.address, topic=topic)]
    sent(new_sink(kafka, topic), span_of(WINDOW, 10))
    count, said = len(messages(kafka.address, topic)), []
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        for revision, word in ((10, "read"), (11, "read again")):
            assert {process.stdout.readline() for _ in range(count)} == {f"{word} {revision}\n"}
            time.sleep(0.5)
            process.send_signal(signal.SIGINT)
            said.append(process.stdout.readline())
            if revision == 10:
                sent(new_sink(kafka, topic), span_of(WINDOW, 11))
        assert (process.communicate(timeout=60), process.returncode) == (("", ""), 0)
    assert said == ["interrupted\n", "interrupted again\n"]


def test_an_iteration_goes_on_with_the_event_after_that_at_which_the_one_before_stopped(kafka, topic):
    sent(new_sink(kafka, topic), span_of(WINDOW, 10))
    found = []
    with Consumer(kafka.address, [topic], follow=False) as consumer:
        for _ in range(100):
            for event in consumer:
                found.append((event.dataset, event.start))
                break
    assert sorted(found) == [
        (name, START + at) for name in ("datatargets/readbytes", "datatargets/writebytes", "fullness/bytes") for at in (0, 60)
    ]


def test_a_group_goes_on_where_it_committed(kafka, topic):
    sent(new_sink(kafka, topic), span_of(WINDOW, 10))

    def read(limit):
        found = []
        with Consumer(kafka.address, [topic], follow=False, group=topic) as consumer:
            for event in consumer:
                found.append((event.dataset, event.start))
                if len(found) == limit:
                    break
            consumer.commit()
        return found

    first, second = read(2), read(100)
    # The event that was returned last is not known to be used.
    names = ("datatargets/readbytes", "datatargets/writebytes", "fullness/bytes")
    assert set(first) | set(second) == {(name, START + at) for name in names for at in (0, 60)}
    assert (len(second), set(first) & set(second)) == (5, {first[-1]})


def test_partitions_divide_a_topic(kafka, topic):
    spans = [span_of(Window(START + n * 120, START + n * 120 + 120), 10 + n) for n in range(8)]
    sent(new_sink(kafka, topic), *spans)
    found = []
    for number in range(kafka_server.PARTITIONS):
        with Consumer(kafka.address, [topic], follow=False, partitions=[number]) as consumer:
            part = list(consumer)
        assert part
        found += part
    assert held_now(found) == held_of([block for blocks in spans for block in blocks])


def test_async_for_does_the_same(kafka, topic):
    blocks = span_of(WINDOW, 10)
    sent(new_sink(kafka, topic), blocks)

    async def read():
        async with Consumer(kafka.address, [topic], follow=False) as consumer:
            return [event async for event in consumer]

    assert held_now(asyncio.run(read())) == held_of(blocks)


def test_a_consumer_names_what_is_wrong(kafka, topic):
    with pytest.raises(TokiodError, match=f"topic '{topic}' does not exist"), Consumer(kafka.address, [topic], follow=False) as consumer:
        list(consumer)
    port = kafka_server.free_port()
    with pytest.raises(TokiodError, match=f"Kafka 127.0.0.1:{port} can't be reached"), Consumer(f"127.0.0.1:{port}", [topic]) as consumer:
        list(consumer)
    with pytest.raises(TokiodError, match="needs a group"), Consumer(kafka.address, [topic]) as consumer:
        consumer.commit()
