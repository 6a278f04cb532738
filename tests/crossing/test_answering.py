"""Collectors that another process asks: what is given up costs nothing more, and only sources that are the same at both ends answer."""

import asyncio
import sys
from pathlib import Path

import msgspec
import pytest
from many_hosts import KIND, ManyHosts, in_loop, until

import collectors
from tokiod.clock import SystemClock
from tokiod.collector import Site
from tokiod.config import plugins
from tokiod.crossing import dialogue
from tokiod.crossing.answering import Lanes
from tokiod.crossing.codec import decode
from tokiod.window import Calendar, Window

NOON = 1_517_140_800
SITE = Site(Calendar("UTC"), SystemClock())


@pytest.fixture
def sources(tmp_path, monkeypatch):
    (tmp_path / "kinds").mkdir()
    Path(tmp_path / "kinds" / "many_hosts.py").write_text(KIND)
    monkeypatch.setattr(collectors, "__path__", [*collectors.__path__, str(tmp_path / "kinds")])
    yield {source.name: source for source in ManyHosts(tmp_path).load().source}
    sys.modules.pop("collectors.many_hosts", None)


@pytest.fixture
def lanes(sources):
    lanes = Lanes("host zone-b", SystemClock(), 1000)
    lanes.use(sources, SITE)
    return lanes


class Answers(list):
    """The messages that are sent, each a list of frames."""

    async def send(self, frames):
        await asyncio.sleep(0)
        self.append(frames)

    @property
    def said(self):
        return [msgspec.json.decode(frames[0], type=dialogue.Answer) for frames in self]


def collect(number, start=NOON, **changes):
    asked = dialogue.Collect(number, "b-one", 1, start, start + 600, 30.0, "many_hosts", "b-one-files")
    return msgspec.structs.replace(asked, **changes)


def made():
    return plugins.load("many_hosts").made


@in_loop
async def test_a_window_is_answered_in_parts_of_the_size_that_the_channel_allows(lanes):
    answers = Answers()
    lanes.handle(answers.send, collect(7))
    await until(lambda: answers and not lanes.requests)
    assert answers.said == [dialogue.Data(7, part, len(answers)) for part in range(len(answers))]
    assert max(sum(map(len, frames[1:])) for frames in answers) <= 1000 < sum(len(frames[1]) for frames in answers)
    data = decode([frame for frames in answers for frame in frames[1:]])
    assert (data.records, data.dropped, data.trouble, len(data.batches[0])) == (120, {"late": 2}, "one OSS is silent", 360)


@in_loop
async def test_a_request_that_is_cancelled_ends_its_collector_and_answers_nothing_and_others_go_on(lanes):
    answers = Answers()
    lanes.handle(answers.send, collect(1, NOON + 1800))
    lanes.handle(answers.send, collect(2, NOON + 1800, lane=2))
    await asyncio.sleep(0)
    lanes.handle(answers.send, dialogue.Cancel(1))
    lanes.handle(answers.send, dialogue.Cancel(3))
    await until(lambda: lanes.requests == 1)
    lanes.handle(answers.send, dialogue.Cancel(1))
    lanes.handle(answers.send, dialogue.Count(4, "b-one", 1, NOON, NOON + 60, 30.0))
    await until(lambda: lanes.requests == 1 and answers)
    assert answers.said == [dialogue.Counted(4, 12)]
    await lanes.cancel_all()
    assert (lanes.requests, len(answers)) == (0, 1)


@in_loop
async def test_a_request_that_is_cancelled_between_two_parts_sends_no_other(lanes):
    answers = Answers()

    async def send(frames):
        await answers.send(frames)
        lanes.handle(answers.send, dialogue.Cancel(7))

    lanes.handle(send, collect(7))
    await until(lambda: answers and not lanes.requests)
    assert answers.said == [dialogue.Data(7, 0, answers.said[0].parts)]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"kind": "lmt"}, "source b-one is 'lmt' of 'b-one-files' where it is asked, and 'many_hosts' of 'b-one-files' here"),
        ({"system": "fs"}, "source b-one is 'many_hosts' of 'fs' where it is asked, and 'many_hosts' of 'b-one-files' here"),
        ({"source": "x"}, "the configuration of host zone-b gives it no source 'x'"),
    ],
)
@in_loop
async def test_a_source_that_is_another_one_here_is_fatal_and_is_not_asked(lanes, changes, sentence):
    answers = Answers()
    lanes.handle(answers.send, collect(7, **changes))
    await until(lambda: answers)
    (failed,) = answers.said
    assert (failed.id, failed.outcome, failed.message.partition(":")[0]) == (7, "fatal", sentence)


@in_loop
async def test_a_window_that_takes_too_long_is_a_timeout_and_its_lane_goes_on(lanes):
    answers = Answers()
    lanes.handle(answers.send, collect(1, NOON + 1800, seconds=0.05))
    await until(lambda: answers)
    lanes.handle(answers.send, collect(2))
    await until(lambda: len(answers) > 1 and not lanes.requests)
    assert answers.said[:2] == [dialogue.Failed(1, "timeout", "no answer within 0 s"), dialogue.Data(2, 0, len(answers) - 1)]
    assert len(made()) == 1


@in_loop
async def test_each_lane_has_a_collector_that_knows_what_is_stored_until_it_is_closed(lanes):
    answers = Answers()
    for number in (1, 2):
        lanes.handle(answers.send, dialogue.Count(number, "b-one", number, NOON, NOON + 60, 30.0))
    await until(lambda: len(answers) == 2)
    lanes.handle(answers.send, dialogue.Stored("b-one", 2, NOON, NOON + 60))
    lanes.handle(answers.send, dialogue.Stored("b-one", 3, NOON, NOON + 60))
    assert [one.stored for one in made()] == [[], [Window(NOON, NOON + 60)]]
    lanes.handle(answers.send, dialogue.Close("b-one", 2))
    await until(lambda: len(lanes._lanes) == 1)
    lanes.handle(answers.send, dialogue.Count(3, "b-one", 2, NOON, NOON + 60, 30.0))
    await until(lambda: len(answers) == 3)
    assert len(made()) == 3
    await lanes.close()
    assert lanes._lanes == {}


@in_loop
async def test_only_the_collectors_of_sources_that_changed_are_made_again(lanes, sources):
    answers = Answers()
    for number, name in enumerate(("b-one", "b-two")):
        lanes.handle(answers.send, dialogue.Count(number, name, 1, NOON, NOON + 60, 30.0))
    await until(lambda: len(answers) == 2)
    lanes.use(sources | {"b-two": msgspec.structs.replace(sources["b-two"], prefix="MDT")}, SITE)
    await until(lambda: set(lanes._lanes) == {("b-one", 1)})
