"""A worker whose engine is vLLM: a process of the interpreter that `make vllm` set up."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc

from headway.v1 import worker_pb2_grpc
from tests.engines.worker import stub_at

VLLM_PYTHON = Path(__file__).resolve().parents[2] / "build" / "vllm" / ".venv" / "bin" / "python"

_START_TIMEOUT_S = 400  # of which importing vLLM takes nearly all


@asynccontextmanager
async def vllm_worker(directory: Path) -> AsyncIterator["worker_pb2_grpc.WorkerServiceAsyncStub"]:
    """Without a model, and without Redis: nobody looks for it."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    command = [str(VLLM_PYTHON), "-m", "headway.worker", "--engine", "vllm", "--port", str(port)]
    environment = os.environ | {"HEADWAY_REDIS_URL": "redis://127.0.0.1:1"}
    with (directory / "worker.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *command, env=environment, stdout=log, stderr=log, start_new_session=True
        )
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            async with asyncio.timeout(_START_TIMEOUT_S):
                await channel.channel_ready()
            yield stub_at(channel)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            await process.wait()
