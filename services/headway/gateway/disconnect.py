"""Clients that leave before their answer is complete."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.types import Receive

from headway.core.errors import UnavailableError


class ClientLeftError(Exception):
    """The HTTP connection was closed by the client."""


def stopping() -> UnavailableError:
    return UnavailableError("The gateway is stopping.", hint="Try again in a moment.", retry_after_s=1.0)


@asynccontextmanager
async def while_connected(receive: Receive) -> AsyncIterator[None]:
    """Cancels what is done within at once when the client leaves. The request's own body must have been read.

    Raises:
        ClientLeftError: it has left.
        UnavailableError: the task was cancelled by someone else, which is the server when it stops.
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
        if has_left:  # and the body took note of it
            task.uncancel()
            raise ClientLeftError
    except asyncio.CancelledError:
        task.uncancel()
        raise (ClientLeftError() if has_left else stopping()) from None
    finally:
        watcher.cancel()
