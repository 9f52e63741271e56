"""Calls to a model that does not generate: each waits for its whole answer, and takes its request back if it ends."""

import asyncio
import math
import time

from headway.core.errors import AlreadyExistsError, DeadlineExceededError, HeadwayError, InternalError, UnavailableError
from headway.core.infer import InferOutput, InferRequest
from headway.encoder.engine import EncoderEngine
from headway.observe.tracing import Tracing
from headway.worker.engine_thread import EngineThread


class InferCalls:
    """The calls that wait for the results of infer requests, by request."""

    def __init__(
        self, engine_thread: EngineThread[EncoderEngine], *, loop: asyncio.AbstractEventLoop, tracing: Tracing
    ) -> None:
        self._engine_thread = engine_thread
        self._loop = loop
        self._tracing = tracing
        self._waiting: dict[str, asyncio.Future[tuple[bytes, ...]]] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self._idle_since_s = -math.inf  # monotonic; never used yet

    def idle_s(self) -> float:
        """Seconds since the last request ended; 0 while one runs."""
        return 0.0 if self._waiting else time.monotonic() - self._idle_since_s

    async def wait_until_idle(self) -> None:
        await self._idle.wait()

    async def infer(self, request: InferRequest, *, traceparent: str) -> tuple[bytes, ...]:
        """The vector of each sequence; a caller that is cancelled takes its request back.

        Raises:
            AlreadyExistsError, InvalidArgumentError: the engine does not take the request.
            InternalError: it could not be computed.
            UnavailableError: the model goes away.
        """
        if request.request_id in self._waiting:
            raise AlreadyExistsError(f"Request {request.request_id} is running already.", field="request_id")
        started_s = time.time()
        answer: asyncio.Future[tuple[bytes, ...]] = self._loop.create_future()
        self._waiting[request.request_id] = answer
        self._idle.clear()
        self._submit(request)
        try:
            vectors = await answer
        finally:
            self._forget(request.request_id)
        if traceparent:
            self._tracing.record(
                "worker.infer",
                traceparent=traceparent,
                start_s=started_s,
                end_s=time.time(),
                request_id=request.request_id,
                num_tokens=request.num_tokens,
            )
        return vectors

    def publish(self, outputs: list[InferOutput]) -> None:
        """Answers the calls whose requests a step has completed."""
        for output in outputs:
            if output.is_late:
                hint = "Try again when fewer requests are ahead, or allow more time."
                self._fail(output.request_id, DeadlineExceededError(output.error, hint=hint, field="slo_ms"))
            elif output.error:
                self._fail(output.request_id, InternalError(output.error))
            elif (answer := self._open(output.request_id)) is not None:
                answer.set_result(output.vectors)

    def cancel_all(self) -> int:
        """Ends every call with UnavailableError; returns how many."""
        error = UnavailableError("The worker is going away.", hint="Try again: another worker takes over.")
        return sum(self._fail(request_id, error) for request_id in tuple(self._waiting))

    def _submit(self, request: InferRequest) -> None:
        def submit(engine: EncoderEngine) -> None:
            try:
                engine.submit(request)
            except HeadwayError as error:
                self._loop.call_soon_threadsafe(self._fail, request.request_id, error)

        self._engine_thread.post(submit)

    def _fail(self, request_id: str, error: HeadwayError) -> bool:
        """Ends a call with an error; False where it has its answer already."""
        answer = self._open(request_id)
        if answer is not None:
            answer.set_exception(error)
        return answer is not None

    def _open(self, request_id: str) -> asyncio.Future[tuple[bytes, ...]] | None:
        answer = self._waiting.get(request_id)
        return None if answer is None or answer.done() else answer

    def _forget(self, request_id: str) -> None:
        del self._waiting[request_id]
        self._engine_thread.post(lambda engine: engine.cancel(request_id))
        if not self._waiting:
            self._idle.set()
            self._idle_since_s = time.monotonic()
