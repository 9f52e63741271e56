"""`python -m headway.controller.cell`: the first process of a worker pod."""

import asyncio
import logging

import headway.rpc  # noqa: F401 - gRPC's settings, before gRPC
from headway.controller.cell.cell import Cell
from headway.controller.cell.config import CellConfig
from headway.controller.cell.logs import LogCopy
from headway.controller.cell.records import MemoryRecords
from headway.controller.cell.servicer import CellServicer
from headway.controller.cell.specs import worker_specs
from headway.controller.clients.worker import WorkerControlClient
from headway.controller.launchers.local import LocalLauncher
from headway.controller.machine import read_machine
from headway.controller.supervisor import Supervisor
from headway.core.errors import HeadwayError
from headway.rpc.config import parse_config
from headway.rpc.host import Host, hosting, run
from headway.store.plans import PlanStore
from headway.v1 import cell_pb2_grpc

log = logging.getLogger(__name__)

_LOOKS_EVERY_S = 0.5


async def main(config: CellConfig) -> None:
    async with hosting("cell", config) as host:
        try:
            specs = worker_specs(config, cell_id=host.member_id, machine=read_machine())
        except HeadwayError as error:
            raise SystemExit(f"headway-cell: {error}") from None
        launcher = LocalLauncher(config.log_dir)
        supervisor = Supervisor(
            specs,
            launcher=launcher,
            records=MemoryRecords(),
            membership=host.membership,
            peers=host.peers,
            may_act=_always,
        )
        cell = Cell(
            [spec.name for spec in specs],
            peers=host.peers,
            plans=PlanStore(host.database),
            client=WorkerControlClient(host.peers, epoch=None),
            ready_without_plan=config.ready_without_plan,
        )
        logs = LogCopy([launcher.log_path(spec.name) for spec in specs])
        cell_pb2_grpc.add_CellServiceServicer_to_server(CellServicer(supervisor), host.server)
        await supervisor.start()
        host.spawn(logs.copy_forever(), name="copy-logs")
        host.spawn(supervisor.watch(on_death=_note_death), name="supervise")
        host.spawn(_keep_readiness(cell, host), name="readiness")

        async def stop() -> None:
            await cell.drain(deadline_s=config.drain_s)
            await supervisor.stop()
            logs.copy()

        await host.serve(on_stop=stop, is_ready_at_once=False)


async def _keep_readiness(cell: Cell, host: Host) -> None:
    """While Redis is away, what was known last stays."""
    while True:
        await asyncio.sleep(_LOOKS_EVERY_S)
        try:
            await host.show_ready(is_ready=await cell.is_ready())
        except HeadwayError as error:
            log.debug("readiness is not known: %s", error)


async def _always() -> bool:
    """The workers of a cell are its own."""
    return True


def _note_death(name: str, pid: int) -> None:
    """The controller finds out from the lease of the next run."""
    log.warning("%s (pid %d) has died", name, pid)


if __name__ == "__main__":
    run(main(parse_config(CellConfig, prog="headway-cell")))
