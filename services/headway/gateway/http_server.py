"""uvicorn in a process that has an event loop and signal handlers already."""

import asyncio
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import uvicorn
from starlette.types import ASGIApp

from headway.gateway.http_protocol import GuardedHttpProtocol, HttpLimits, guarded_http_protocol

_KEEP_ALIVE_S = 75
_LOOKS_EVERY_S = 1.0
_LIMITS = HttpLimits()
_BACKLOG = 2048
_OTHER_DESCRIPTORS = 256  # Redis, the router, workers, gRPC's clients, files


class HttpServer(uvicorn.Server):
    """An HTTP server for one ASGI application.

    Attributes:
        port: the port that it listens on.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        host: str,
        port: int,
        grace_s: int,
        shares_port: bool = False,
        limits: HttpLimits = _LIMITS,
    ) -> None:
        """Binds at once, so that a port in use is found out before anything else is started.

        Args:
            grace_s: how long running requests get when the server stops.
            shares_port: whether other processes of the user may listen there, too.
            limits: of each connection.
        """
        num_descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = max(1, min(limits.max_connections, num_descriptors - _OTHER_DESCRIPTORS))
        self._protocol = guarded_http_protocol(replace(limits, max_connections=most))
        super().__init__(
            uvicorn.Config(
                app,
                http=self._protocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=_KEEP_ALIVE_S,
                timeout_graceful_shutdown=grace_s,
                backlog=_BACKLOG,
            )
        )
        self._socket = _bind(host, port, is_shared=shares_port)
        self.port: int = self._socket.getsockname()[1]
        self._task: asyncio.Task[None] | None = None

    async def run_forever(self) -> None:
        """Serves requests until `stop` is called."""
        self._task = asyncio.current_task()
        looking = asyncio.create_task(self._end_slow_clients(), name="slow-clients")
        try:
            await self.serve(sockets=[self._socket])
        finally:
            looking.cancel()

    def leave(self) -> None:
        """Every answer that begins from now on ends its connection, so that clients which keep theirs look for another
        server. One that is closed while it is idle may just have been sent a request.
        """
        self._protocol.is_leaving = True

    async def stop(self) -> None:
        """Takes no more connections, and returns when those that there are have ended."""
        self.should_exit = True
        if self._task is not None:
            await asyncio.wait({self._task})

    async def _end_slow_clients(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_LOOKS_EVERY_S)
            now_s = loop.time()
            for connection in tuple(self.server_state.connections):
                if isinstance(connection, GuardedHttpProtocol):
                    connection.end_if_slow(now_s)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the process's own business."""
        yield


def _bind(host: str, port: int, *, is_shared: bool) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, int(is_shared))
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise SystemExit(
            f"gateway: cannot listen on {host}:{port}: {error.strerror}. Choose another --http-port."
        ) from None
    return listener
