"""A controller process that launches one long sleep and does as its SCRIPT says: what the supervisor is tested with.

Scripts: 'serve' is ready at once; 'faulty' reports a checkpoint that does not load; 'stuck' ignores Shutdown, but makes
the file SHUTDOWN_ASKED.
"""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import psutil

from headway.core.errors import ErrorCode
from headway.observe.process_start import find_process, process_start
from headway.rpc.config import ProcessConfig, parse_config
from headway.rpc.host import Host, hosting, run
from headway.store.schema import PROCESS
from headway.v1 import common_pb2, controller_pb2, controller_pb2_grpc, planner_pb2


class Config(ProcessConfig):
    state_dir: str = ""


class Servicer(controller_pb2_grpc.ControllerServiceServicer):
    def __init__(self, host: Host, sleep: psutil.Process) -> None:
        self._host = host
        self._sleep = sleep
        self._script = os.environ.get("SCRIPT", "serve")

    async def GetStatus(self, request: Any, context: Any) -> controller_pb2.GetStatusResponse:  # noqa: N802
        if self._script == "faulty":
            fault = common_pb2.ErrorDetail(code=ErrorCode.NOT_FOUND, message="A shard is missing.", hint="Fetch it.")
            return controller_pb2.GetStatusResponse(fault=fault)
        return controller_pb2.GetStatusResponse(ready=True, progress=1.0)

    async def GetPlan(self, request: Any, context: Any) -> controller_pb2.GetPlanResponse:  # noqa: N802
        return controller_pb2.GetPlanResponse(plan=planner_pb2.ServingPlan(plan_id="plan-1"))

    async def ApplyPlan(self, request: Any, context: Any) -> controller_pb2.ApplyPlanResponse:  # noqa: N802
        raise NotImplementedError

    async def Shutdown(self, request: Any, context: Any) -> controller_pb2.ShutdownResponse:  # noqa: N802
        if self._script == "stuck":
            Path(os.environ["SHUTDOWN_ASKED"]).touch()  # noqa: ASYNC240
            await asyncio.sleep(60)
        self._sleep.terminate()
        return controller_pb2.ShutdownResponse()


async def main(config: Config) -> None:
    async with hosting("controller", config) as host:
        sleep = await launch(host)
        controller_pb2_grpc.add_ControllerServiceServicer_to_server(Servicer(host, sleep), host.server)
        await host.serve()


async def launch(host: Host) -> psutil.Process:
    """Starts the sleep, or adopts the one that an earlier controller recorded."""
    key = PROCESS.key(host.config.namespace, "sleep")
    text = await host.database.redis.get(key)
    recorded = json.loads(text) if text else None
    if recorded and (adopted := find_process(recorded["pid"], start=recorded["start"])):
        return adopted
    child = await asyncio.create_subprocess_exec("sleep", "600", start_new_session=True)
    process = psutil.Process(child.pid)
    await host.database.redis.set(key, json.dumps({"pid": child.pid, "start": process_start(child.pid)}))
    return process


if __name__ == "__main__":
    run(main(parse_config(Config, prog="scripted-controller")))
