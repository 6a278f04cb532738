"""A proxy in front of a TCP server that answers late on demand."""

import selectors
import socket
import threading
import time
from contextlib import suppress

CHUNK = 1 << 16


class SlowProxy:
    """A context manager. port: where to connect; hold(seconds) keeps the next answer of the server back, once."""

    def __init__(self, port):
        self._server, self._hold = ("127.0.0.1", port), 0.0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.held = threading.Event()

    def hold(self, seconds):
        self.held.clear()
        self._hold = seconds

    def __enter__(self):
        threading.Thread(target=self._accept, name="slow proxy", daemon=True).start()
        return self

    def __exit__(self, *_):
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self):
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), name="slow connection", daemon=True).start()

    def _serve(self, client):
        with suppress(OSError), client, socket.create_connection(self._server) as server, selectors.DefaultSelector() as selector:
            selector.register(client, selectors.EVENT_READ, server)
            selector.register(server, selectors.EVENT_READ, client)
            while True:
                for key, _ in selector.select():
                    if not (data := key.fileobj.recv(CHUNK)):
                        return
                    if key.fileobj is server and self._hold:
                        seconds, self._hold = self._hold, 0.0
                        time.sleep(seconds)
                        self.held.set()
                    key.data.sendall(data)
