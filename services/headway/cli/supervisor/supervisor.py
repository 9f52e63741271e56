"""The life of a local stack: start, watch, end."""

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from headway.cli.calls import calling
from headway.cli.process import end_all, identify
from headway.cli.supervisor.controller import Controller
from headway.cli.supervisor.heartbeat import Heartbeat
from headway.cli.supervisor.log_sizes import rotate_logs
from headway.cli.supervisor.recorded import dismissed_controller, recorded_processes
from headway.client.access import Access
from headway.client.stack import ProcessId, Stack, remove_stack, write_stack
from headway.client.token import TOKEN_VARIABLE, make_token
from headway.core.deployment import Deployment
from headway.core.errors import HeadwayError
from headway.core.tls_files import TlsFiles
from headway.observe.log_writers import find_log_writers
from headway.rpc.tasks import end_tasks
from headway.store.documents import Documents
from headway.store.embedded import EmbeddedRedis
from headway.store.kept import KEPT_FILE, note_write, recover
from headway.store.membership import Membership
from headway.store.redis import Database
from headway.store.schema import DEPLOYMENT
from headway.v1 import controller_pb2, controller_pb2_grpc

log = logging.getLogger(__name__)

NAMESPACE = "headway"
DRAIN_S = 60.0
"""Running requests get so long after the first request to stop."""

STOP_GRACE_S = 3.0
"""Processes that were asked to end are killed after so long."""

_WATCH_EVERY_S = 0.1
_LOOK_UP_EVERY_S = 1.0
_OTHER_LOGS = ("supervisor", "controller", "profile")  # of processes that no controller launches
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}


