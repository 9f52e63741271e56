"""This process's metrics over HTTP, and whether it is well.

Always in Prometheus's plain text format: in others, which scrapers may ask for, the colons of our names become
something else, and every query would depend on who asked.
"""

import socket
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4 as CONTENT_TYPE

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

__all__ = ["CONTENT_TYPE", "generate_latest", "serve_metrics"]


_MAX_CONNECTIONS = 64


class _Server(ThreadingMixIn, WSGIServer):
    """Each connection has a thread, so there are not many: one more ends the oldest, and whoever comes is answered."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._connections: dict[socket.socket, None] = {}  # the oldest first
        self._lock = threading.Lock()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._connections[request] = None
            if len(self._connections) > _MAX_CONNECTIONS:
                oldest = next(iter(self._connections))
                del self._connections[oldest]
                with suppress(OSError):  # it has just left by itself
                    oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._connections.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError):  # clients leave
            super().handle_error(request, client_address)


class _QuietHandler(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


def serve_metrics(host: str, port: int, *, probes: Mapping[str, Callable[[], bool]] | None = None) -> WSGIServer:
    """Answers every path, in threads of its own, until `shutdown`. Port 0 takes a free one: `server_port`.

    Args:
        probes: paths that are answered by 200 or 503 and nothing else; what says which may take its time.
    """
    answer = partial(_answer, dict(probes or {}))
    server = make_server(host, port, answer, _Server, handler_class=_QuietHandler)
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server


def _answer(
    probes: Mapping[str, Callable[[], bool]], environ: "WSGIEnvironment", start_response: "StartResponse"
) -> Iterable[bytes]:
    if (probe := probes.get(environ["PATH_INFO"])) is not None:
        start_response("200 OK" if probe() else "503 Service Unavailable", [("Content-Length", "0")])
        return []
    start_response("200 OK", [("Content-Type", CONTENT_TYPE)])
    return [generate_latest()]
