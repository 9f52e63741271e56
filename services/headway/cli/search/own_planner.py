"""A planner of the command's own, for as long as it runs: a search needs no stack, and disturbs none."""

import asyncio
import os
import secrets
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import grpc

from headway.cli.ports import take_port
from headway.client.address import CHANNEL_OPTIONS
from headway.client.token import TOKEN_VARIABLE
from headway.core.errors import UnavailableError
from headway.core.tls_files import without_tls

_HOST = "127.0.0.1"
_START_TIMEOUT_S = 60.0
_END_TIMEOUT_S = 5.0


class OwnPlanner:
    """A planner process that keeps its searches in a directory. It is started when it is first asked for.

    Args:
        options: of its command line, besides where it listens and keeps its searches.

    Attributes:
        token: what it asks for with every call.
    """

    def __init__(self, searches_dir: Path, *, options: Sequence[str]) -> None:
        self.token = secrets.token_hex()
        self._searches_dir = searches_dir
        self._options = options
        self._starting = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._endpoint = ""

    async def endpoint(self) -> str:
        """host:port; UnavailableError where the process does not come up."""
        async with self._starting:
            if self._process is None:
                await self._start()
        return self._endpoint

    async def end(self) -> None:
        if self._process is not None:
            await _end(self._process)

    async def _start(self) -> None:
        self._endpoint = f"{_HOST}:{take_port(_HOST, 0, option='--port')}"
        with tempfile.TemporaryDirectory() as directory:
            log = Path(directory) / "planner.log"
            self._process = await _launch(self._endpoint, self.token, self._options, log, self._searches_dir)
            async with grpc.aio.insecure_channel(self._endpoint, options=CHANNEL_OPTIONS) as channel:
                await _wait_until_ready(channel, self._process, log)


async def _launch(
    endpoint: str, token: str, options: Sequence[str], log: Path, searches_dir: Path
) -> asyncio.subprocess.Process:
    """Starts a planner in a session of its own: Ctrl-C is the command's to handle. It needs no Redis, and its input
    ends with this process."""
    port = endpoint.rpartition(":")[2]
    arguments = ["--port", port, "--redis-url", f"unix://{log.with_name('none.sock')}", "--log-level", "error"]
    arguments += ["--searches-dir", str(searches_dir), "--end-with-input", *options]
    with log.open("wb") as output:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "headway.planner", *arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=output,
            stderr=output,
            env=without_tls(os.environ) | {TOKEN_VARIABLE: token},
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
