"""Token streams: each caller's stream carries many sequences, and one message per engine step."""

import asyncio
import logging
import math
import time
from collections.abc import AsyncGenerator, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headway.core.errors import AlreadyExistsError, HeadwayError, UnavailableError
from headway.core.request import GenerationRequest, SequenceOutput
from headway.observe.failpoint import failpoint
from headway.observe.tracing import Tracing
from headway.worker.serving_engine import ServingEngine

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A sequence that was not taken, or goes no further here. `moved_to` is the worker that has its blocks, if any."""

    request_id: str
    error: HeadwayError
    moved_to: str = ""


def going_away() -> UnavailableError:
    """What callers hear whose sequences a worker does not take any more, as it ends in good order."""
    return UnavailableError("The worker is going away.", hint="Try again: another worker takes over.")


@dataclass(slots=True)
class _Entry:
    session: "Session"
    traceparent: str
    resumed_at_s: float = field(default_factory=time.time)


class Session:
    """One caller's stream, for sequences of any of the worker's models. They are cancelled when it closes."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[list[SequenceOutput | Refusal] | BaseException | None] = asyncio.Queue()
        self._sessions: dict[str, Sessions] = {}  # where each sequence runs, by request id
        self._is_finished = False  # the caller submits no more

    def submit(
        self,
        requests: Sequence[GenerationRequest],
        *,
        to: "Sessions",
        traceparent: str = "",
        before: Coroutine[Any, Any, None] | None = None,
    ) -> None:
        """Queues a group, the sequences of one prompt, once `before` has returned; its HeadwayError refuses them."""
        self._sessions.update((request.request_id, to) for request in requests)
        to.submit(self, requests, traceparent, before=before)

    def cancel(self, request_ids: Iterable[str]) -> None:
        running: dict[Sessions, list[str]] = {}
        for request_id in request_ids:
            if (sessions := self._sessions.pop(request_id, None)) is not None:
                running.setdefault(sessions, []).append(request_id)
        for sessions, ids in running.items():
            sessions.cancel(ids)
        if running:
            self._end_if_done()

    def finish(self) -> None:
        """No more submissions: `steps` ends once the last sequence has."""
        self._is_finished = True
        self._end_if_done()

    def close(self) -> None:
        self.cancel(tuple(self._sessions))

    async def steps(self) -> AsyncGenerator[list[SequenceOutput | Refusal], None]:
        """Yields the outputs of each step for this session's sequences; raises what the stream was ended with."""
        while (outputs := await self._queue.get()) is not None:
            if isinstance(outputs, BaseException):
                raise outputs
            yield outputs

    def deliver(self, outputs: list[SequenceOutput | Refusal]) -> None:
        for output in outputs:
            if isinstance(output, Refusal) or output.finish_reason is not None:
                self._sessions.pop(output.request_id, None)
        self._queue.put_nowait(outputs)
        self._end_if_done()

    def end(self, error: BaseException | None = None) -> None:
        """Ends the stream after what was delivered, whatever the caller still wants; with an error for what it may have
        sent meanwhile, which nobody reads any more."""
        self._queue.put_nowait(error)

    def _end_if_done(self) -> None:
        if self._is_finished and not self._sessions:
            self.end()


