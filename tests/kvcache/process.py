"""The KV-cache service as a process."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def kvcache_process(redis_url: str, namespace: str, *flags: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Ended at the end, if it has not been before."""
    flags = ("--redis-url", redis_url, "--namespace", namespace, "--member-id", "kvcache-0", *flags)
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "headway.kvcache", *flags)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
