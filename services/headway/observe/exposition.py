"""This process's metrics over HTTP, and whether it is well.

Always in Prometheus's plain text format: in others, which scrapers may ask for, the colons of our names become
something else, and every query would depend on who asked.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4 as CONTENT_TYPE

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

__all__ = ["CONTENT_TYPE", "generate_latest", "serve_metrics"]


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


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
