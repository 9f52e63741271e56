"""The life of a process: logging, Redis, gRPC server with health and reflection, lease, metrics, clean stop."""

import asyncio
import gc
import logging
import os
import resource
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import grpc
import uvloop
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from headway.core.errors import HeadwayError
from headway.observe.exposition import serve_metrics
from headway.observe.logging import configure_logging
from headway.observe.tracing import Tracing
from headway.rpc.config import ProcessConfig
from headway.rpc.interceptors import CallInterceptor
from headway.rpc.peers import CHANNEL_OPTIONS, MAX_MESSAGE_BYTES, Peers
from headway.rpc.tasks import end_tasks
from headway.store.membership import RENEW_EVERY_S, Member, Membership
from headway.store.redis import Database

log = logging.getLogger(__name__)

READINESS = "readiness"
"""Name in the health service of whether requests should come here. The process itself is '': it lives as long as it
answers."""

_STOP_GRACE_S = 0.5
_PROBE_S = 4.0

# Peers ping every 10 s (CHANNEL_OPTIONS), also between messages.
SERVER_OPTIONS = (
    *CHANNEL_OPTIONS,
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
)

# Whoever connects may take so long until a call can be made, and have so many under way on one connection.
_PUBLIC_OPTIONS = (("grpc.server_handshake_timeout_ms", 20_000), ("grpc.max_concurrent_streams", 1024))


