"""Clients that leave before their answer is complete."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.types import Receive


class ClientLeftError(Exception):
    """The HTTP connection was closed by the client."""


@asynccontextmanager
async def while_connected(receive: Receive) -> AsyncIterator[None]:
    """Cancels the body at once when the client leaves, and raises ClientLeftError then.

    The request's own body must have been read.
    """
    task = asyncio.current_task()
    assert task is not None
    has_left = False

    async def watch() -> None:
        nonlocal has_left
        while (await receive())["type"] != "http.disconnect":
            pass
        has_left = True
        task.cancel()

    watcher = asyncio.create_task(watch())
    try:
        yield
    except asyncio.CancelledError:
        if not has_left or task.uncancel() > 0:
            raise
        raise ClientLeftError from None
    finally:
        watcher.cancel()
