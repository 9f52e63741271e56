"""A planner of the command's own, for as long as it runs: a search needs no stack, and disturbs none."""

import asyncio
import os
import secrets
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import grpc

from headway.cli.ports import take_port
from headway.client.address import CHANNEL_OPTIONS
from headway.core.errors import UnavailableError
from headway.rpc.status import error_from_rpc
from headway.v1 import planner_pb2_grpc

_HOST = "127.0.0.1"
_START_TIMEOUT_S = 60.0
_END_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Planner:
    """A stub, and what to send with every call."""

    stub: "planner_pb2_grpc.PlannerServiceAsyncStub"
    metadata: tuple[tuple[str, str], ...]


@asynccontextmanager
async def planning(catalogue: Path | None) -> AsyncIterator[Planner]:
    """Faults inside the block are raised as HeadwayError. UnavailableError where the process does not come up."""
    port, token = take_port(_HOST, 0, option="--port"), secrets.token_hex()
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "planner.log"
        process = await _start(port, token, catalogue, log)
        try:
            async with grpc.aio.insecure_channel(f"{_HOST}:{port}", options=CHANNEL_OPTIONS) as channel:
                await _wait_until_ready(channel, process, log)
                yield Planner(planner_pb2_grpc.PlannerServiceStub(channel), (("authorization", f"Bearer {token}"),))
        except grpc.aio.AioRpcError as error:
            raise error_from_rpc(error) from None
        finally:
            await _end(process)


async def _start(port: int, token: str, catalogue: Path | None, log: Path) -> asyncio.subprocess.Process:
    """Starts a planner in a session of its own: Ctrl-C is the command's to handle. It needs no Redis for placing."""
    arguments = ["--port", str(port), "--redis-url", f"unix://{log.with_name('none.sock')}", "--log-level", "error"]
    if catalogue is not None:
        arguments += ["--catalogue", str(catalogue)]
    with log.open("wb") as output:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "headway.planner", *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, "HEADWAY_AUTH_TOKEN": token},
            start_new_session=True,
        )


async def _wait_until_ready(channel: grpc.aio.Channel, process: asyncio.subprocess.Process, log: Path) -> None:
    ready, ended = asyncio.create_task(channel.channel_ready()), asyncio.create_task(process.wait())
    try:
        await asyncio.wait((ready, ended), timeout=_START_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            raise UnavailableError("The planner did not start.", hint=_last_words(log))
    finally:
        ready.cancel()
        ended.cancel()


async def _end(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), _END_TIMEOUT_S)
        except TimeoutError:
            process.kill()
            await process.wait()


def _last_words(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""