class Host:
    """The process of a service, with all that the service needs from it. Made by `hosting`; add servicers, then `await
    host.serve()`.

    Attributes:
        server: the gRPC server to add servicers to.
        peers: the other processes of the stack.
        database: the connection to Redis.
        membership: the leases in it, this process's among them.
        stopping: an event that is set when the process was asked to end.
    """

    def __init__(
        self,
        kind: str,
        config: ProcessConfig,
        database: Database,
        membership: Membership,
        peers: Peers,
        *,
        is_public: bool = False,
        max_request_bytes: int = MAX_MESSAGE_BYTES,
        interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
    ) -> None:
        self.kind = kind
        self.config = config
        self.database = database
        self.peers = peers
        self.tracing = Tracing(kind, otlp_endpoint=config.otlp_endpoint)
        self.stopping = asyncio.Event()
        guard = None if is_public else config.credentials(kind)
        options = dict(SERVER_OPTIONS) | {"grpc.max_receive_message_length": max_request_bytes}
        options |= dict(_PUBLIC_OPTIONS) if is_public else {}
        certificates = config.certificates()
        self._credentials = None if certificates is None else certificates.for_server(knows_clients=not is_public)
        self.server = grpc.aio.server(
            interceptors=[CallInterceptor(guard), *interceptors], options=tuple(options.items())
        )
        self.membership = membership
        self._health = health.aio.HealthServicer()
        self._is_ready = False
        self._tasks: set[asyncio.Task[None]] = set()
        advertised = config.advertise_host or config.bind_host
        self._advertised_host = advertised
        self.member = Member(
            kind=kind,
            member_id=config.member_id or f"{kind}-{os.getpid()}",
            endpoint="",
            metrics_endpoint="",
            pid=os.getpid(),
            started_at_s=time.time(),
        )

    @property
    def member_id(self) -> str:
        return self.member.member_id

    def spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]:
        """Runs a background loop for as long as the process lives; a crash of it ends the process."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)
        return task

    async def show_ready(self, *, is_ready: bool) -> None:
        """Tells whoever asks the health service for `READINESS`, or for `/ready` beside the metrics, whether requests
        should come here. One that was asked to end never is ready again."""
        self._is_ready = is_ready and not self.stopping.is_set()
        status = health_pb2.HealthCheckResponse
        await self._health.set(READINESS, status.SERVING if self._is_ready else status.NOT_SERVING)

    async def update_member(self, **changes: Any) -> None:
        """Changes fields of the lease and writes it at once."""
        self.member = replace(self.member, **changes)
        await self._hold_lease(self.membership.enter)

    @asynccontextmanager
    async def standing_by(self) -> AsyncIterator[None]:
        """Answers probes meanwhile, and is ready: a process that waits to take another one's place is well. It has no
        lease, so nobody calls it."""
        server, servicer = grpc.aio.server(), health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
        for name in ("", READINESS):
            await servicer.set(name, health_pb2.HealthCheckResponse.SERVING)
        self._bind(server)
        await server.start()
        lives = self._probe(lambda: True)
        metrics_server = serve_metrics(
            self.config.bind_host, self.config.metrics_port, probes={"/live": lives, "/ready": lives}
        )
        try:
            yield
        finally:
            await asyncio.to_thread(metrics_server.shutdown)
            metrics_server.server_close()
            await server.stop(None)

    async def serve(
        self, *, on_stop: Callable[[], Awaitable[None]] | None = None, is_ready_at_once: bool = True
    ) -> None:
        """Serves until SIGTERM or SIGINT; then it is not ready, keeps its lease for as long as `on_stop` takes, and
        running calls get half a second.

        Args:
            is_ready_at_once: False for one that calls `show_ready` once it is.
        """
        port = self._bind(self.server)
        self._add_health_and_reflection()
        await self.server.start()
        probes = {"/live": self._probe(lambda: True), "/ready": self._probe(lambda: self._is_ready)}
        metrics_server = serve_metrics(self.config.bind_host, self.config.metrics_port, probes=probes)
        await self.update_member(
            endpoint=f"{self._advertised_host}:{port}",
            metrics_endpoint=f"{self._advertised_host}:{metrics_server.server_port}",
        )
        if is_ready_at_once:
            await self.show_ready(is_ready=True)
        keeping = self.spawn(self._keep_lease(), name="keep-lease")
        log.info("%s serves at %s", self.member_id, self.member.endpoint)
        # Garbage collections need not look at what is here by now, modules above all: they would pause for it.
        gc.freeze()
        await self.stopping.wait()
        await self.show_ready(is_ready=False)
        if on_stop is not None:
            await on_stop()
        await end_tasks([keeping])
        await self._withdraw()
        await self.server.stop(_STOP_GRACE_S)

    def _bind(self, server: grpc.aio.Server) -> int:
        address = f"{self.config.bind_host}:{self.config.port}"
        try:
            if self._credentials is not None:
                return server.add_secure_port(address, self._credentials)
            return server.add_insecure_port(address)
        except RuntimeError as error:
            raise SystemExit(
                f"{self.kind}: cannot listen on {address}: {error}. Choose another --port, for a stack with "
                "`headway up --grpc-port`."
            ) from None

    def _add_health_and_reflection(self) -> None:
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self.server)
        names = [reflection.SERVICE_NAME, health.SERVICE_NAME, *_service_names(self.kind)]
        reflection.enable_server_reflection(names, self.server)
        serving = health_pb2.HealthCheckResponse.SERVING
        for name in ("", *_service_names(self.kind)):
            self.spawn(self._health.set(name, serving), name="health")

    def _probe(self, is_so: Callable[[], bool]) -> Callable[[], bool]:
        """Asks the event loop from another thread: one that does not answer is as good as no. It needs no certificate,
        as the health service does where calls are encrypted."""
        loop = asyncio.get_running_loop()

        async def look() -> bool:
            return is_so()

        def ask() -> bool:
            looking = asyncio.run_coroutine_threadsafe(look(), loop)
            try:
                return looking.result(_PROBE_S)
            except TimeoutError:
                looking.cancel()
                return False

        return ask

    async def _keep_lease(self) -> None:
        while True:
            await asyncio.sleep(RENEW_EVERY_S)
            await self._hold_lease(self.membership.renew)

    async def _hold_lease(self, write: Callable[[Member], Awaitable[None]]) -> None:
        if not self.member.endpoint:
            return
        try:
            await write(self.member)
        except HeadwayError as error:
            log.warning("lease not renewed: %s", error)

    async def _withdraw(self) -> None:
        try:
            await self.membership.withdraw(self.member)
        except HeadwayError as error:
            log.warning("lease not withdrawn: %s", error)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("background task %s crashed; stopping", task.get_name(), exc_info=error)
            self.stopping.set()

    async def close(self) -> None:
        await end_tasks(list(self._tasks))
        await self.database.close()


@asynccontextmanager
async def hosting(
    kind: str,
    config: ProcessConfig,
    *,
    is_public: bool = False,
    max_request_bytes: int = MAX_MESSAGE_BYTES,
    interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
) -> AsyncIterator[Host]:
    """Sets the process up and tears it down again.

    Args:
        is_public: takes calls without the stack's own token: clients do not have it, and the service checks their keys.
        max_request_bytes: larger calls are refused.
        interceptors: of every call, behind the one that makes statuses of errors.
    """
    _allow_descriptors()
    configure_logging(config.member_id or kind, level=config.log_level, json_lines=config.log_json)
    database = Database.connect(config.redis_url, namespace=config.namespace)
    membership = Membership(database)
    credentials = config.credentials(kind)
    token = None if credentials is None else credentials.token
    peers = Peers(membership, token=token, certificates=config.certificates())
    async with peers.watching():
        host = Host(
            kind,
            config,
            database,
            membership,
            peers,
            is_public=is_public,
            max_request_bytes=max_request_bytes,
            interceptors=interceptors,
        )
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, host.stopping.set)
        try:
            yield host
        finally:
            await host.close()


def run(main: Coroutine[Any, Any, None]) -> None:
    """Runs a process's main coroutine on uvloop."""
    uvloop.run(main)


def _allow_descriptors() -> None:
    """Each client is a descriptor, and a shell gives its processes 1,024 of those that they may take."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _service_names(kind: str) -> list[str]:
    from importlib import import_module

    module = {"gateway": "inference"}.get(kind, kind)
    descriptor = import_module(f"headway.v1.{module}_pb2").DESCRIPTOR
    return [service.full_name for service in descriptor.services_by_name.values()]
