"""`python -m headway.worker`: one worker process."""

import asyncio

from headway.rpc.config import parse_config
from headway.rpc.host import hosting, run
from headway.v1 import worker_pb2_grpc
from headway.worker.config import WorkerConfig
from headway.worker.hardware import detect_hardware
from headway.worker.service import WorkerService
from headway.worker.servicer import WorkerServicer


async def main(config: WorkerConfig) -> None:
    async with hosting("worker", config) as host:
        group_id = config.group_id or host.member_id.replace("worker", "group")
        leases: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

        async def keep_state() -> None:
            while True:
                state, model = await leases.get()
                await host.update_member(state=state, model=model, group_id=group_id)

        service = WorkerService(
            host.member_id,
            hardware=detect_hardware(config),
            on_state=lambda state, model: leases.put_nowait((state, model)),
            on_crash=host.stopping.set,
            tracing=host.tracing,
        )
        leases.put_nowait(("starting", ""))
        worker_pb2_grpc.add_WorkerServiceServicer_to_server(WorkerServicer(service), host.server)
        host.spawn(keep_state(), name="keep-state")
        await host.serve(on_stop=service.stop)


if __name__ == "__main__":
    run(main(parse_config(WorkerConfig, prog="headway-worker")))
