"""A call to a child process: the request on its standard input, answers as lines of its standard output.

For work that needs libraries or user code that the caller does not want in its own process.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

from headway.core.codec import from_document
from headway.core.errors import DeadlineExceededError, UnavailableError
from headway.core.fault import Fault
from headway.rpc.tasks import end_tasks, finished

_MAX_LINE_BYTES = 1 << 30
_TAIL_BYTES = 2000


async def call_child(
    module: str, request: object, *, deadline_s: float | None, stop: asyncio.Event | None = None
) -> AsyncGenerator[dict[str, Any], None]:
    """Runs `python -m MODULE` and yields its answers: JSON objects, except the one with `error`, which is raised.

    Closing the generator kills the child and what it started.

    Args:
        deadline_s: None for none.
        stop: asks the child to end with what it has. With one, its input is lines: the request, and an empty one once
            the event is set; it ends when this process does. Without, the request alone.

    Raises:
        DeadlineExceededError: it did not end within `deadline_s` seconds.
        UnavailableError: it died; what it last wrote to standard error is part of the message.
    """
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=_MAX_LINE_BYTES,
        start_new_session=True,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stderr is not None
    complaints = asyncio.create_task(_tail(child.stderr))
    asking = asyncio.create_task(_ask(child.stdin, request, stop))
    try:
        async with asyncio.timeout(deadline_s):
            async for line in child.stdout:
                answer = json.loads(line)
                if "error" in answer:
                    raise from_document(Fault, answer["error"]).raised()
                yield answer
            code = await child.wait()
    except TimeoutError:
        raise DeadlineExceededError(
            f"{module} was not done after {deadline_s or 0:.0f} s.", hint="Give it a longer deadline."
        ) from None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        tail = await finished(asyncio.create_task(_close(child, asking, complaints)))
    if code != 0:
        raise UnavailableError(f"{module} {_ending(code)}. {tail}".strip(), hint=_hint(code))


async def _close(child: asyncio.subprocess.Process, asking: asyncio.Task[None], complaints: asyncio.Task[str]) -> str:
    """Closes the pipes of a child that was killed, one that is left open outlives the event loop; returns what it last
    wrote to standard error."""
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.close()
    with suppress(BrokenPipeError, ConnectionResetError):
        await child.stdin.wait_closed()
    await child.stdout.read()
    await child.wait()
    await end_tasks([asking])
    return await complaints


async def _ask(stdin: asyncio.StreamWriter, request: object, stop: asyncio.Event | None) -> None:
    """Writes the request, and the wish to stop; a child that has died by now reads neither."""
    with suppress(BrokenPipeError, ConnectionResetError):
        await _write(stdin, json.dumps(request).encode())
        if stop is not None:
            await _write(stdin, b"\n")
            await stop.wait()
            await _write(stdin, b"\n")
            return
    stdin.close()


async def _write(stdin: asyncio.StreamWriter, content: bytes) -> None:
    if not stdin.is_closing():
        stdin.write(content)
        await stdin.drain()


def _ending(code: int) -> str:
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"


def _hint(code: int) -> str:
    return "It may have run out of memory." if code == -signal.SIGKILL else ""


async def _tail(stream: asyncio.StreamReader) -> str:
    kept = b""
    while chunk := await stream.read(1 << 16):
        kept = (kept + chunk)[-_TAIL_BYTES:]
    lines = kept.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""
