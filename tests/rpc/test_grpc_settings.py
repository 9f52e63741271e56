"""gRPC's settings are there before gRPC is, and with them a service that starts children keeps its connections."""

import os
import subprocess
import sys

import pytest

SERVICES = ("controller", "gateway", "kvcache", "planner", "profiler", "router", "worker")

IMPORT = """
import importlib, os, sys

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "grpc":
            print(os.environ.get("GRPC_ENABLE_FORK_SUPPORT"), os.environ.get("GRPC_EXPERIMENTS"))

sys.meta_path.insert(0, Watch())
importlib.import_module("headway.SERVICE.__main__")
"""

SERVE = """
import asyncio, sys
import headway.rpc
import grpc
import uvloop
from grpc_health.v1 import health, health_pb2_grpc

async def main():
    server = grpc.aio.server()
    health_pb2_grpc.add_HealthServicer_to_server(health.aio.HealthServicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    caller = await asyncio.create_subprocess_exec(sys.executable, "-c", sys.argv[1], str(port))
    ended = asyncio.ensure_future(caller.wait())
    while not ended.done():
        child = await asyncio.create_subprocess_exec("true")
        await child.wait()
    sys.exit(ended.result())

uvloop.run(main())
"""

CALL = """
import sys
import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

for _ in range(300):
    with grpc.insecure_channel(f"127.0.0.1:{sys.argv[1]}") as channel:
        health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=""), timeout=20)
"""


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_sets_them_before_it_imports_grpc(service: str) -> None:
    unset = {name: value for name, value in os.environ.items() if not name.startswith("GRPC_")}
    command = [sys.executable, "-c", IMPORT.replace("SERVICE", service)]
    result = subprocess.run(command, env=unset, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == ["0 -event_engine_client,-event_engine_listener"]


def test_children_that_are_started_leave_the_connections_alone() -> None:
    command = [sys.executable, "-c", SERVE, CALL]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr
    assert "fork" not in result.stderr  # gRPC's handlers say so where they can't do their work