class Supervisor:
    """Runs one stack: `run` returns when it was asked to stop and everything has ended.

    Args:
        state_dir: exists; holds Redis's data, logs, the token of internal calls and `stack.json`.
        deployment: with real port numbers.
    """

    def __init__(
        self,
        state_dir: Path,
        deployment: Deployment,
        *,
        controller_command: tuple[str, ...] = (sys.executable, "-m", "headway.controller"),
    ) -> None:
        self._state_dir = state_dir
        self._deployment = deployment
        self._supervisor_id = identify(os.getpid())
        for name in ("redis", "logs"):
            (state_dir / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        token = make_token(state_dir)
        self._access = Access(token=token, tls=TlsFiles.of_environment(os.environ))
        self._redis = EmbeddedRedis(state_dir / "redis")
        self._redis_id: ProcessId | None = None
        command = [
            *controller_command,
            *("--redis-url", self._redis.url),
            *("--state-dir", str(state_dir)),
            *("--log-level", deployment.log_level),
        ]
        self._controller = Controller(
            command,
            environment={TOKEN_VARIABLE: token},
            log_path=state_dir / "logs" / "controller.log",
        )
        self._endpoint = ""
        self._found: ProcessId | None = None  # whose endpoint that is
        self._published: Stack | None = None
        self._stopping = asyncio.Event()
        self._hurrying = asyncio.Event()

    def stop(self) -> None:
        """The first call lets running requests end, the second does not."""
        if self._stopping.is_set():
            self._hurrying.set()
        self._stopping.set()

    def stop_now(self) -> None:
        self._stopping.set()
        self._hurrying.set()

    async def run(self) -> None:
        """Raises HeadwayError where the stack cannot be started; nothing is left running then either."""
        try:
            await asyncio.to_thread(self._start_redis)
            self._publish()
            await self._write_deployment()
            self._controller.start()
            await self._watch()
        finally:
            await self._end()

    async def _write_deployment(self) -> None:
        async with self._recovered() as database:
            await note_write(database)
            await Documents(database, DEPLOYMENT, Deployment).put(self._deployment_to_keep)

    async def _mend_deployment(self) -> None:
        """Where neither Redis nor the controller's copy has a deployment that can be read, every controller would end:
        it is the one again that the stack was started with. The plan is kept apart from it."""
        async with self._recovered() as database:
            deployments = Documents(database, DEPLOYMENT, Deployment)
            if await deployments.get_or_set_aside() is None:
                log.error("Redis has no deployment that can be read; the one of `headway up` is written again")
                await note_write(database)
                await deployments.put(self._deployment_to_keep, is_stand_in=True)

    @property
    def _deployment_to_keep(self) -> Deployment:
        return replace(self._deployment, gateway=self._deployment.gateway.to_keep)

    @asynccontextmanager
    async def _recovered(self) -> AsyncIterator[Database]:
        """Redis, with all that the controller's copy has."""
        database = Database.connect(self._redis.url, namespace=NAMESPACE)
        try:
            await recover(database, self._state_dir / KEPT_FILE)
            yield database
        finally:
            await database.close()

    async def _watch(self) -> None:
        database = Database.connect(self._redis.url, namespace=NAMESPACE)
        heeding = asyncio.create_task(self._heed_controller(), name="heed-controller")
        looked_up_at_s = 0.0
        loop = asyncio.get_running_loop()
        try:
            while not self._stopping.is_set():
                await self._keep_alive()
                is_new = self._controller.process_id != self._found
                if is_new or not self._endpoint or loop.time() - looked_up_at_s > _LOOK_UP_EVERY_S:
                    looked_up_at_s = loop.time()
                    await asyncio.to_thread(rotate_logs, self._state_dir / "logs")
                    await asyncio.to_thread(self._keep_certificate)
                    await self._find_controller(Membership(database))
                self._publish()
                await asyncio.sleep(_WATCH_EVERY_S)
        finally:
            await end_tasks([heeding])
            await database.close()

    async def _heed_controller(self) -> None:
        """Kills a controller that does not answer any more; it is started again as one that died."""
        heartbeat = Heartbeat(self._access.tls)
        while True:
            await asyncio.sleep(_LOOK_UP_EVERY_S)
            if not self._endpoint or self._found != self._controller.process_id:
                continue
            await heartbeat.probe(self._endpoint)
            if heartbeat.has_stopped and self._found == self._controller.process_id:
                log.warning("the controller lives but does not answer; it is ended")
                self._controller.kill()

    async def _keep_alive(self) -> None:
        if not self._redis.is_running():
            log.warning("Redis ended; starting it again")
            try:
                await asyncio.to_thread(self._start_redis)
            except HeadwayError as error:
                log.warning("%s", error)
        if self._controller.keep_alive():
            try:
                await self._mend_deployment()
            except HeadwayError as error:
                log.warning("whether Redis has the deployment is not known: %s", error)

    def _keep_certificate(self) -> None:
        """Makes the local certificate anew before it expires; the processes take it up by themselves."""
        if self._access.tls is None:
            return
        from headway.cli.local_authority import keep_certificate, local_files  # imports cryptography, which is slow

        if self._access.tls == local_files(self._state_dir):
            try:
                keep_certificate(self._state_dir)
            except HeadwayError as error:
                log.warning("%s", error)

    def _start_redis(self) -> None:
        self._redis.start()
        self._redis_id = identify(self._redis.pid)

    async def _find_controller(self, membership: Membership) -> None:
        try:
            members = await membership.members("controller")
        except HeadwayError as error:
            log.warning("%s", error)
            return
        if members and self._controller.process_id is not None and members[0].pid == self._controller.process_id.pid:
            self._endpoint, self._found = members[0].endpoint, self._controller.process_id
            self._controller.has_served = True

    def _publish(self) -> None:
        gateway = self._deployment.gateway
        host = _ANYWHERE.get(gateway.host, gateway.host)
        stack = Stack(
            redis_url=self._redis.url,
            http_url=f"http://{host}:{gateway.port}",
            grpc_endpoint=f"{host}:{gateway.grpc_port}",
            supervisor=self._supervisor_id,
            redis=self._redis_id if self._redis.is_running() else None,
            controller=self._controller.process_id,
            controller_endpoint=self._endpoint,
            api_key=next(iter(gateway.api_keys), ""),
            tls=self._access.tls,
        )
        if stack != self._published:
            write_stack(self._state_dir, stack)
            self._published = stack

    async def _end(self) -> None:
        """Drains unless in a hurry, then ends whatever is left, by pid."""
        if self._endpoint and not self._hurrying.is_set():
            await self._drain()
        await asyncio.to_thread(self._controller.stop)  # first, so that it launches nothing anew
        if self._redis.is_running():
            await end_recorded(self._redis.url)
        await asyncio.to_thread(end_unrecorded, self._state_dir / "logs")
        await asyncio.to_thread(self._redis.stop)
        remove_stack(self._state_dir)

    async def _drain(self) -> None:
        draining = asyncio.create_task(self._shut_controller_down())
        hurrying = asyncio.create_task(self._hurrying.wait())
        await asyncio.wait((draining, hurrying), return_when=asyncio.FIRST_COMPLETED)
        for task in (draining, hurrying):
            task.cancel()
        await asyncio.gather(draining, hurrying, return_exceptions=True)

    async def _shut_controller_down(self) -> None:
        request = controller_pb2.ShutdownRequest(grace_s=DRAIN_S)
        try:
            async with calling(
                self._endpoint, controller_pb2_grpc.ControllerServiceStub, access=self._access
            ) as controller:
                await controller.Shutdown(request, timeout=DRAIN_S + 10)
        except HeadwayError as error:
            log.warning("the controller could not shut down: %s", error)


async def end_recorded(redis_url: str) -> None:
    """Ends the controller at work, whoever started it, and then what controllers have launched."""
    for find in (dismissed_controller, recorded_processes):
        await asyncio.to_thread(end_all, await find(redis_url, namespace=NAMESPACE), grace_s=STOP_GRACE_S)


def end_unrecorded(log_directory: Path) -> None:
    """Ends what a controller had launched when it was killed, and not yet written down."""
    launched = [writer for writer in find_log_writers(log_directory) if writer.name not in _OTHER_LOGS]
    strays = [ProcessId(pid=writer.pid, start=writer.start) for writer in launched if writer.pid != os.getpid()]
    end_all(strays, grace_s=STOP_GRACE_S)
