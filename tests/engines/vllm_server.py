"""vLLM's own server, as its users start it: a process of the interpreter that `make vllm` set up."""

import asyncio
import json
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from headway.worker.vllm.environment import vllm_environment
from tests.engines.vllm_worker import VLLM_PYTHON
from tests.engines.worker import BLOCK_SIZE, MAX_LEN, NUM_BLOCKS


@asynccontextmanager
async def vllm_server(model: Path, log_dir: Path) -> AsyncIterator[tuple[str, str]]:
    """Yields the URL of a server of the model, with as many blocks as the contract's workers have, and where it
    publishes the events of its cache."""
    with socket.socket() as taken, socket.socket() as other:
        taken.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        port, events = taken.getsockname()[1], f"tcp://127.0.0.1:{other.getsockname()[1]}"
    # With a star it binds; to another address vLLM's publisher connects.
    published = {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": events.replace("127.0.0.1", "*")}
    command = (
        # As `vllm serve`, which looks for a package of that name, and the one for CPUs has another.
        *(str(VLLM_PYTHON), "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", str(model), "--served-model-name", "tiny"),
        *("--host", "127.0.0.1", "--port", str(port), "--dtype", "float32", "--enforce-eager"),
        *("--enable-scale-out", "--enable-prompt-tokens-details", "--block-size", str(BLOCK_SIZE)),
        *("--num-gpu-blocks-override", str(NUM_BLOCKS + 1), "--max-model-len", str(MAX_LEN), "--max-num-seqs", "8"),
        *("--max-num-batched-tokens", "128", "--kv-events-config", json.dumps(published)),
    )
    environment = os.environ | vllm_environment(num_threads=1, is_eager=True) | {"VLLM_CPU_KVCACHE_SPACE": "1"}
    with (log_dir / "server.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *command, env=environment, stdout=log, stderr=log, start_new_session=True
        )
    url = f"http://127.0.0.1:{port}"
    try:
        async with asyncio.timeout(400), httpx.AsyncClient(base_url=url) as client:
            while not await _is_up(client):
                assert process.returncode is None, (log_dir / "server.log").read_text()[-3000:]
                await asyncio.sleep(0.5)
        yield url, events
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            await process.wait()


async def _is_up(client: httpx.AsyncClient) -> bool:
    try:
        return (await client.get("/health")).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False
