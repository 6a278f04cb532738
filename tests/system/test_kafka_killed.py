"""The short form of `make kafka-kills`."""

import pytest

from tests.system.kafka_kills import run

pytestmark = pytest.mark.system


@pytest.mark.parametrize("seed", [25])
def test_consumers_have_every_cell_after_kills_of_sink_broker_and_writer(kafka, topic, seed):
    print(run(kafka, topic, 6, seed))
