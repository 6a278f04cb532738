"""Requests to a daemon over its control socket, with real sockets."""

import asyncio
import json
import os
import socket
import stat
import threading
import time

import pytest
from structlog.testing import capture_logs

from tokiod.errors import TokiodError
from tokiod.supervisor.control_socket import Ping, Pong, Reload, Reloaded, ask, serve_control

PONG = Pong(1, "0", ready=True, alive=True, seconds=1.5, processes=[])


@pytest.fixture
def served(tmp_path):
    """A control socket, served by a thread."""
    path, over, up = tmp_path / "control", threading.Event(), threading.Event()

    async def answer(request):
        return PONG if isinstance(request, Ping) else Reloaded(added=["a"], restarted=True)

    async def serve():
        async with serve_control(path, answer):
            up.set()
            await asyncio.to_thread(over.wait, 30)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert up.wait(50)
    yield path
    over.set()
    thread.join()
    assert not path.exists()


def test_requests_are_answered(served):
    assert ask(served, Ping(), 5) == PONG
    assert ask(served, Reload(), 5) == Reloaded(added=["a"], restarted=True)


def test_only_the_owner_may_connect(served):
    assert stat.S_IMODE(served.stat().st_mode) == 0o600


def test_the_umask_of_other_tasks_is_not_changed_while_the_socket_is_bound(tmp_path):
    async def make():
        (tmp_path / "directory").mkdir()

    async def serve():
        making = asyncio.create_task(make())
        async with serve_control(tmp_path / "control", None):
            await making

    asyncio.run(serve())
    (tmp_path / "like this").mkdir()
    assert (tmp_path / "directory").stat().st_mode == (tmp_path / "like this").stat().st_mode


def test_malformed_requests_are_refused_and_block_no_other_client(served):
    for malformed in (b"\n", b"{}\n", b"\xff\xfe\n", b'{"command": "rm"}\n', b"x" * (2**20 + 10) + b"\n"):
        with socket.socket(socket.AF_UNIX) as caller:
            caller.settimeout(5)
            caller.connect(str(served))
            try:
                caller.sendall(malformed)
                said = caller.recv(1000)
            except (BrokenPipeError, ConnectionResetError):
                said = b""
            assert b"pong" not in said
    silent = [socket.socket(socket.AF_UNIX) for _ in range(50)]
    for caller in silent:
        caller.connect(str(served))
    assert ask(served, Ping(), 5) == PONG
    for caller in silent:
        caller.close()


def test_a_missing_daemon_is_an_error(tmp_path):
    with pytest.raises(TokiodError, match=r"no daemon answers at .*control: is it running"):
        ask(tmp_path / "control", Ping(), 1)


def test_a_daemon_that_does_not_answer_is_an_error(tmp_path):
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "control"))
        listening.listen()
        with pytest.raises(TokiodError, match="did not answer within 0 s"):
            ask(tmp_path / "control", Ping(), 0.2)


def test_a_malformed_answer_is_an_error(tmp_path):
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "control"))
        listening.listen()

        def answer():
            caller, _ = listening.accept()
            caller.sendall(b"what?\n")
            caller.close()

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(TokiodError, match=r"the request to the daemon at .* failed"):
            ask(tmp_path / "control", Ping(), 5)
        thread.join()


def test_the_socket_of_a_killed_daemon_is_taken_over_and_that_of_a_living_one_is_not(served, tmp_path):
    async def serve(path):
        async with serve_control(path, None):
            pass

    with pytest.raises(FileExistsError, match="another daemon answers"):
        asyncio.run(serve(served))
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "left"))
    asyncio.run(serve(tmp_path / "left"))
    assert ask(served, Ping(), 5) == PONG


def test_a_deeply_nested_request_is_refused_without_a_traceback(served, caplog):
    with socket.socket(socket.AF_UNIX) as caller:
        caller.settimeout(5)
        caller.connect(str(served))
        caller.sendall(b'{"command": "ping", "x": ' + b"[" * 500_000 + b"\n")
        with caller.makefile("rb") as lines:
            answer = json.loads(lines.readline())
    assert answer["answer"] == "refused"
    assert caplog.records == []
    assert ask(served, Ping(), 5) == PONG


def test_a_reload_is_logged_with_the_process_and_user_that_requested_it(served):
    with capture_logs() as logs:
        ask(served, Reload(), 5)
        ask(served, Ping(), 5)
    assert logs == [{"event": "reload.requested", "log_level": "info", "pid": os.getpid(), "uid": os.getuid()}]


def test_connections_beyond_the_limit_are_closed(served, monkeypatch):
    monkeypatch.setattr("tokiod.supervisor.control_socket.MAX_CLIENTS", 3)
    silent = [socket.socket(socket.AF_UNIX) for _ in range(3)]
    for caller in silent:
        caller.connect(str(served))
    with pytest.raises(TokiodError):
        ask(served, Ping(), 5)
    for caller in silent:
        caller.close()
    deadline = time.monotonic() + 10
    while True:
        try:
            assert ask(served, Ping(), 5) == PONG
            break
        except TokiodError:
            assert time.monotonic() < deadline
