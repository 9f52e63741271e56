"""The stream on which one gateway asks for places: its requests wait side by side, and each gets its own answer."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from headway.core.errors import HeadwayError
from headway.observe.logging import request_id_var
from headway.observe.tracing import Tracing
from headway.router.lease import Lease, Release
from headway.router.request import RoutingRequest
from headway.router.service import RouterService
from headway.rpc.tasks import tell_failure


@dataclass(frozen=True, slots=True)
class Answer:
    """The router's answer to one attempt of a request: a lease, or an error."""

    request_id: str
    attempt: int
    outcome: Lease | HeadwayError


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request that waits for its answer."""

    attempt: int
    task: asyncio.Task[None]


class DispatchStream:
    """One gateway's dispatch stream. When it closes, waiting requests are withdrawn; leases that were sent stay."""

    def __init__(self, service: RouterService, *, tracing: Tracing) -> None:
        self._service = service
        self._tracing = tracing
        self._waiting: dict[str, _Asked] = {}  # by request id
        self._answers: asyncio.Queue[Answer | BaseException | None] = asyncio.Queue()
        self._is_finished = False

    def route(self, request: RoutingRequest) -> None:
        """Looks for a place in the background; of two requests with one id the later counts."""
        self._withdraw(request.request_id)
        task = asyncio.create_task(self._route(request))
        self._waiting[request.request_id] = _Asked(request.attempt, task)
        tell_failure(task, self.fail)
        task.add_done_callback(lambda task: self._on_ended(request.request_id, task))

    def note_first_token(self, lease_id: str, *, ttft_s: float) -> None:
        """The request that holds a lease has its first token, so many seconds after it arrived at the gateway."""
        self._service.note_first_token(lease_id, ttft_s=ttft_s)

    def release(self, release: Release) -> None:
        """Ends a lease; one that its request still waits for is never given."""
        self._withdraw(release.request_id, attempt=release.attempt)
        self._service.release(release)

    def refuse(self, request_id: str, error: HeadwayError, *, attempt: int) -> None:
        self._answers.put_nowait(Answer(request_id, attempt, error))

    def finish(self) -> None:
        """The gateway asks for nothing more: `answers` ends with the last answer."""
        self._is_finished = True
        self._end_if_done()

    def fail(self, error: BaseException) -> None:
        """There is a bug: `answers` raises this behind the answers that there are."""
        self._answers.put_nowait(error)

    async def answers(self) -> AsyncGenerator[Answer, None]:
        """Yields answers as they are decided; raises what a decision failed with, which is a bug."""
        while (answer := await self._answers.get()) is not None:
            if isinstance(answer, BaseException):
                raise answer
            yield answer

    async def close(self) -> None:
        """Withdraws what waits, and takes back the leases that could not be told any more."""
        tasks = [asked.task for asked in self._waiting.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        while not self._answers.empty():
            answer = self._answers.get_nowait()
            if isinstance(answer, Answer) and isinstance(answer.outcome, Lease):
                self._service.abandon(answer.outcome)

    async def _route(self, request: RoutingRequest) -> None:
        request_id_var.set(request.request_id)
        outcome: Lease | HeadwayError
        try:
            with self._tracing.span("router.route", traceparent=request.traceparent, model=request.model):
                outcome = await self._service.route(request)
        except HeadwayError as error:
            outcome = error
        self._answers.put_nowait(Answer(request.request_id, request.attempt, outcome))

    def _withdraw(self, request_id: str, *, attempt: int = 0) -> None:
        asked = self._waiting.get(request_id)
        if asked is not None and attempt in (0, asked.attempt):
            del self._waiting[request_id]
            asked.task.cancel()

    def _on_ended(self, request_id: str, task: asyncio.Task[None]) -> None:
        asked = self._waiting.get(request_id)
        if asked is not None and asked.task is task:
            del self._waiting[request_id]
        self._end_if_done()

    def _end_if_done(self) -> None:
        if self._is_finished and not self._waiting:
            self._answers.put_nowait(None)
