"""Our programs as other users, in forks of one process that has imported what they import: a start of Python costs most of a short command.

Each is a process of its own with the user's ids, groups and limits, as after setpriv and exec.
"""

import contextlib
import importlib
import json
import os
import pkgutil
import socket
import struct
import subprocess
import sys
import tempfile

PROGRAMS = ("tokioctl", "tokiod")
STATUS = struct.Struct("i")


class ForkedPrograms:
    """The process that forks: one request at a time. interpreter: one that every user can run; environment: that of each program."""

    def __init__(self, interpreter, environment):
        self._environment = environment
        self._socket, other = socket.socketpair()
        with other:
            command = [interpreter, "-P", __file__, str(other.fileno())]
            self._server = subprocess.Popen(command, pass_fds=[other.fileno()], stdin=subprocess.DEVNULL, cwd="/", env=environment)

    def run(self, user, program, *words, timeout=60, env=None):
        """Run `tokioctl` or `tokiod` as a user and return the result, like subprocess.run; the timeout ends the whole server."""
        request = {"program": program, "words": words, "uid": user.uid, "gid": user.gid, "groups": user.groups}
        request["environment"] = self._environment if env is None else env
        with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
            self._socket.settimeout(timeout)
            socket.send_fds(self._socket, [json.dumps(request).encode()], [output.fileno(), errors.fileno()])
            (status,) = STATUS.unpack(self._socket.recv(STATUS.size))
            output.seek(0), errors.seek(0)
            return subprocess.CompletedProcess([program, *words], os.waitstatus_to_exitcode(status), output.read(), errors.read())

    def close(self):
        """End the process."""
        self._socket.close()
        self._server.wait(60)


def _serve(connection):
    _import_commands()
    while True:
        data, files, _, _ = socket.recv_fds(connection, 1 << 16, 2)
        if not data:
            return
        if (pid := os.fork()) == 0:
            connection.close()
            _play(json.loads(data), *files)
        for file in files:
            os.close(file)
        connection.sendall(STATUS.pack(os.waitpid(pid, 0)[1]))


def _import_commands():
    for name in ("h5py", "numpy", "rich.console", "rich.table", "structlog", "zmq.asyncio", "aiohttp"):
        importlib.import_module(name)
    package = importlib.import_module("tokiod.cli.commands")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"tokiod.cli.commands.{module.name}")
    for program in PROGRAMS:
        importlib.import_module(f"tokiod.cli.{program}")


def _play(request, output, errors):
    """Become the user's process and run the program; never returns."""
    code = 1
    try:
        os.setsid()
        os.dup2(output, 1), os.dup2(errors, 2)
        os.closerange(3, 1 << 16)
        os.setgroups(request["groups"])
        os.setresgid(*[request["gid"]] * 3)
        os.setresuid(*[request["uid"]] * 3)
        os.environ.clear()
        os.environ.update(request["environment"])
        sys.argv = [request["program"], *request["words"]]
        importlib.import_module(f"tokiod.cli.{request['program']}").main(prog_name=request["program"])
    except SystemExit as error:
        code = error.code
    except BaseException:  # noqa: BLE001 - nothing of the server may run in this process
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush(), sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as served:
        _serve(served)
