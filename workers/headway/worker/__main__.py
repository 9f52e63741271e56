"""`python -m headway.worker`: one worker process."""

import asyncio
import os
from dataclasses import asdict, replace

from headway.rpc.config import parse_config
from headway.rpc.host import hosting, run
from headway.v1 import worker_pb2_grpc
from headway.worker.config import WorkerConfig
from headway.worker.hardware import detect_hardware
from headway.worker.service import WorkerService, WorkerState
from headway.worker.servicer import WorkerServicer
from headway.worker.transfer.client import WorkerClient


async def main(config: WorkerConfig) -> None:
    async with hosting("worker", config) as host:
        group_id = config.group_id or host.member_id.replace("worker", "group")
        states: asyncio.Queue[WorkerState] = asyncio.Queue()

        async def keep_state() -> None:
            while True:
                state = await states.get()
                await host.update_member(**asdict(replace(state, group_id=state.group_id or group_id)))

        service = WorkerService(
            host.member_id,
            hardware=detect_hardware(config),
            address=config.advertise_host or config.bind_host,
            workers=WorkerClient(host.peers, own_endpoint=lambda: host.member.endpoint),
            on_state=states.put_nowait,
            on_crashed=host.stopping.set,
            tracing=host.tracing,
        )
        states.put_nowait(WorkerState(state="starting"))
        worker_pb2_grpc.add_WorkerServiceServicer_to_server(WorkerServicer(service), host.server)
        host.spawn(keep_state(), name="keep-state")
        await host.serve(on_stop=service.stop)
    if service.has_crashed:
        os._exit(1)  # a thread that waits for ranks that are gone would hold the interpreter's end up


if __name__ == "__main__":
    run(main(parse_config(WorkerConfig, prog="headway-worker")))
