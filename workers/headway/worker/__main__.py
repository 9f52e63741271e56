"""`python -m headway.worker`: one worker process."""

import asyncio
import logging
import os
from dataclasses import asdict, replace
from functools import partial

import headway.rpc  # noqa: F401 - gRPC's settings, before gRPC
from headway.core.cluster import Hardware
from headway.core.engine_kind import EngineKind
from headway.core.errors import HeadwayError, InvalidArgumentError
from headway.core.line import QueuePolicy
from headway.observe.metrics import EMULATED_DEVICE
from headway.rpc.config import parse_config
from headway.rpc.host import hosting, run
from headway.v1 import worker_pb2_grpc
from headway.worker.config import WorkerConfig
from headway.worker.hardware import detect_hardware, emulated_hardware, server_hardware
from headway.worker.service import WorkerService
from headway.worker.servicer import WorkerServicer
from headway.worker.state import WorkerState
from headway.worker.step_watch import StepWatch
from headway.worker.transfer.client import PeerWorkerClient
from headway.worker.vllm.environment import vllm_version
from headway.worker.vllm_server.server import describe_server

log = logging.getLogger(__name__)


async def _hardware(config: WorkerConfig) -> Hardware:
    if config.emulate:
        return emulated_hardware(config.emulate, memory_bytes=config.memory_bytes)
    try:
        if config.engine is EngineKind.VLLM_SERVER:
            described = await describe_server(config.engine_url, model=config.engine_model, events=config.engine_events)
            return server_hardware(described.served, version=described.version)
        if config.num_devices > 1 and config.engine is not EngineKind.VLLM:
            raise InvalidArgumentError(
                f"num_devices is {config.num_devices}, and a worker with {config.engine} has one.",
                hint="Start a worker for each device.",
                field="num_devices",
            )
        found = detect_hardware(
            device=config.device,
            num_threads=config.num_threads,
            memory_bytes=config.memory_bytes,
            num_devices=config.num_devices,
        )
        if config.engine is EngineKind.HEADWAY:
            return found
        return replace(found, software=found.software | {config.engine.value: vllm_version()})
    except HeadwayError as error:
        raise SystemExit(f"headway-worker: {error}") from None


async def main(config: WorkerConfig) -> None:
    async with hosting("worker", config) as host:
        group_id = config.group_id or host.member_id.replace("worker", "group")
        host.member = replace(host.member, pool=config.pool)
        states: asyncio.Queue[WorkerState] = asyncio.Queue()

        async def keep_state() -> None:
            while True:
                state = await states.get()
                await host.update_member(**asdict(replace(state, group_id=state.group_id or group_id)))

        hardware = await _hardware(config)
        if hardware.is_emulated:
            log.warning("%s is emulated: steps take its time, nothing is computed, tokens are made up", hardware.name)
            EMULATED_DEVICE.labels(hardware.name).set(1)
        service = WorkerService(
            host.member_id,
            hardware=hardware,
            address=config.advertise_host or config.bind_host,
            workers=PeerWorkerClient(host.peers, own_endpoint=lambda: host.member.endpoint),
            on_state=states.put_nowait,
            on_crashed=host.stopping.set,
            tracing=host.tracing,
            queue_policy=QueuePolicy(config.queue_policy),
            has_graphs=config.cuda_graphs,
            overlaps_steps=config.overlap_steps,
            engine_events=config.engine_events,
        )
        states.put_nowait(WorkerState(state="starting"))
        watch = StepWatch(service.replicas, on_stuck=partial(os._exit, 1))
        worker_pb2_grpc.add_WorkerServiceServicer_to_server(WorkerServicer(service), host.server)
        host.spawn(keep_state(), name="keep-state")
        host.spawn(watch.watch(), name="watch-steps")
        await host.serve(on_stop=service.stop)
    if service.has_crashed:
        logging.shutdown()
        os._exit(1)  # a thread that waits for ranks that are gone would hold the interpreter's end up


if __name__ == "__main__":
    run(main(parse_config(WorkerConfig, prog="headway-worker")))
