"""The sampler: which sensors are due, when devices are looked for, and that none of the sensors stops the others."""

import os
import time

import pytest

from tokiod.agent.metric import gauge
from tokiod.agent.sampler import Sampler
from tokiod.agent.sensor import Absent, Sensor
from tokiod.agent.tree import Tree


class Fake(Sensor):
    """A sensor that notes when it is called. error: what its sample raises; fd: the descriptor that it waits for."""

    name = "a"
    metrics = (gauge("a_value", "1", ""),)
    period = 1.0

    def __init__(self, name="a", period=1.0, *, is_ahead=False, error=None, fd=None):
        super().__init__(Tree())
        self.name, self.period, self.is_ahead, self.error, self.fd = name, period, is_ahead, error, fd
        self.absent, self.calls = None, []

    def find(self):
        self.calls.append("find")
        if self.absent:
            raise self.absent

    def sample(self, readings, now):
        self.calls.append(now)
        readings.add(self.metrics[0], now)
        if self.error:
            raise self.error

    def read_ahead(self, now, *, is_rare):
        self.calls.append(("ahead", now, is_rare))
        return self.is_ahead

    def understand(self, readings):
        readings.add(self.metrics[0], 7)

    def fileno(self):
        return self.fd

    def heed(self, readings, now):
        readings.add(self.metrics[0], now)

    def close(self):
        self.calls.append("close")


def called(sensor):
    calls, sensor.calls = sensor.calls, []
    return calls


def test_a_sensor_is_due_half_a_second_before_its_period_is_over():
    often, rarely = Fake("often"), Fake("rarely", 10.0)
    sampler = Sampler([often, rarely])
    found = [[*sampler.sample(now)] for now in (0.0, 0.5, 0.75, 1.25, 9.5, 9.75, 10.25)]
    assert found == [["often", "rarely"], [], ["often"], [], ["often"], ["rarely"], ["often"]]
    assert sampler.sample(10.5, is_last=True).keys() == {"often", "rarely"}
    assert called(rarely) == ["find", 0.0, 9.75, 10.5]


def test_devices_are_looked_for_each_minute_and_a_sensor_that_finds_none_is_absent_until_it_does():
    sensor, other = Fake(), Fake("b")
    sensor.absent = Absent("nothing here")
    sampler = Sampler([sensor, other])
    assert [*sampler.sample(0.0)] == ["a", "b"]
    assert (sampler.absent, called(sensor), called(other)) == ({"a": "nothing here"}, ["find"], ["find", 0.0])
    sensor.absent = None
    assert [*sampler.sample(59.9)] == ["b"]
    assert (sampler.absent, called(sensor)) == ({"a": "nothing here"}, [])
    assert sampler.sample(60.0)["a"].values == {("a_value", ""): 60.0}
    assert (sampler.absent, called(sensor)) == ({}, ["find", 60.0])


@pytest.mark.parametrize(
    ("error", "examples"),
    [
        (RuntimeError("odd"), {"fault in the sensor": "RuntimeError: odd"}), (ValueError("x"), {"malformed": "ValueError: x"}),
        (PermissionError(13, "Permission denied", "/f"), {"no permission": "[Errno 13] Permission denied: '/f'"}),
    ],
)  # fmt: skip
def test_what_a_sensor_raises_is_counted_and_the_others_go_on(error, examples):
    sampler = Sampler([Fake(error=error), Fake("b")])
    found = sampler.sample(0.0)
    assert [(found[name].values, found[name].examples) for name in "ab"] == [
        ({("a_value", ""): 0.0}, examples), ({("a_value", ""): 0.0}, {}),
    ]  # fmt: skip
    sampler.again(sampler.sensors[1], found["b"], 1.0)
    assert found["b"].drops == {"duplicate": 1}


def test_what_is_read_ahead_is_asked_each_second_and_the_others_at_each_ten_seconds_of_the_clock():
    ahead, now_only, rarely = Fake("ahead", is_ahead=True), Fake("now"), Fake("rarely", 10.0)
    sampler = Sampler([ahead, now_only, rarely])
    sampler.find(0.0)
    for one in (ahead, now_only, rarely):
        called(one)
    turns = [sampler.read_ahead(now, 1003.0 + now) for now in (0.0, 6.9, 7.0, 8.0, 17.0)]
    assert turns == [
        ([ahead], [rarely, now_only]), ([ahead], [now_only]), ([ahead], [rarely, now_only]), ([ahead], [now_only]),
        ([ahead], [rarely, now_only]),
    ]  # fmt: skip
    assert called(ahead) == [
        ("ahead", now, is_rare) for now, is_rare in ((0.0, True), (6.9, False), (7.0, True), (8.0, False), (17.0, True))
    ]
    assert called(rarely) == []
    assert sampler.understand(ahead).values == {("a_value", ""): 7}
    ahead.read_ahead = None
    assert sampler.read_ahead(18.0, 1021.0) == ([], [ahead, now_only])


def test_a_sensor_that_has_something_to_report_ends_the_sleep():
    own, others = os.pipe(), os.pipe()
    sampler = Sampler([Fake(fd=own[0]), Fake("b")])
    sampler.find(0.0)
    assert sampler.filenos() == [own[0]]
    begun = time.monotonic()
    assert sampler.wait(0.05, lambda: 3.0, [others[0]]) == {}
    assert 0.05 <= time.monotonic() - begun < 10
    os.write(others[1], b"x")
    assert sampler.wait(30.0, lambda: 4.0, [others[0]]) == {}
    os.write(own[1], b"x")
    found = sampler.wait(30.0, lambda: 5.0)
    assert {name: readings.values for name, readings in found.items()} == {"a": {("a_value", ""): 5.0}}
    assert sampler.wait(-1.0, lambda: 6.0).keys() == {"a"}
    sampler.close()
    assert [sensor.calls[-1] for sensor in sampler.sensors] == ["close", "close"]
    for fd in (*own, *others):
        os.close(fd)
