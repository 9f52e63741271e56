"""Captures that callers of the service ask for, one at a time, as each takes a processor. None runs code of the
caller's."""

import asyncio
import math
from collections.abc import AsyncGenerator
from contextlib import aclosing

from headway.core.capture import CaptureProgress, CaptureRequest
from headway.core.codec import from_document, to_document
from headway.core.errors import InvalidArgumentError
from headway.rpc.child import call_child

CAPTURE_MODULE = "headway.profiler.capture"
_DEADLINE_S = 600.0


class Captures:
    def __init__(self) -> None:
        self._capturing = asyncio.Lock()

    async def capture(
        self, request: CaptureRequest, *, deadline_s: float | None = None
    ) -> AsyncGenerator[CaptureProgress, None]:
        """Yields every phase as it begins, and at last the graph. torch is loaded in a process that ends with it.

        Raises:
            InvalidArgumentError: the source is `module:factory`, the caller's code.
            HeadwayError: what `headway.profiler.capture` raised.
            DeadlineExceededError: it took longer than `deadline_s` seconds.
            UnavailableError: its process died.
        """
        if request.is_code:
            raise InvalidArgumentError(
                f"{request.source} is code: it runs in its caller's own process, never in a service.",
                hint=f"`headway profile model {request.source}` captures it there, and sends the graph. "
                "A service captures zoo:NAME and checkpoint directories.",
                field="source",
            )
        limit_s = _DEADLINE_S if deadline_s is None else deadline_s
        if not 0 < limit_s < math.inf:
            raise InvalidArgumentError(f"deadline_s must be above 0 and finite, not {limit_s}.", field="deadline_s")
        async with self._capturing:
            child = call_child(CAPTURE_MODULE, to_document(request), deadline_s=limit_s)
            async with aclosing(child) as answers:
                async for answer in answers:
                    yield from_document(CaptureProgress, answer)
