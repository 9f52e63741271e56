"""A network of the test's own between a gateway and a worker: it passes bytes on, late, or not at all."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_CHUNK_BYTES = 64 * 1024


class Relay:
    """Connections to `endpoint` go on to the target.

    Attributes:
        delay_s: that each piece of bytes is held up.
    """

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self.delay_s = 0.0
        self._target = host, int(port)
        self._flows = threading.Event()
        self._flows.set()
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, name="relay", daemon=True).start()

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def fall_silent(self) -> None:
        """Nothing is passed on, and no end is told of it."""
        self._flows.clear()

    def cut(self) -> None:
        """Ends every connection, and takes no more."""
        for each in (self._listener, *self._sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._flows.set()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection(self._target)
            self._sockets += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(_CHUNK_BYTES):
                time.sleep(self.delay_s)
                self._flows.wait()
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)


@contextmanager
def relaying(target: str) -> Iterator[Relay]:
    relay = Relay(target)
    try:
        yield relay
    finally:
        relay.cut()
