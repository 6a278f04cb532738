"""The monitoring systems of a simulated site: how each is started, how the daemon is told of it, and what a right archive of it holds."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokiod.simulator.answers import Answers
from tokiod.simulator.collectd_answers import CollectdAnswers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from tokiod.simulator.compare import Knowing
    from tokiod.simulator.site import Site
    from tokiod.window import Window


@dataclass(frozen=True, slots=True)
class Source:
    """One of them. config, arguments: texts with {directory} and {port} in them, for the daemon and for `python -m tokiod.simulator`.

    shown: a dataset to look at; ready: whether it can be asked, by directory and port; answers: what its system's files hold, by site
    and stored windows.
    """

    name: str
    system: str
    shown: str
    config: str
    arguments: tuple[str, ...]
    ready: Callable[[Path, int], bool]
    answers: Callable[[Site, Iterable[Window]], Knowing]


def _database_exists(directory: Path, _port: int) -> bool:
    return (directory / "lmt.sqlite3").exists()


def _listens(_directory: Path, port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


LMT = Source(
    name="demo-lmt",
    system="demo",
    shown="datatargets/readbytes",
    config="""\
kind = "lmt"
url = "sqlite://{directory}/lmt.sqlite3"
settle = "5s"
""",
    arguments=("lmt", "--database", "{directory}/lmt.sqlite3"),
    ready=_database_exists,
    answers=Answers,
)

COLLECTD = Source(
    name="demo-collectd",
    system="bb",
    shown="datatargets/readrates",
    config="""\
kind = "collectd_es"
url = "http://127.0.0.1:{port}"
index = "cori-collectd-*"
host_prefix = "bb"
device_prefix = "nvme"
settle = "30s"
""",
    arguments=("collectd", "--listen", "127.0.0.1:{port}"),
    ready=_listens,
    answers=CollectdAnswers,
)


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
