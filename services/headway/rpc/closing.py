"""Calls on channels that are closed under them."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from headway.core.errors import UnavailableError


@contextmanager
def unavailable_when_closed(peer: str) -> Iterator[None]:
    """A call whose channel was closed, since its member left or its lease lapsed, is cancelled by gRPC as if we had
    been. Here it raises UnavailableError: `peer` is gone.
    """
    try:
        yield
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise UnavailableError(f"{peer} is gone.", hint="Try again in a moment.") from None
