"""A state is published whole, and what can't be read is none, or a reason."""

import os

import msgspec
import pytest

from tokiod.change_sink import SinkConfig
from tokiod.config.hosts import HostConfig
from tokiod.config.schema import Config
from tokiod.config.sections import ArchiveConfig, FeedConfig
from tokiod.published.sinks import STATE_FILE
from tokiod.published.state_file import publish, published
from tokiod.reports import hosts, sinks


class State(msgspec.Struct):
    name: str
    count: int = 0


def test_a_state_is_read_with_the_time_at_which_it_was_written(tmp_path):
    path = tmp_path / "state.json"
    assert published(path, State) is None
    publish(path, State("one", 1))
    os.utime(path, (7.5, 7.5))
    assert published(path, State) == (State("one", 1), 7.5)
    publish(path, State("two", 2))
    assert published(path, State)[0] == State("two", 2)
    assert [one.name for one in tmp_path.iterdir()] == ["state.json"]


@pytest.mark.parametrize("content", [b"", b'{"name": 1}', b"\xff", b'{"name": "x", "count"', b"[]"])
def test_a_file_of_another_version_is_none(tmp_path, content):
    (tmp_path / "state.json").write_bytes(content)
    assert published(tmp_path / "state.json", State) is None


def test_a_user_who_may_not_read_the_states_learns_which_file_it_is(tmp_path, monkeypatch):
    """Both states called these files the archive."""
    endpoint = f"ipc://{tmp_path}/run/feed"
    config = Config(
        timezone="UTC",
        archive=ArchiveConfig(path=f"{tmp_path}/tts/%Y-%m-%d/{{system}}.hdf5"),
        feed=FeedConfig(endpoint=endpoint),
        host=(HostConfig(name="admin", endpoint="tcp://10.0.0.1:5562"), HostConfig(name="zone-b")),
        sink=(SinkConfig(name="copy", kind="parquet"),),
        sink_state=tmp_path / "sinks",
    )
    paths = [config.hosts_state, config.sink_state / "copy" / STATE_FILE]
    for path in paths:
        path.parent.mkdir(parents=True)
        publish(path, State("one"))

    def refuse(_path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(type(tmp_path), "read_bytes", refuse)
    (_, host), (sink,) = hosts.read(config, 0.0), sinks.read(config, 0.0, 0.0)
    assert [host.reason, sink.reason] == [f"no permission to read {path}" for path in paths]
    assert (host.trouble, sink.trouble) == ("unknown", "unknown")


def test_a_state_that_can_not_be_written_is_written_next_time(tmp_path):
    path = tmp_path / "later" / "state.json"
    publish(path, State("one"))
    path.parent.mkdir()
    publish(path, State("two"))
    assert published(path, State)[0] == State("two")
