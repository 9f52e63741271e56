"""A worker that does as it is told, in this process or as one of its own.

It loads whatever has a directory without 'missing' in its name, and tells a list in Redis what it was asked. In a group
the leader is done when all ranks are; 'rank-1-missing' is missing on rank 1 only, 'rank-1-slow' takes that rank long.
Of two controllers it obeys the newer one.
"""

import asyncio
import itertools
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

from headway.core.cluster import Hardware
from headway.core.errors import NotFoundError, UnavailableError
from headway.rpc.config import ProcessConfig, parse_config
from headway.rpc.convert import to_pb
from headway.rpc.host import hosting, run
from headway.rpc.interceptors import Context
from headway.store.redis import Database
from headway.v1 import common_pb2, worker_pb2, worker_pb2_grpc
from headway.worker.fence import Fence

LOAD_S = 0.4
_CPU = Hardware(device="cpu", name="Scripted CPU", num_threads=1, memory_bytes=8 * 1024**3)


class ScriptedWorker(worker_pb2_grpc.WorkerServiceServicer):
    def __init__(
        self,
        worker_id: str,
        database: Database,
        *,
        on_state: Callable[[str, str], Awaitable[None]],
        hardware: Hardware = _CPU,
    ) -> None:
        self.worker_id = worker_id
        self.memory_bytes = hardware.memory_bytes
        self._hardware = hardware
        self.num_failing_loads = 0
        self._database = database
        self._on_state = on_state
        self._state = "starting"
        self._loaded: dict[str, worker_pb2.LoadModelRequest] = {}
        self._leaving: set[str] = set()
        self._run: tuple[tuple[str, ...], str] = ((), "")  # the group that it leads, and the name of its run
        self._meetings = itertools.count()
        self._fence = Fence()

    async def GetWorker(  # noqa: N802 - the method's name in the protocol
        self, request: worker_pb2.GetWorkerRequest, context: Context
    ) -> worker_pb2.GetWorkerResponse:
        self._fence.check(context)
        first = next(iter(self._loaded.values()), worker_pb2.LoadModelRequest())
        hardware = replace(self._hardware, memory_bytes=self.memory_bytes)
        return worker_pb2.GetWorkerResponse(
            worker_id=self.worker_id,
            hardware=to_pb(hardware, common_pb2.Hardware),
            state=self._state,
            rank=first.rank,
            group_epoch=first.rendezvous.rpartition("/")[2],
            replicas=[
                worker_pb2.LoadedReplica(model=loaded.model, plan_id=loaded.plan_id, state=self._state_of(loaded))
                for loaded in self._loaded.values()
            ],
        )

    async def LoadModel(  # noqa: N802
        self, request: worker_pb2.LoadModelRequest, context: Context
    ) -> AsyncIterator[worker_pb2.LoadModelResponse]:
        self._fence.check(context)
        await self._tell(f"load {request.model}" + (f" as rank {request.rank}" if request.rank else ""))
        is_faulty = "rank-" not in request.directory or f"rank-{request.rank}-missing" in request.directory
        if "missing" in request.directory and is_faulty:
            raise NotFoundError(f"There is no directory {request.directory}.")
        if self.num_failing_loads > 0:
            self.num_failing_loads -= 1
            raise UnavailableError("The machine has no memory left.")
        self._drop(request.model)
        await self._become("loading")
        if len(request.worker_ids) > 1 and not request.rendezvous:
            request.rendezvous = f"127.0.0.1:9/{next(self._meetings)}/{self._run_of(tuple(request.worker_ids))}"
            yield worker_pb2.LoadModelResponse(rendezvous=request.rendezvous)
        seconds = 30.0 if f"rank-{request.rank}-slow" in request.directory else LOAD_S
        for step in range(4):
            yield worker_pb2.LoadModelResponse(fraction=step / 4, stage="reading weights")
            await asyncio.sleep(seconds / 4)
        await self.wait_for_ranks(request)
        self._loaded[request.model] = request
        await self._become("rank" if request.rank else "ready")
        yield worker_pb2.LoadModelResponse(fraction=1.0, done=True)

    async def WatchLoad(  # noqa: N802
        self, request: worker_pb2.WatchLoadRequest, context: Context
    ) -> AsyncIterator[worker_pb2.WatchLoadResponse]:
        loaded = next(iter(self._loaded.values()))
        yield worker_pb2.WatchLoadResponse(
            model=loaded.model,
            num_blocks=loaded.num_blocks,
            max_num_seqs=loaded.max_num_seqs,
            max_num_batched_tokens=loaded.max_num_batched_tokens,
            max_model_len=loaded.max_model_len,
            block_size=loaded.block_size,
        )

    async def MeasureStep(  # noqa: N802
        self, request: worker_pb2.MeasureStepRequest, context: Context
    ) -> worker_pb2.MeasureStepResponse:
        step_s = 1e-3 + 1e-4 * request.prefill_tokens + 1e-4 * request.num_decodes
        return worker_pb2.MeasureStepResponse(step_s=step_s)

    async def Drain(  # noqa: N802
        self, request: worker_pb2.DrainRequest, context: Context
    ) -> worker_pb2.DrainResponse:
        self._fence.check(context)
        await self._tell(f"drain {request.model or next(iter(self._loaded))}")
        self._leaving |= {request.model} if request.model else set(self._loaded)
        await self._become("draining")
        return worker_pb2.DrainResponse()

    async def UnloadModel(  # noqa: N802
        self, request: worker_pb2.UnloadModelRequest, context: Context
    ) -> worker_pb2.UnloadModelResponse:
        self._fence.check(context)
        self._drop(request.model)
        return worker_pb2.UnloadModelResponse()

    async def wait_for_ranks(self, request: worker_pb2.LoadModelRequest) -> None:
        """Returns when all of the group have come here."""
        key = f"{self._database.namespace}:{request.rendezvous}"
        await self._database.redis.sadd(key, str(request.rank))
        while await self._database.redis.scard(key) < len(request.worker_ids):  # noqa: ASYNC110 - other processes do it
            await asyncio.sleep(0.02)

    def _run_of(self, worker_ids: tuple[str, ...]) -> str:
        """The same for all models of a group."""
        if self._run[0] != worker_ids:
            self._run = (worker_ids, uuid.uuid4().hex)
        return self._run[1]

    def _state_of(self, loaded: worker_pb2.LoadModelRequest) -> str:
        return "draining" if loaded.model in self._leaving else "rank" if loaded.rank else "ready"

    def _drop(self, model: str) -> None:
        self._loaded.pop(model, None)
        self._leaving.discard(model)

    async def _become(self, state: str) -> None:
        self._state = state
        await self._on_state(state, next(iter(self._loaded), ""))

    async def _tell(self, event: str) -> None:
        await self._database.redis.rpush(f"{self._database.namespace}:events", f"{self.worker_id}: {event}")


async def main(config: ProcessConfig) -> None:
    async with hosting("worker", config) as host:

        async def renew(state: str, model: str) -> None:
            await host.update_member(state=state, models=(model,) if model else ())

        worker = ScriptedWorker(host.member_id, host.database, on_state=renew)
        worker_pb2_grpc.add_WorkerServiceServicer_to_server(worker, host.server)
        await host.serve()


if __name__ == "__main__":
    run(main(parse_config(ProcessConfig, prog="scripted-worker")))