class Sessions:
    """Maps the running sequences of a model to the streams (sessions) that submitted them."""

    def __init__(self, engine: ServingEngine, *, loop: asyncio.AbstractEventLoop, tracing: Tracing) -> None:
        self._engine = engine
        self._loop = loop
        self._tracing = tracing
        self._entries: dict[str, _Entry] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._idle_since_s = -math.inf  # monotonic; never used yet

    def idle_s(self) -> float:
        """Seconds since the last sequence ended; 0 while one runs."""
        return 0.0 if self._entries else time.monotonic() - self._idle_since_s

    @property
    def is_idle(self) -> bool:
        return self._idle.is_set()

    async def wait_until_idle(self) -> None:
        await self._idle.wait()

    def knows(self, request_ids: Sequence[str]) -> bool:
        """Whether any of the sequences has not ended."""
        return any(request_id in self._entries for request_id in request_ids)

    def request_ids(self) -> list[str]:
        """The ids of all sequences that have not ended."""
        return list(self._entries)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Does something for the sequences in the background, until `close` at the latest."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def submit(
        self,
        session: Session,
        requests: Sequence[GenerationRequest],
        traceparent: str,
        *,
        before: Coroutine[Any, Any, None] | None = None,
    ) -> None:
        """A group is taken whole or not at all; those that are cancelled before `before` returns never set out."""
        request_ids = [request.request_id for request in requests]
        if running := [request_id for request_id in request_ids if request_id in self._entries]:
            error = AlreadyExistsError(f"Request {running[0]} is running already.", field="request_id")
            session.deliver([Refusal(request_id, error) for request_id in request_ids])
            if before is not None:
                before.close()
            return
        entries = {request_id: _Entry(session, traceparent) for request_id in request_ids}
        self._entries.update(entries)
        self._idle.clear()
        if before is None:
            self._post(requests)
        else:
            self.spawn(self._post_after(before, requests, entries))

    async def _post_after(
        self, before: Coroutine[Any, Any, None], requests: Sequence[GenerationRequest], entries: Mapping[str, _Entry]
    ) -> None:
        try:
            await before
        except HeadwayError as error:
            self._refuse([id_ for id_, entry in entries.items() if self._entries.get(id_) is entry], error)
            return
        wanted = [
            request for request in requests if self._entries.get(request.request_id) is entries[request.request_id]
        ]
        if wanted:
            self._post(wanted)

    def _post(self, requests: Sequence[GenerationRequest]) -> None:
        self._engine.submit(requests, refuse=self._refuse)

    def cancel(self, request_ids: Sequence[str]) -> None:
        """Takes sequences back, all of them before another step begins."""
        for request_id in request_ids:
            self._forget(request_id)
        self._engine.cancel(request_ids)

    def cancel_all(self) -> int:
        """Ends every sequence as cancelled; returns how many."""
        entries = dict(self._entries)
        self.cancel(tuple(entries))
        for request_id, entry in entries.items():
            entry.session.deliver([Refusal(request_id, going_away())])
        return len(entries)

    async def hand_over(self, request_ids: Sequence[str], *, worker_id: str) -> int:
        """Ends sequences that go on at another worker, and tells their streams; returns how many had not ended."""
        told: asyncio.Future[int] = self._loop.create_future()

        def tell(ended: Sequence[str]) -> None:
            self._tell_moved(
                ended, worker_id
            )  # from here, lest they be dropped in silence where the caller is cancelled
            if not told.done():
                told.set_result(len(ended))

        self._engine.cancel(request_ids, on_ended=tell)
        return await told

    def close(self) -> None:
        """Cancels every sequence: the model goes away."""
        self.cancel_all()
        for task in tuple(self._tasks):
            task.cancel()

    def publish(self, outputs: list[SequenceOutput], *, step_s: float) -> None:
        """Hands each output to its stream, one message per stream."""
        failpoint("worker.computed")
        messages: dict[Session, list[SequenceOutput | Refusal]] = {}
        for output in outputs:
            entry = self._entries.get(output.request_id)
            if entry is None:
                continue  # cancelled while the step ran
            messages.setdefault(entry.session, []).append(output)
            if entry.traceparent:
                self._trace(entry, output, step_s)
            if output.finish_reason is not None:
                self._forget(output.request_id)
        for session, message in messages.items():
            session.deliver(message)

    def _trace(self, entry: _Entry, output: SequenceOutput, step_s: float) -> None:
        now_s = time.time()
        self._tracing.record(
            "worker.step",
            traceparent=entry.traceparent,
            start_s=max(entry.resumed_at_s, now_s - step_s),
            end_s=now_s,
            request_id=output.request_id,
            num_tokens=len(output.token_ids),
        )

    def _tell_moved(self, request_ids: Sequence[str], worker_id: str) -> None:
        """Tells the sessions that their sequences have moved. The engine's earlier outputs are delivered by now."""
        error = UnavailableError(f"The request has moved to {worker_id}.", hint="Submit it there.")
        for request_id in request_ids:
            entry = self._entries.get(request_id)
            if entry is not None:
                self._forget(request_id)
                entry.session.deliver([Refusal(request_id, error, moved_to=worker_id)])

    def _refuse(self, request_ids: Sequence[str], error: HeadwayError) -> None:
        for request_id in request_ids:
            entry = self._entries.get(request_id)
            if entry is not None:
                self._forget(request_id)
                entry.session.deliver([Refusal(request_id, error)])

    def _forget(self, request_id: str) -> None:
        self._entries.pop(request_id, None)
        if not self._entries and not self._idle.is_set():
            self._idle.set()
            self._idle_since_s = time.monotonic()
