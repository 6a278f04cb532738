"""What a Kafka of the tests holds, read with the plain client."""

import asyncio

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic


async def read_topic(address, topic):
    """Return all messages of a topic, partition by partition, in the order of each; [] for one that does not exist."""
    consumer = AIOKafkaConsumer(bootstrap_servers=address, auto_offset_reset="earliest", enable_auto_commit=False)
    await consumer.start()
    try:
        if topic not in await consumer.topics():
            return []
        first = TopicPartition(topic, 0)
        consumer.assign([first])
        await consumer.end_offsets([first])
        partitions = [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic))]
        consumer.assign(partitions)
        ends, found = await consumer.end_offsets(partitions), []
        for one in partitions:
            while await consumer.position(one) < ends[one]:
                found += await next_of(consumer, one)
        return found
    finally:
        await consumer.stop()


async def next_of(consumer, partition):
    return (await consumer.getmany(partition, timeout_ms=1000)).get(partition, [])


def messages(address, topic):
    return asyncio.run(read_topic(address, topic))


def create_topic(address, topic, *, partitions=3, **settings):
    config = {name.replace("_", "."): str(value) for name, value in settings.items()}
    asyncio.run(_with_admin(address, lambda admin: admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=config)])))


def delete_topic(address, topic):
    asyncio.run(_with_admin(address, lambda admin: admin.delete_topics([topic])))


async def _with_admin(address, use):
    admin = AIOKafkaAdminClient(bootstrap_servers=address)
    await admin.start()
    try:
        return await use(admin)
    finally:
        await admin.close()
